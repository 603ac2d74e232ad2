"""A controller killed while it collects: the round that was over is collected again, judged, and not run again."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.results.records import Verdict
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.state.journal import (
    Journal,
    NodeEnd,
    OpenRound,
    RoundCollecting,
    RoundEnded,
    RoundStarted,
    RunStarted,
)
from tests.run_benchmarks.conftest import Load
from tests.run_benchmarks.local_run import LIGHT_ONE, Run
from tests.run_benchmarks.rounds.contexts import context

# run.py, whose controller is killed for good at the call of a function: before it, or after what it does.
KILLED_AT = """
import os, signal, sys
from run_benchmarks.rounds import round as module
name, when, sys.argv[1:] = sys.argv[1], sys.argv[2], sys.argv[3:]
action = getattr(module, name)
def killed(*arguments, **options):
    if when == "after":
        action(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(module, name, killed)
from run_benchmarks.commands.cli import main
main()
"""
STARTED = RunStarted(run_id="run1", pid=1, plan_digest="d", cluster_conf="c", test_conf="t", rounds={"A": 2})
BEGUN = RoundStarted(case="A", round=1, attempt=1, master_port=29500, hosts=["h1"])
COLLECTING = RoundCollecting(
    case="A",
    round=1,
    attempt=1,
    nodes={"h1": NodeEnd(exit_code=143, error=None, stopped=True, warnings=["slow"])},
    early_end=(Verdict.TIMEOUT, "did not end within its time limit of 5 s"),
    phase_seconds={"run": 5.0},
)


def test_the_journal_says_how_a_round_that_is_collected_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for event in (STARTED, BEGUN, COLLECTING):
        journal.append(event)
    assert journal.read().open == {"A": OpenRound(started=BEGUN, collecting=COLLECTING)}
    journal.append(RoundEnded(case="A", round=1, attempt=1, verdict=Verdict.TIMEOUT, reason="late"))
    journal.append(BEGUN.model_copy(update={"round": 2}))
    assert journal.read().open["A"].collecting is None


def killed_at(run: Run, name: str, when: str, *words: str) -> None:
    argv = [sys.executable, "-c", KILLED_AT, name, when, *run.argv[2:], *words]
    ended = subprocess.run(argv, cwd=run.root, capture_output=True, text=True, timeout=200)
    assert ended.returncode == -signal.SIGKILL, ended.stdout + ended.stderr


def test_a_round_that_was_over_is_not_run_again(tmp_path: Path, root: Path) -> None:
    """Killed before anything is collected, then with everything here and nothing recorded, then before the removal."""
    run = Run(tmp_path / "run", LIGHT_ONE, root)
    killed_at(run, "collect_node", "before")
    assert run.result is not None
    name, folder = run.result.name, run.result / "ONE/round1"
    (folder / ".incoming-killed").mkdir()
    killed_at(run, "collect_node", "after", "resume", name)
    assert not (folder / "round.json").exists() and (folder / "localhost_noderank0/rank0.out.log").exists()
    killed_at(run, "remove_tasks", "before", "resume", name)
    recorded = (folder / "round.json").read_bytes()
    states = [path.parent.name for path in tmp_path.rglob("supervisor.json")]
    assert sorted(states) == ["localhost_noderank0.monitor", "localhost_noderank0.workload"]
    answer = subprocess.run([*run.argv, "resume", name], capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (folder / "round.json").read_bytes() == recorded
    record = json.loads(recorded)
    assert (record["verdict"], record["attempt"], record["nodes"][0]["exit_code"]) == ("pass", 1, 0)
    assert record["nodes"][0]["missing"] == [] and "run" in record["phase_seconds"]
    launch = (folder / "localhost_noderank0/start_pytorch_task.log").read_text()
    assert "exit code: 0" in launch
    events = [event["event"] for event in run.journal()]
    assert events.count("round_started") == 1 and events.count("round_ended") == 1
    assert not (folder / ".incoming-killed").exists() and not (run.result / "ONE/round1_try2").exists()
    assert list(tmp_path.rglob("supervisor.json")) == []


# run.py, whose own disk is full when files are to come (and which is killed after the record), or which gets a signal
# then, or is killed before.
DISTURBED = """
import errno, os, signal, sys
from run_benchmarks.errors import CollectError
from run_benchmarks.rounds import collect, round
from run_benchmarks.session import collection, schedule
what, sys.argv[1:] = sys.argv[1], sys.argv[2:]
action = collect.fetch
def fetch(host, *arguments, **options):
    if what == "killed while it collects":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "full, signalled":
        os.kill(os.getpid(), signal.SIGTERM)
    if "full" in what:
        raise CollectError(host.name, "its files cannot be kept here") from OSError(errno.ENOSPC, "full")
    os.kill(os.getpid(), signal.SIGTERM)
    return action(host, *arguments, **options)
def killed(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)
collect.fetch = fetch
if what == "full, then killed":
    round.remove_tasks = killed
if what == "nothing answers":
    schedule.answers = lambda host: False
if what == "killed":
    collection.check_hosts = killed
from run_benchmarks.commands.cli import main
main()
"""


def disturbed(run: Run, what: str, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", DISTURBED, what, *run.argv[2:], *words]
    return subprocess.run(argv, cwd=run.root, capture_output=True, text=True, timeout=200)


@pytest.mark.nightly
def test_owed_files_outlast_killed_controllers_and_are_fetched_after_the_runs_time_limit(
    tmp_path: Path, root: Path
) -> None:
    """One dies before the journal has a record's end, one before it fetches anything; a third gets a signal."""
    run = Run(tmp_path / "run", LIGHT_ONE, root)
    assert disturbed(run, "full, then killed").returncode == -signal.SIGKILL
    assert run.result is not None and run.journal()[-1]["event"] == "round_collecting"
    name, of_the_round = run.result.name, run.result / "ONE/round1/round.json"
    assert json.loads(of_the_round.read_text())["verdict"] == "fail"
    failed = disturbed(run, "full", "resume", name)
    assert failed.returncode == 1 and run.verdict() == "fail", failed.stdout + failed.stderr
    owed = [event["owed"] for event in run.journal() if event["event"] == "round_ended"]
    assert owed and all(hosts == ["localhost"] for hosts in owed), owed

    launch = run.result / "ONE/round1/localhost_noderank0/start_pytorch_task.log"
    with launch.open("a") as log:
        log.write("said by a task that is gone\n")
    seal, signature = run.result / "seal.json", run.result / "seal.json.sig"
    sealed = seal.read_bytes()
    signature.write_text("of the old seal")
    assert disturbed(run, "killed", "collect", name).returncode == -signal.SIGKILL
    assert (seal.read_bytes(), signature.read_text()) == (sealed, "of the old seal")

    before = (run.result / "run.json").read_bytes()
    assert disturbed(run, "nothing answers", "collect", name).returncode == 1
    assert (seal.read_bytes(), signature.read_text()) == (sealed, "of the old seal")
    assert (run.result / "run.json").read_bytes() == before
    assert disturbed(run, "killed while it collects", "collect", name).returncode == -signal.SIGKILL
    assert not seal.exists() and not signature.exists(), "it vouches for files that were to be replaced"

    with (run.folder / "test_conf.py").open("a") as settings:
        settings.write("RUN_TIME_LIMIT = 0.001\n")
    answer = disturbed(run, "signalled", "collect", name)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    record = json.loads((run.result / "run.json").read_text())
    assert run.verdict() == record["verdict"] == "pass", "the signal was to the collection alone"
    assert json.loads(of_the_round.read_text())["nodes"][0]["missing"] == []
    assert "said by a task that is gone" in launch.read_text()
    assert seal.read_bytes() != sealed and not signature.exists()
    seal.unlink()  # as of a collection that was killed before it
    for word in ("collect", "verify"):
        answer = subprocess.run([*run.argv, word, name], capture_output=True, text=True, timeout=200)
        assert answer.returncode == 0 and seal.exists(), answer.stdout + answer.stderr


def test_a_round_that_is_taken_over_makes_its_run_unsealed_before_anything_changes(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may be sealed with a round that its controller could not take over."""
    sealed = [tmp_path / name for name in ("seal.json", "seal.json.sig")]
    for file in sealed:
        file.touch()

    def looked_at(self: RoundRunner, collecting: RoundCollecting) -> list[Path]:
        return [file for file in sealed if file.exists()]

    monkeypatch.setattr(RoundRunner, "_resume_collection", looked_at)
    prepared = prepare(load(), new_run_id())
    case = prepared.plan.cases[0]
    runner = RoundRunner(context(prepared, tmp_path), case, case.rounds[0], note=lambda _: None)
    assert runner.resume(BEGUN, COLLECTING) == []  # type: ignore[comparison-overlap]


def test_a_collection_leaves_rounds_that_a_signal_kept_from_running_as_they_were(tmp_path: Path, root: Path) -> None:
    run = Run(tmp_path / "run", LIGHT_ONE + "ONE['repeat'] = 2\n", root)
    ended = disturbed(run, "full, signalled")
    assert run.result is not None and run.verdict() == "aborted", ended.stdout + ended.stderr
    answer = subprocess.run([*run.argv, "collect", run.result.name], capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    record = json.loads((run.result / "run.json").read_text())
    (case,) = record["cases"]
    assert run.verdict() == record["verdict"] == case["verdict"] == "aborted"
    assert (case["reason"], case["rounds"]) == ("interrupted by a signal", ["pass"]), "the first reason was the round's"


@pytest.mark.nightly
def test_a_damaged_record_makes_only_its_own_round_run_again(tmp_path: Path, root: Path) -> None:
    run = Run(tmp_path / "run", LIGHT_ONE + "ONE['repeat'] = 3\n", root)
    assert subprocess.run(run.argv, capture_output=True, timeout=200).returncode == 0
    assert run.result is not None
    case = run.result / "ONE"
    (case / "round1/round.json").write_bytes(b"")
    others = [(case / name / "round.json").read_bytes() for name in ("round2", "round3")]
    answer = subprocess.run([*run.argv, "resume", run.result.name], capture_output=True, text=True, timeout=200)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "round1/round.json cannot be read" in answer.stdout
    assert sorted(path.name for path in case.iterdir()) == ["round1", "round1_try2", "round2", "round3"]
    assert [(case / name / "round.json").read_bytes() for name in ("round2", "round3")] == others
    record = json.loads((run.result / "run.json").read_text())
    assert (record["cases"][0]["rounds"], record["cases"][0]["attempts"]) == (["pass"] * 3, [2, 1, 1])
