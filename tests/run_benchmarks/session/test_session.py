"""What a whole run says of itself when it ends between two of its steps."""

import logging
import os
import signal
from pathlib import Path

import pytest

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.code_folder import bring
from run_benchmarks.plan.plan import CasePlan, round_folder
from run_benchmarks.plan.side_by_side import Wave
from run_benchmarks.results.records import RoundRecord, RunRecord, Verdict, write_record
from run_benchmarks.rounds.watch import Watch
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.session.schedule import RoundScheduler, TooFewHostsError
from run_benchmarks.session.session import Session
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.exit_codes import EXIT_INTERRUPTED
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import RoundEnded
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load
from tests.run_benchmarks.results.rounds import round_record

MASTER_PORT, PORTS_OF_A_WORKER = 30500, 200


def settings_of(load: Load, folder: Path, changes: str) -> Settings:
    """Case ONE with these changes, all of its folders in `folder`."""
    folders = {"FLAGPERF_PATH_HOST": str(folder / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(folder / "logs")}
    # A range of ports for each worker of the tests: some of their runs have a home, and port claims, of their own.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    cluster = f"{CLUSTER}MASTER_PORT = {MASTER_PORT + PORTS_OF_A_WORKER * worker}\n"
    return load(f"{TEST}{changes}\n" + "".join(f"{key} = {value!r}\n" for key, value in folders.items()), cluster)


def run(settings: Settings, folder: Path) -> RunRecord:
    """What run.json says of a run in this process, or of its resumption where the folder is there already."""
    folder.mkdir(exist_ok=True)
    with Interruption("clean") as interruption:
        Session(prepare(settings, new_run_id()), folder, interruption, ["run.py"]).run()
    return RunRecord.model_validate_json((folder / "run.json").read_bytes())


@pytest.mark.nightly
def test_a_signal_while_the_last_round_is_collected(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round keeps its verdict, the run was interrupted all the same."""
    settings = settings_of(load, tmp_path, "ONE['overrides'] = {'sizes': '8', 'iterations': 1}")
    attempt = RoundScheduler._attempt

    def interrupted(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        record = attempt(self, case, index, number, wave)
        os.kill(os.getpid(), signal.SIGTERM)
        return record

    monkeypatch.setattr(RoundScheduler, "_attempt", interrupted)
    record = run(settings, tmp_path / "result")
    assert (record.verdict, record.exit_code) == (Verdict.ABORTED, EXIT_INTERRUPTED)
    assert [(case.verdict, case.rounds) for case in record.cases] == [(Verdict.PASS, [Verdict.PASS])]
    assert (tmp_path / "result/report.html").is_file()


@pytest.mark.parametrize("end", ["signal", "too few hosts"])
def test_what_ends_a_round_before_its_next_attempt_leaves_the_failed_one_its_verdict(
    end: str, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its round.json is there, so run.json has it, too."""

    def fails(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        if number > 1:
            raise TooFewHostsError("it needs 1 hosts and 0 of its 1 are left")
        if end == "signal":
            os.kill(os.getpid(), signal.SIGTERM)
        return round_record(tmp_path / "round", verdict=Verdict.FAIL, reason="rank 0 on localhost: exit code 7")

    monkeypatch.setattr(RoundScheduler, "_attempt", fails)
    record = run(settings_of(load, tmp_path, "ONE['retries'] = 2\nONE['repeat'] = 2"), tmp_path / "result")
    (case,) = record.cases
    assert (case.rounds, case.reason) == ([Verdict.FAIL], "rank 0 on localhost: exit code 7")
    assert case.verdict is record.verdict is (Verdict.ABORTED if end == "signal" else Verdict.FAIL)


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.TIMEOUT])
def test_a_resumed_run_makes_the_retries_that_are_left_and_no_more(
    verdict: Verdict, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal between two attempts and one in the last but one, which is aborted by it and does not count."""
    tried: list[tuple[int, int]] = []

    def fails(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        tried.append((index, number))
        if number < 3 and index == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        found = Verdict.ABORTED if (index, number) == (1, 2) else verdict
        record = round_record(tmp_path / f"{index}.{number}", case=case.name, verdict=found, reason="exit code 7")
        record = record.model_copy(update={"round": index, "attempt": number})
        folder = tmp_path / "result" / case.folder / round_folder(index, number)
        folder.mkdir(parents=True)
        write_record(folder / "round.json", record)
        ended = RoundEnded(case=case.name, round=index, attempt=number, verdict=found, reason=record.reason)
        self._journal.append(ended)
        return record

    monkeypatch.setattr(RoundScheduler, "_attempt", fails)
    settings = settings_of(load, tmp_path, "ONE['retries'] = 1\nONE['repeat'] = 2")
    exit_codes = [run(settings, tmp_path / "result").exit_code for _ in range(4)]
    assert exit_codes == [EXIT_INTERRUPTED, EXIT_INTERRUPTED, 1, 1]
    assert tried == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]
    record = RunRecord.model_validate_json((tmp_path / "result/run.json").read_bytes())
    assert [case.rounds for case in record.cases] == [[verdict, verdict]]


def test_a_host_keeps_what_was_not_collected_of_an_attempt_though_the_next_one_was(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    def runs(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        folder = tmp_path / "result" / case.folder / round_folder(index, number)
        folder.mkdir(parents=True)
        verdict = Verdict.PASS if number == 2 else Verdict.FAIL
        record = round_record(folder / "node", verdict=verdict)
        nodes = [node.model_copy(update={"host": "localhost", "incomplete": number == 1}) for node in record.nodes]
        record = record.model_copy(update={"nodes": nodes})
        write_record(folder / "round.json", record)
        log = there / case.folder / round_folder(index, number) / "localhost_noderank0/rank0.out.log"
        log.parent.mkdir(parents=True)
        log.touch()
        return record

    monkeypatch.setattr(RoundScheduler, "_attempt", runs)
    settings = settings_of(load, tmp_path, "ONE['retries'] = 1")
    prepared = prepare(settings, new_run_id())
    there = Path(prepared.plan.log_root_host)
    (tmp_path / "result").mkdir()
    with Interruption("clean") as interruption:
        record = Session(prepared, tmp_path / "result", interruption, ["run.py"]).run()
    assert record.verdict is Verdict.PASS
    assert (there / "ONE/round1/localhost_noderank0/rank0.out.log").is_file()


@pytest.mark.nightly
def test_a_number_is_of_the_code_that_is_named(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host's copy is edited before the run, between two rounds, and in the second; in the third a file is added."""
    settings = settings_of(load, tmp_path, "ONE['overrides'] = {'sizes': '1M', 'iterations': 1}\nONE['repeat'] = 3")
    prepared = prepare(settings, new_run_id())
    there, name = Path(prepared.plan.code_dir_host), "common/bandwidth.py"
    bring(LocalHost("localhost"), prepared.code, str(there), deadline=30)
    original = (there / name).read_text()

    def edit() -> None:
        edited = original.replace("GB = 1e9", "GB = 1e6")
        assert edited != original == (there / name).read_text()
        (there / name).write_text(edited)

    attempt, watch = RoundScheduler._attempt, Watch.run
    rounds: list[int] = []

    def between(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        if index == 2:
            edit()
        rounds.append(index)
        return attempt(self, case, index, number, wave)

    def meanwhile(self: Watch) -> tuple[Verdict, str] | None:
        ended = watch(self)
        if rounds == [1, 2]:
            edit()
        elif rounds == [1, 2, 3]:
            (there / "statistics.py").write_text("def median(values): return 1000.0\n")
        return ended

    monkeypatch.setattr(RoundScheduler, "_attempt", between)
    monkeypatch.setattr(Watch, "run", meanwhile)
    edit()
    with caplog.at_level(logging.WARNING, logger=LOG.name):
        record = run(settings, tmp_path / "result")
    said = f"localhost: its code differed from that of this run and was replaced: changed: {name}"
    assert caplog.messages.count(said) == 3
    assert record.hosts[0].code_differences == [f"changed: {name}"]
    first, second, third = (
        RoundRecord.model_validate_json((tmp_path / f"result/ONE/round{index}/round.json").read_bytes())
        for index in (1, 2, 3)
    )
    assert (first.verdict, first.nodes[0].code_digest) == (Verdict.PASS, prepared.code.digest)
    assert first.metrics["max_busbw_GBps"] < 100 and second.metrics["max_busbw_GBps"] < 100
    assert (second.verdict, second.nodes[0].code_digest) == (Verdict.FAIL, None)
    assert f"its code was changed during the round: changed: {name}" in second.reason and said in second.warnings
    assert (third.verdict, third.nodes[0].code_digest) == (Verdict.FAIL, None)
    assert "its code was changed during the round: added: statistics.py" in third.reason
