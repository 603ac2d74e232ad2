"""`run.py verify` on what real runs left: intact, and with every link of the chain tampered with."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from common.reading import sha256_of
from run_benchmarks.commands.round_verification import Findings
from run_benchmarks.commands.status import follow_log
from run_benchmarks.commands.verification import NoRunError, _check_expectations, show, verified, verify
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.plan.side_by_side import Wave
from run_benchmarks.results import records
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.results.seal import SEAL_FILE, write_seal
from run_benchmarks.results.signature import sign_seal
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.schedule import RoundScheduler
from run_benchmarks.session.session import Session
from run_benchmarks.settings.settings import load_settings
from run_benchmarks.state.exit_codes import EXIT_INTERRUPTED
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import JournalError
from run_benchmarks.state.run_lock import controlling
from tests.run_benchmarks.conftest import CLUSTER, TEST
from tests.run_benchmarks.results.rounds import run_record

RUN = "run20261121191931"  # its own: runs of one name and owner share their ports
NODE = "ONE/round1/localhost_noderank0"
Tamper = Callable[[Path], object]


def make_key(file: Path, passphrase: str = "") -> Path:
    """A new key pair of ssh-keygen."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", str(file)], check=True)
    return file


def run(folder: Path, on_round: Callable[[], None] = lambda: None) -> Path:
    """One controller's part of a run of two rounds in `folder`; `on_round` is called after each of them."""
    (folder / "cluster_conf.py").write_text(CLUSTER)
    changes = "ONE['overrides'] = {'sizes': '8', 'iterations': 2}\nONE['repeat'] = 2\n"
    key = folder / "key"
    if not key.exists():
        make_key(key)
    paths = {
        "SEAL_KEY": str(key),
        "FLAGPERF_PATH_HOST": str(folder / "deploy"),
        "FLAGPERF_LOG_PATH_HOST": str(folder / "result"),
    }
    (folder / "test_conf.py").write_text(TEST + changes + "".join(f"{k} = {v!r}\n" for k, v in paths.items()))
    prepared = prepare(load_settings(folder / "cluster_conf.py", folder / "test_conf.py"), RUN)
    result = folder / "result" / RUN
    result.mkdir(parents=True, exist_ok=True)
    attempt = RoundScheduler._attempt

    def then(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        record = attempt(self, case, index, number, wave)
        on_round()
        return record

    with pytest.MonkeyPatch.context() as patch, Interruption("clean") as interruption:
        patch.setattr(RoundScheduler, "_attempt", then)
        Session(prepared, result, interruption, ["run.py"]).run()
    return result


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that a signal ended after its first round, found intact then, and that was resumed to its end."""
    folder = tmp_path_factory.mktemp("verify")
    result = run(folder, lambda: os.kill(os.getpid(), signal.SIGTERM))
    record = json.loads((result / "run.json").read_text())
    assert record["exit_code"] == EXIT_INTERRUPTED and record["cases"][0]["rounds"] == ["pass"]
    assert verify(result).problems == []
    return run(folder)


@pytest.fixture
def folder(resumed: Path, tmp_path: Path) -> Path:
    """A copy of it, carried elsewhere."""
    return shutil.copytree(resumed, tmp_path / "carried" / RUN, symlinks=True)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A fresh private key of ssh-keygen; its public half is beside it."""
    return make_key(tmp_path / "key")


def edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record, indent=2) + "\n")


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def seal_anew(folder: Path) -> None:
    """What a forger does: every hash fits again."""

    def fit(record: dict[str, Any]) -> None:
        for node in record["nodes"]:
            for name, file in node["files"].items():
                file["sha256"] = sha256_of(path.parent / f"{node['host']}_noderank{node['node_rank']}" / name)

    for path in folder.glob("*/round*/round.json"):
        edit(path, fit)
    (folder / "seal.json.sig").unlink(missing_ok=True)  # which nobody can forge
    write_seal(folder, RUN, json.loads((folder / "run.json").read_text())["code_digest"])


def faster(folder: Path) -> None:
    edit(folder / "ONE/round1/round.json", lambda record: record["metrics"].update(max_busbw_GBps=400.0))


def faster_mean(folder: Path) -> None:
    edit(folder / "run.json", lambda record: record["cases"][0]["metrics"].update(max_busbw_GBps=400.0))


def another_code(folder: Path) -> None:
    edit(folder / "ONE/round1/round.json", lambda record: record.update(code_digest="0" * 16))


def no_digest(folder: Path) -> None:
    edit(folder / "ONE/round2/round.json", lambda record: record["nodes"][0].update(code_digest=None))


def another_config(folder: Path) -> None:
    edit(folder / "run.json", lambda record: record["cases"][0]["config"].update(iterations=1000))


def another_config_in_a_log(folder: Path) -> None:
    replace(folder / NODE / "rank1.out.log", '"iterations": 2', '"iterations": 9')


def passes(folder: Path) -> None:
    replace(folder / NODE / "rank1.out.log", '"correct": "pass"', '"correct": "fail"')


def no_nodes(folder: Path) -> None:
    edit(folder / "ONE/round1/round.json", lambda record: record.update(nodes=[]))


def another_step(folder: Path) -> None:
    edit(folder / "ONE/round2/round.json", lambda record: record["steps"].pop())


def failed_round(folder: Path) -> None:
    edit(folder / "ONE/round2/round.json", lambda record: record.update(verdict="fail"))


def failed_run(folder: Path) -> None:
    edit(folder / "run.json", lambda record: record["cases"][0].update(verdict="fail"))


def manifest(folder: Path) -> None:
    replace(folder / "code.manifest", "bandwidth.py", "bandwidth2.py")


def no_round(folder: Path) -> None:
    shutil.rmtree(folder / "ONE/round2")


def swapped(folder: Path) -> None:
    (folder / "ONE/round1").rename(folder / "ONE/x")
    (folder / "ONE/round2").rename(folder / "ONE/round1")
    (folder / "ONE/x").rename(folder / "ONE/round2")


def no_case(folder: Path) -> None:
    shutil.rmtree(folder / "ONE")
    edit(folder / "run.json", lambda record: record.update(cases=[], drain=[]))


def one_round_less(folder: Path) -> None:
    shutil.rmtree(folder / "ONE/round2")
    first = json.loads((folder / "ONE/round1/round.json").read_text())["metrics"]

    def change(record: dict[str, Any]) -> None:
        record["cases"][0].update(rounds=["pass"], attempts=[1], metrics=first, spread={})

    edit(folder / "run.json", change)


def no_failure(folder: Path) -> None:
    journal = folder / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"verdict":"pass","reason"', '"verdict":"fail","reason"', 1))


def many_ranks(folder: Path) -> None:
    edit(folder / "ONE/round1/round.json", lambda record: record.update(world_size=10**12))


def bad_limit(folder: Path) -> None:
    wrong = {"metric": "x", "unit": "s", "limit": "whatever", "measured": 3.0, "met": True}
    edit(folder / "run.json", lambda record: record["cases"][0].update(expectations=[wrong]))


def linked(folder: Path) -> None:
    log = folder / NODE / "rank0.out.log"
    log.rename(folder.parent / "elsewhere.log")
    log.symlink_to(folder.parent / "elsewhere.log")


TAMPERED: list[tuple[Tamper, str, str]] = [
    (faster, "ONE/round1/round.json", "metrics do not follow from the log of rank 0: max_busbw_GBps is 400.0"),
    (faster_mean, "run.json", "case ONE: metrics do not follow from its rounds: max_busbw_GBps is 400.0"),
    (another_code, "ONE/round1/round.json", "of the code 0000000000000000"),
    (no_digest, "ONE/round2/round.json", "verdict pass, but the code that ran on localhost is unknown"),
    (another_config, "ONE/round1/round.json", "other settings than run.json"),
    (another_config_in_a_log, f"{NODE}/rank1.out.log", "ran with other settings than run.json has: iterations is 9"),
    (passes, "ONE/round1/round.json", "verdict pass does not follow from the logs: rank 1 says that it failed"),
    (no_nodes, "ONE/round1/round.json", "verdict pass does not follow from the logs: its nodes have 0 ranks"),
    (another_step, "ONE/round2/round.json", "steps do not follow from the log of rank 0 (0, in the log 1)"),
    (failed_round, "run.json", "case ONE: its rounds are pass, pass, on disk pass, fail"),
    (failed_run, "run.json", "verdict pass does not follow from its cases"),
    (manifest, "code.manifest", "lists the code"),
    (no_round, "run.json", "its rounds are pass, pass, on disk pass"),
    (swapped, "ONE/round1/round.json", "of another place: ONE/round2/round.json"),
    (no_case, "run.json", f"is {RUN} with , the journal began {RUN} with ONE"),
    (one_round_less, "run.json", "case ONE: 1 of 2 planned rounds"),
    (no_failure, "run.json", "case ONE: round 1: verdict pass in attempt 1, in the journal fail in attempt 1"),
    (many_ranks, "ONE/round1/round.json", "its nodes have 2 ranks, its world size is 1000000000000"),
    (bad_limit, "run.json", "changed: cannot be checked: "),
]


def report(folder: Path, signers: Path | None = None) -> bool:
    """What the command prints of a run's folder; returns whether it found anything."""
    found = verified(folder, signers)
    show(folder, found)
    return bool(found.problems)


def test_intact(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not report(folder)
    said = capsys.readouterr().out
    assert f"{RUN}: intact: " in said and sha256_of(folder / SEAL_FILE) in said
    assert 'Good "clusterdyno-seal" signature with ED25519 key SHA256:' in said, "by SEAL_KEY"
    (folder / "run.log").write_text("it goes on after the seal\n")
    assert verify(folder).problems == []


@pytest.mark.parametrize("sealed_anew", [False, True], ids=["sealed", "sealed anew"])
@pytest.mark.parametrize(("tamper", "name", "problem"), TAMPERED, ids=[str(case[1:]) for case in TAMPERED])
def test_what_was_tampered_with_is_named(
    tamper: Tamper, name: str, problem: str, sealed_anew: bool, folder: Path
) -> None:
    """Also where whoever did it wrote a fitting seal: numbers and verdicts still have to follow from the logs."""
    tamper(folder)
    if sealed_anew:
        seal_anew(folder)
    problems = verify(folder).problems
    assert any(found.startswith(f"{name}: ") and problem in found for found in problems), problems
    if not sealed_anew:
        assert any("sha256" in found or "missing" in found for found in problems)


@pytest.mark.parametrize(
    ("tamper", "line"),
    [
        (lambda folder: (folder / NODE / "monitor.jsonl").unlink(), f"{NODE}/monitor.jsonl: missing"),
        (lambda folder: (folder / NODE / "extra.log").touch(), f"{NODE}/extra.log: added"),
        (lambda folder: Path(os.fsdecode(os.fsencode(folder) + b"/\xff.log")).touch(), "\ufffd.log: added"),
        (lambda folder: (folder / "report.html").write_text("400 GB/s"), "report.html: changed"),
        (lambda folder: (folder / "seal.json").unlink(), "seal.json: missing"),
        (lambda folder: (folder / "run.json").write_text("[" * 100_000), "run.json: changed"),
        (
            lambda folder: (folder / "ONE/round1/round.json").write_text("{}"),
            "ONE/round1/round.json: changed: cannot be",
        ),
        (linked, f"{NODE}/rank0.out.log: changed: leads out of its place"),
    ],
    ids=["missing", "added", "not UTF-8", "report", "no seal", "nested", "unreadable", "link"],
)
def test_files_that_changed_came_or_went_are_named(tamper: Tamper, line: str, folder: Path) -> None:
    tamper(folder)
    problems = verify(folder).problems
    assert any(found.startswith(line) for found in problems), problems


@pytest.mark.parametrize(
    "name",
    ["seal.json", "run.json", "code.manifest", "journal.jsonl", "ONE/round1/round.json", f"{NODE}/rank0.out.log"],
)
def test_a_pipe_in_place_of_a_file_is_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    other = folder / "run.log"
    assert any(found.startswith(f"{name}: ") for found in verify(folder).problems)
    other.unlink(missing_ok=True)
    os.mkfifo(other)
    with pytest.raises(JournalError, match="not a regular file"):
        follow_log(folder, sys.stdout)


def test_a_record_beyond_its_bound_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = (folder / "run.json").stat().st_size
    monkeypatch.setattr(records, "MAX_RECORD_BYTES", size)
    with (folder / "run.json").open("a") as file:
        file.write(" " * 100)
    assert any("more than" in found for found in verify(folder).problems if found.startswith("run.json"))


def test_a_renamed_folder_is_noticed(folder: Path) -> None:
    renamed = folder.rename(folder.with_name(f"{RUN[:-1]}9"))
    assert verify(renamed).problems == [f"seal.json: of {RUN}: the folder has another name"]


def test_a_signed_seal(folder: Path, key: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The oracle is ssh-keygen, called here as its manual says."""
    public, signers = key.with_suffix(".pub").read_text(), tmp_path / "signers"
    signers.write_text(f"alice@site {public}")
    (folder / "seal.json.sig").unlink()
    assert verify(folder, signers).problems == ["seal.json.sig: missing: the seal is not signed"]
    assert sign_seal(folder, key) == ""
    words = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", "alice@site", "-n", "clusterdyno-seal"]
    with (folder / SEAL_FILE).open("rb") as seal:
        subprocess.run([*words, "-s", str(folder / "seal.json.sig")], stdin=seal, check=True, stdout=subprocess.DEVNULL)
    assert not report(folder, signers)
    assert 'Good "clusterdyno-seal" signature for alice@site with ED25519 key SHA256:' in capsys.readouterr().out
    assert not report(folder)
    assert "--signers FILE says whose key that is" in capsys.readouterr().out
    edit(folder / SEAL_FILE, lambda seal: seal.update(sealed_ms=1))
    for known in (signers, None):
        (problem,) = verify(folder, known).problems
        assert problem.startswith("seal.json.sig: ssh-keygen: ") and "incorrect signature" in problem


def test_a_signature_of_somebody_else_is_none(folder: Path, key: Path, tmp_path: Path) -> None:
    signers = tmp_path / "signers"
    signers.write_text(f"alice@site {key.with_suffix('.pub').read_text()}")
    assert sign_seal(folder, make_key(tmp_path / "other")) == ""
    (problem,) = verify(folder, signers).problems
    assert problem.startswith("seal.json.sig: ssh-keygen: ")
    (folder / "seal.json.sig").unlink()
    os.mkfifo(folder / "seal.json.sig")
    assert verify(folder, signers).problems == ["seal.json.sig: cannot be read: not a regular file"]


def test_a_key_that_cannot_sign_is_said(folder: Path, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", "secret words")
    assert sign_seal(folder, locked).startswith(f"seal.json is not signed with SEAL_KEY {locked}: ssh-keygen: ")
    assert verify(folder).problems == []


def test_a_seal_leads_nowhere_else(folder: Path) -> None:
    """Whoever gives a folder away for verification cannot make us read, or tell of, what is not in it."""
    edit(folder / SEAL_FILE, lambda seal: seal["files"].update({"../../\x1b[2Jsecret": "0" * 64}))
    assert "../../?[2Jsecret: changed: leads out of its place" in verify(folder).problems


def test_a_link_to_itself_and_a_name_that_no_file_can_have_are_findings(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    edit(folder / SEAL_FILE, lambda seal: seal["files"].update({"loop/file": "0" * 64, "a\0b": "0" * 64}))
    assert {"loop/file: missing", "a?b: missing"} <= {*verify(folder).problems}


def test_no_run(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(NoRunError, match="not the folder of a completed run"):
        verify(tmp_path)
    with controlling(folder), pytest.raises(NoRunError, match="a controller works on this run"):
        report(folder)


def test_on_the_command_line(folder: Path, tmp_path: Path) -> None:
    def call(*words: str) -> tuple[int, str]:
        argv = [sys.executable, str(ROOT / "run_benchmarks" / "run.py"), "verify", *words]
        done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        return done.returncode, done.stdout + done.stderr

    code, said = call(str(folder))
    assert code == 0 and "intact" in said
    replace(folder / NODE / "rank0.out.log", "[PerfLog]", "[PerfLog] ")
    code, said = call(str(folder))
    assert code == 1 and f"{NODE}/rank0.out.log: changed: its sha256" in said
    (tmp_path / "empty").mkdir()
    assert call(str(tmp_path / "empty"))[0] == 2
    code, said = call("run19990101000000")
    assert code == 2 and "expected the name of a run" in said


def test_a_run_that_failed_is_intact_too(folder: Path) -> None:
    passes(folder)
    edit(folder / "ONE/round1/round.json", lambda record: record.update(verdict="fail"))
    second = json.loads((folder / "ONE/round2/round.json").read_text())["metrics"]

    def failed(record: dict[str, Any]) -> None:
        record.update(verdict="fail", exit_code=1)
        record["cases"][0].update(verdict="fail", rounds=["fail", "pass"], metrics=second, spread={})
        if (key := record["cases"][0]["key"]) is not None:
            key.update(value=second[key["metric"]], of_rounds=[second[key["metric"]]])

    edit(folder / "run.json", failed)
    no_failure(folder)
    seal_anew(folder)
    assert verify(folder).problems == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"measured": 9.0}, ["e2e_time is 9.0, its metrics have 3.0", "verdict pass, but e2e_time is 9 s"]),
        ({"limit": "< 2 s"}, ["verdict pass, but e2e_time is 3 s, expected < 2 s"]),
        ({"missing_rounds": [2]}, ["verdict pass, but e2e_time is 3 s, and was not measured in round 2"]),
        ({"measured": None}, ["verdict pass, but e2e_time was not measured"]),
    ],
)
def test_a_limit_that_a_passed_case_does_not_meet_is_found(changed: dict[str, Any], said: list[str]) -> None:
    limit = {"metric": "e2e_time", "unit": "s", "limit": "< 4 s", "measured": 3.0, "met": True}
    (case,) = run_record({"e2e_time": 3.0}, expectations=[limit | changed]).cases
    findings = Findings()
    _check_expectations(case, findings)
    found = findings.problems
    assert len(found) == len(said) and all(words in line for words, line in zip(said, found, strict=True)), found
