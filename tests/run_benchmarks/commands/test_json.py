"""--json: one document on stdout and nothing else, in the names of the records, with the exit code of the text."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.acceptance.climb import Looked
from run_benchmarks.commands import accepting, run_reference, starting
from run_benchmarks.commands.accepting import Acceptance
from run_benchmarks.results.records import write_text
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_PASS, EXIT_USAGE
from tests.cluster.faulty_project import LIGHT
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.conftest import CLUSTER, TEST
from tests.run_benchmarks.results.recorded_runs import KEY, a_run, on_disk
from training.benchmarks import catalog

A, B = "run20261101000000", "run20261102000000"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The options that name a cluster of this machine alone, with two recorded runs in its result folder."""
    folder = tmp_path_factory.mktemp("files")
    for name, values in ((A, [100.0, 101.0]), (B, [50.0, 51.0])):
        on_disk(folder / "result", a_run(name, values))
    paths = f"FLAGPERF_LOG_PATH_HOST = {str(folder / 'result')!r}\nFLAGPERF_PATH_HOST = {str(folder / 'deploy')!r}\n"
    (folder / "cluster_conf.py").write_text(CLUSTER)
    (folder / "test_conf.py").write_text(TEST.replace('; HISTORY = "off"', "") + paths)
    return ["--cluster-conf", str(folder / "cluster_conf.py"), "--test-conf", str(folder / "test_conf.py")]


def answered(*words: str) -> Any:
    """The document of a command, which ends as it does without --json, and prints no document then."""
    plain, answer = call(*words).checked(), call(*words, "--json").checked()
    assert answer.exit_code == plain.exit_code and answer.stdout.isascii()
    if words[0] != "plan" or "--settings" in words:
        with pytest.raises(ValueError, match="Expecting value"):
            json.loads(plain.stdout)
    return json.loads(answer.stdout)


def test_lists_are_by_topic_and_their_rows_by_column() -> None:
    found = answered("list")
    assert list(found) == ["vendors", "models", "configs", "settings"]
    assert {(each["model"], each["framework"]) for each in found["models"]} == set(catalog.available())
    assert {"file": "a case", "key": "nproc"}.items() <= next(
        x for x in found["settings"] if x["key"] == "nproc"
    ).items()
    assert list(answered("list", "vendors")) == ["vendors"]
    bert = answered("list", "bert")
    assert list(bert) == ["bert:paddle", "bert:pytorch"] and "target_mlm_accuracy" in {
        x["key"] for x in bert["bert:paddle"]
    }
    assert answered("list", "settings", "--markdown") == answered("list", "settings")


def test_a_plan_has_its_fields_and_with_settings_each_with_its_origin(files: list[str]) -> None:
    plan = answered("plan", *files)
    assert plan == json.loads(call("plan", *files).stdout)
    assert [case["name"] for case in plan["cases"]] == ["ONE"]
    (settings,) = answered("plan", *files, "--settings")["cases"]
    origins = {each["setting"]: (each["value"], each["from"]) for each in settings["settings"]}
    assert settings["name"] == "ONE" and origins["nproc"][0] == 2 and "test_conf.py" in origins["nproc"][1]
    case = plan["cases"][0]
    own = {key: value for key, value in case["config"].items() if key not in case["origins"]}
    assert own == {key: value for key, (value, _) in origins.items() if key not in case["origins"]} != {}
    jobs = ("plan", *files, "--set", "RUNTIME=docker", "--kubernetes")
    assert answered(*jobs) == json.loads(call(*jobs).stdout)


def test_the_check_of_a_host_has_its_facts_and_findings(files: list[str]) -> None:
    (host,) = answered("check", *files)["hosts"]
    assert host["host"] == "localhost" and host["facts"]["kernel"] and isinstance(host["findings"], list)
    assert host["failed"] is False


def test_records_of_runs_have_the_names_of_their_files(files: list[str]) -> None:
    conf, folder = files[2:], Path(files[3]).parent / "result"
    record = json.loads((folder / A / "run.json").read_text())
    assert answered("show", A, *conf) == record
    case = answered("show", A, "PAIRS", *conf)
    assert case["case"] == record["cases"][0]
    assert case["rounds"][1] == json.loads((folder / A / "PAIRS/round2/round.json").read_text())
    assert {each["run_id"]: each["state"] for each in answered("status", *files)["runs"]} == dict.fromkeys(
        (A, B), "no journal"
    )
    (compared,) = answered("compare", A, B, *conf)["cases"]
    assert (compared["case"], compared["metrics"][0]["metric"]["name"]) == ("PAIRS", KEY)
    checked = answered("verify", A, *conf)
    assert not checked["is_intact"] and any("seal.json" in each for each in checked["problems"])


def test_the_history_of_all_cases_of_one_and_of_a_host(files: list[str]) -> None:
    conf = files[2:]
    (case,) = answered("history", "--rebuild", *conf)["cases"]
    assert case == answered("history", "PAIRS", *conf)
    assert [point["run_id"] for point in case["series"]["points"]] == [A, B]
    assert call("history", "--host", "h9", "--json", *conf).exit_code == 2


def test_an_acceptance_prints_its_record(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Acceptance, "examine", lambda self, hosts: Looked())
    monkeypatch.setattr(accepting, "usual_devices", lambda hosts, patterns: 3)
    counted = answered("accept", *files, "--rungs", "health", "--set", "VENDOR=nvidia")
    assert counted["nproc"] == 3
    found = answered("accept", *files, "--rungs", "health", "--nproc", "1")
    assert found["nproc"] == 1
    kept = Path(files[3]).parent / "result" / found["accept_id"] / "accept.json"
    assert found == json.loads(kept.read_text()) and [rung["rung"] for rung in found["rungs"]] == ["health"]


@pytest.mark.parametrize(
    ("words", "code", "writes", "left"),
    [
        (["resume"], EXIT_PASS, True, "record"),
        (["resume", "--detach"], EXIT_PASS, False, "name"),
        (["resume", "--detach"], EXIT_PASS, True, "name"),
        (["resume"], EXIT_CHECK, False, "name"),
        (["resume"], EXIT_USAGE, False, ""),
        (["collect"], EXIT_PASS, False, "record"),
        (["collect"], EXIT_USAGE, False, ""),
    ],
)
def test_an_older_record_is_not_given_as_what_a_command_left(
    words: list[str], code: int, writes: bool, left: str, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(files[3]).parent / "result" / A / "run.json"

    def ended(_settings: object, _folder: Path, **_: bool) -> int:
        if writes:
            write_text(file, file.read_text())
        return code

    monkeypatch.setattr(run_reference, "settings_of", lambda *_: None)
    monkeypatch.setattr(starting, words[0], ended)
    answer = call(*words, A, "--json", *files[2:])
    of_record = {"record": json.loads(file.read_text()), "name": {"run_id": A}}
    assert answer.exit_code == code and (json.loads(answer.stdout) if left else answer.stdout) == of_record.get(
        left, ""
    )


def test_a_record_that_is_damaged_is_named_and_the_run_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = on_disk(tmp_path, a_run(A, [100.0]))
    (folder / "run.json").write_text("{")
    monkeypatch.setattr(run_reference, "settings_of", lambda *_: None)
    monkeypatch.setattr(starting, "collect", lambda *_: EXIT_PASS)
    answer = call("collect", str(folder), "--json").checked()
    assert (answer.exit_code, json.loads(answer.stdout)) == (EXIT_PASS, {"run_id": A})
    assert answer.stderr.startswith(f"{folder}/run.json: is no RunRecord: ") and answer.stderr.count("\n") == 1


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_a_run_that_is_made_collected_and_cleaned(tmp_path: Path, root: Path) -> None:
    """All that it logs goes to stderr."""
    values = {"VENDOR": "cpu", "RUNTIME": "process", "CASES": ["ONE"], "ONE": {**LIGHT, "nproc": 1}}
    values |= {"FLAGPERF_PATH_HOST": str(tmp_path / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(tmp_path / "result")}
    (tmp_path / "cluster_conf.py").write_text(CLUSTER)
    (tmp_path / "test_conf.py").write_text("".join(f"{name} = {value!r}\n" for name, value in values.items()))

    def answer(*words: str) -> Any:
        argv = [sys.executable, str(root / "run_benchmarks/run.py"), *words, "--json"]
        argv += ["--cluster-conf", str(tmp_path / "cluster_conf.py"), "--test-conf", str(tmp_path / "test_conf.py")]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    made = answer("run")
    run_id = made["run_id"]
    assert made == json.loads((tmp_path / "result" / run_id / "run.json").read_text()) and made["verdict"] == "pass"
    (state,) = answer("status")["runs"]
    assert (state["state"], state["rounds"], state["run_ended"]["verdict"]) == ("ended", {"ONE": 1}, "pass")
    assert answer("collect", run_id) == made
    assert answer("verify", run_id)["is_intact"] is True
    cleaned = answer("clean", run_id)
    assert (list(cleaned["removed"]), cleaned["failed"]) == (["localhost"], {})
