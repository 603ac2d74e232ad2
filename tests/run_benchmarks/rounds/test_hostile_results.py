"""Whatever a host leaves of a round is that round's verdict: records, tables and the report come all the same."""

import contextlib
import dataclasses
import io
import json
import math
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.baseline_file import BaselineError
from protocol.default_outcome import compare
from protocol.perflog import Event
from run_benchmarks.commands.outcome_console import show_outcomes
from run_benchmarks.console.terminal import print_table
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.report.html import write_report
from run_benchmarks.results.metrics import combine
from run_benchmarks.results.monitor_readings import read_sys_info
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.outcomes import assess
from run_benchmarks.results.records import CollectedFile, RoundRecord, RunRecord, Verdict, write_record
from run_benchmarks.results.standards import case_baseline
from run_benchmarks.results.summary import case_rows
from run_benchmarks.rounds import recording, time_budget
from run_benchmarks.rounds.recording import RoundFacts, write_round
from run_benchmarks.rounds.stall import parse_looks
from run_benchmarks.session.preparation import PreparedRun, prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.session.schedule import RoundScheduler
from run_benchmarks.session.session import Session
from run_benchmarks.settings.settings import load_settings
from run_benchmarks.state.context import RunningNode
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import RoundEnded
from tests.run_benchmarks.conftest import CLUSTER, TEST, Load
from tests.run_benchmarks.results.hostile import VALUES, log_with, logs, monitors, node_exits, rank_states
from tests.run_benchmarks.results.rounds import STEP, SUBMIT, outcome, round_record, run_record
from tests.run_benchmarks.rounds.contexts import context
from tests.tiers import NIGHTLY
from training.benchmarks.network.baseline import read_run

MAX_RECORD_BYTES = 8 << 20
FACTS = RoundFacts(index=1, attempt=1, started_ms=5, phase_seconds={"run": 1.0}, master_port=29500, ended_early=None)


class Facts(dict[str, Any]):
    """The facts of a host, which can be referenced weakly."""


class WholePath:
    """The whole way from a node's files to a report, again and again in one folder."""

    def __init__(self, prepared: PreparedRun, folder: Path) -> None:
        self._folder, self._case = folder, as_logged(prepared.plan.cases[0])
        self._context = context(prepared, folder)

    def go(self, files: Mapping[str, bytes]) -> RoundRecord:
        """Judge a round with these files in the place of sound ones; check all that is written of it."""
        place = self._folder / "ONE" / "round1"
        shutil.rmtree(place, ignore_errors=True)
        found = outcome(place)
        for name, data in files.items():
            (found.folder / name).write_bytes(data)
        record = write_round(place / "round.json", self._context, self._case, [node(self._case, found)], FACTS)
        assert strict((place / "round.json").read_bytes())["verdict"] == record.verdict
        assert RoundRecord.model_validate_json((place / "round.json").read_bytes()) == record
        return record

    def of_a_run(self, records: Sequence[RoundRecord]) -> None:
        """Make a run of these rounds, and check all that is written of it."""
        metrics, spread = combine([record.metrics for record in records])
        run = run_record(metrics, spread=spread, config={"slow_percent": 15.0})
        write_record(self._folder / "run.json", run)
        assert RunRecord.model_validate_json((self._folder / "run.json").read_bytes()) == run
        strict((self._folder / "run.json").read_bytes())
        write_report(self._folder, run, list(records)).read_text(encoding="utf-8")
        print_table("", ("",) * 6, case_rows(run), file=io.StringIO())
        show_outcomes(run, self._folder)
        said = assess(run.cases[0], records)
        assert all(isinstance(sentence, str) for sentence in (*said.sentences, *said.warnings))
        found = dict(case_baseline("run1", self._case, records).entries)
        assert all(math.isfinite(change.percent) for change in compare(found, found, 10.0))
        with contextlib.suppress(BaselineError):
            read_run(self._folder)


def strict(data: bytes) -> dict[str, Any]:
    """The JSON of a record, which is UTF-8, small, and has no NaN."""
    assert len(data) < MAX_RECORD_BYTES
    found = json.loads(data.decode("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    return dict(found)


def as_logged(case: CasePlan) -> CasePlan:
    """The case with the case.json that the logs of these tests name."""
    return case.model_copy(update={"case_sha256": SUBMIT.case_sha256})


def node(case: CasePlan, found: NodeOutcome) -> RunningNode:
    return RunningNode(plan=case.rounds[0].nodes[0], host=LocalHost("localhost"), outcome=found)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> WholePath:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "cluster_conf.py").write_text(CLUSTER)
    (folder / "test_conf.py").write_text(TEST)
    return WholePath(prepare(load_settings(folder / "cluster_conf.py", folder / "test_conf.py"), new_run_id()), folder)


@pytest.mark.parametrize("name", VALUES)
def test_no_log_ends_the_run(path: WholePath, name: str) -> None:
    """By day all rounds of a value are those of one run."""
    records = []
    for what, log in logs().items():
        if what.startswith(f"{name} as "):
            records.append(path.go({"rank0.out.log": log}))
            assert records[-1].verdict in (Verdict.PASS, Verdict.FAIL), what
            if NIGHTLY:
                path.of_a_run([records[-1]] * 2)
    path.of_a_run(records)


@pytest.mark.nightly
def test_no_node_exit_ends_the_run(path: WholePath) -> None:
    path.of_a_run([path.go({"node_exit.json": data}) for data in node_exits().values()])


def test_no_state_of_ranks_ends_the_run(path: WholePath) -> None:
    for data in rank_states().values():
        path.go(
            {"rank_states.json": data, "rank0.out.log": log_with(Event.FINISHED, "null").rpartition(b"[PerfLog]")[0]}
        )
        for look in parse_looks(f"{'9' * 5000} rank0.out.log\n\n{data.decode(errors='replace')}", [0, 1]).values():
            assert look.log_bytes is None and abs(look.silent_seconds) < 1e17


@pytest.mark.nightly
def test_no_monitor_ends_the_run(path: WholePath) -> None:
    path.of_a_run([path.go({"monitor.jsonl": data, "sys_info.json": data}) for data in monitors().values()])


def test_a_sound_round_passes(path: WholePath) -> None:
    record = path.go({})
    assert (record.verdict, record.warnings) == (Verdict.PASS, []) and record.nodes[0].monitor is not None


@settings(max_examples=25 if NIGHTLY else 8, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "rank0.out.log": st.lists(st.sampled_from(sorted(logs().values())) | st.binary(max_size=50)).map(b"".join),
            "node_exit.json": st.sampled_from(sorted(node_exits().values())) | st.binary(max_size=50),
            "monitor.jsonl": st.lists(st.sampled_from(sorted(monitors().values()))).map(b"".join),
        },
    )
)
def test_no_combination_ends_the_run(path: WholePath, files: dict[str, bytes]) -> None:
    path.of_a_run([path.go(files)])


SIZES: list[tuple[Sequence[int], float]] = [((), 120), ((0,), 120), ((2_000_000,), 121), ((10**9, 3 * 10**9), 2120)]


@pytest.mark.parametrize(("sizes", "seconds"), SIZES)
def test_the_budget_is_linear_in_what_was_collected(
    path: WholePath, tmp_path: Path, sizes: Sequence[int], seconds: float
) -> None:
    """120 s, and 1 s for each 2 MB, over all nodes."""
    nodes = []
    for number, size in enumerate(sizes):
        found = outcome(tmp_path, f"node{number}")
        found.files = {"rank0.out.log": CollectedFile(size=size, sha256="0" * 64)}
        nodes.append(node(path._case, found))
    assert time_budget.budget_of(nodes) == pytest.approx(seconds)


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside another case"])
def test_judging_has_a_budget_of_time(is_beside: bool, path: WholePath, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where somebody takes its end for a broken record and goes on; nothing of it comes later."""

    def spin() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            pass

    def busy(_: NodeOutcome) -> None:
        with contextlib.suppress(Exception):
            spin()
        spin()

    monkeypatch.setattr(NodeOutcome, "exit_record", busy)
    monkeypatch.setattr(time_budget, "LEAST_SECONDS", 0.2)
    monkeypatch.setattr(time_budget, "AGAIN_SECONDS", 0.1)
    timer, handler = signal.getitimer(signal.ITIMER_REAL), signal.getsignal(signal.SIGALRM)

    def judged() -> RoundRecord:
        record = path.go({})
        monkeypatch.undo()
        time.sleep(0.3)
        assert path.go({}).verdict is Verdict.PASS
        return record

    with ThreadPoolExecutor(1) as pool:
        record = pool.submit(judged).result() if is_beside else judged()
    assert record.verdict is Verdict.FAIL
    assert "localhost cannot be judged: TimeBudgetError: judging took longer than" in record.reason
    assert bool(signal.getitimer(signal.ITIMER_REAL)[0]) == bool(timer[0]), "a test's own limit goes on"
    assert signal.getsignal(signal.SIGALRM) == handler


@pytest.mark.parametrize("again", [pytest.param(0.05, marks=pytest.mark.nightly), 0.001])
def test_an_end_comes_only_where_no_lock_is_held(again: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never in what begins or ends the budget, nor in threading or logging, whose locks it left held.

    A thread that is busy beside it makes the others wait at any place.
    """
    monkeypatch.setattr(time_budget, "AGAIN_SECONDS", again)
    strange: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: strange.append(args.exc_value))
    ended, is_done = [0], threading.Event()

    def busy() -> None:
        while not is_done.is_set():
            pass

    def judged() -> None:
        for number in range(300):
            try:
                with time_budget.TimeBudget(0.005):
                    until = time.monotonic() + 0.0038 + 7e-6 * number
                    while time.monotonic() < until:
                        pass
            except time_budget.TimeBudgetError:
                ended[0] += 1
        is_done.set()

    workers = [threading.Thread(target=target, daemon=True) for target in (busy, judged)]
    for worker in workers:
        worker.start()
    is_in_time = is_done.wait(60)
    is_done.set()
    assert is_in_time and strange == []
    assert 0 < ended[0] < 300


def test_the_judge_has_the_facts_of_one_host_in_memory_at_a_time(
    path: WholePath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may be 4 MiB of JSON, whose objects take 20 times as much."""
    read_ones: list[weakref.ref[Facts]] = []
    alive: list[int] = []

    def read(folder: Path) -> Facts:
        alive.append(sum(each() is not None for each in read_ones))
        read_ones.append(weakref.ref(found := Facts(read_sys_info(folder))))
        return found

    monkeypatch.setattr(recording, "read_sys_info", read)
    outcomes = [outcome(tmp_path, f"node{rank}", rank) for rank in range(6)]
    nodes = [RunningNode(plan=each.node, host=LocalHost("localhost"), outcome=each) for each in outcomes]
    recording.round_record(path._context, path._case, nodes, FACTS)
    assert len(alive) == 12 and max(alive) <= 1, "the one before may be left only as the next one is read"


def test_what_the_judge_breaks_at_is_the_round_s_verdict_and_names_the_host(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(found: NodeOutcome) -> None:
        if found.node.host == "node2":
            raise RecursionError("too deep")

    monkeypatch.setattr(NodeOutcome, "exit_record", breaks)
    prepared = prepare(load(), new_run_id())
    case = as_logged(prepared.plan.cases[0])
    outcomes = [outcome(tmp_path, host, rank) for rank, host in enumerate(("node1", "node2"))]
    nodes = [RunningNode(plan=each.node, host=LocalHost("localhost"), outcome=each) for each in outcomes]
    nodes[0].warnings.append("node1: \ud800")
    write_round(tmp_path / "round.json", context(prepared, tmp_path), case, nodes, FACTS)
    record = RoundRecord.model_validate_json((tmp_path / "round.json").read_bytes())
    # The warning of node1 cannot be written, so that it is one of the two.
    assert record.reason == "the results of node1, node2 cannot be judged: RecursionError: too deep"
    assert (record.verdict, record.warnings, record.metrics) == (Verdict.FAIL, ["node1: ?"], {})
    assert [each.host for each in record.nodes] == ["node1", "node2"]
    nodes[0].warnings.clear()
    early = dataclasses.replace(FACTS, ended_early=(Verdict.ABORTED, "SIGINT"))
    record = write_round(tmp_path / "round.json", context(prepared, tmp_path), case, nodes, early)
    assert record.verdict is Verdict.ABORTED
    assert record.reason == "SIGINT; the results of node2 cannot be judged: RecursionError: too deep"


def test_a_full_disk_is_no_verdict(load: Load, tmp_path: Path) -> None:
    prepared = prepare(load(), new_run_id())
    with pytest.raises(OSError, match="No such file"):
        write_round(tmp_path / "none" / "round.json", context(prepared, tmp_path), prepared.plan.cases[0], [], FACTS)


POISON = ("deep list", "surrogate", "5000 digits", "10 to the 400", "beyond a float", "largest float", "same key twice")


def test_a_run_of_poisoned_rounds_goes_on_to_the_next_case(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole session around what hosts sent: each round has its verdict, the next case passes, all is written."""

    def attempt(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: object) -> RoundRecord:
        place = tmp_path / "result" / case.folder / f"round{index}"
        found = outcome(place)
        if case.name == "ONE":
            poison = VALUES[POISON[index - 1]]
            for name, files in (
                ("rank0.out.log", logs()),
                ("node_exit.json", node_exits()),
                ("monitor.jsonl", monitors()),
            ):
                sent = [data for what, data in files.items() if what.startswith(f"{POISON[index - 1]} as ")]
                (found.folder / name).write_bytes(sent[0])
            assert poison.encode() in (found.folder / "rank0.out.log").read_bytes()
        facts = dataclasses.replace(FACTS, index=index)
        record = write_round(
            place / "round.json", context(prepared, tmp_path), as_logged(case), [node(case, found)], facts
        )
        ended = RoundEnded(case=case.name, round=index, attempt=number, verdict=record.verdict, reason=record.reason)
        self._journal.append(ended)
        self.past = self._journal.read()
        return record

    monkeypatch.setattr(RoundScheduler, "_attempt", attempt)
    folders = (
        f"FLAGPERF_PATH_HOST = {str(tmp_path / 'deploy')!r}\nFLAGPERF_LOG_PATH_HOST = {str(tmp_path / 'logs')!r}\n"
    )
    test = TEST.replace('["ONE"]', '["ONE", "TWO"]') + f"ONE['repeat'] = {len(POISON)}\nTWO = ONE | {{'repeat': 1}}\n"
    prepared = prepare(load(test + folders), new_run_id())
    (tmp_path / "result").mkdir()
    with Interruption("clean") as interruption:
        Session(prepared, tmp_path / "result", interruption, ["run.py"]).run()
    record = RunRecord.model_validate_json((tmp_path / "result" / "run.json").read_bytes())
    first, second = record.cases
    assert len(first.rounds) == len(POISON) and first.verdict is Verdict.FAIL
    assert (second.verdict, second.rounds) == (Verdict.PASS, [Verdict.PASS])
    assert (tmp_path / "result" / "report.html").stat().st_size > 1000


def test_measurements_that_cannot_be_combined_are_the_case_s_verdict(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(rounds: object) -> dict[str, Any]:
        raise OverflowError("too large")

    monkeypatch.setattr("run_benchmarks.session.run_record.combine", breaks)
    (tmp_path / "result").mkdir()
    with Interruption("clean") as interruption:
        session = Session(prepare(load(), new_run_id()), tmp_path / "result", interruption, ["run.py"])
        case = session._recorder.record().cases[0]
    assert case.verdict is Verdict.FAIL
    assert case.reason == "its measurements cannot be combined: OverflowError: too large"


class Unshowable:
    def __str__(self) -> str:
        raise RecursionError("too deep")


def test_a_report_that_cannot_show_a_measurement_comes_without_it(tmp_path: Path) -> None:
    found = round_record(tmp_path / "a")
    poisoned = found.model_copy(update={"steps": [{**STEP, "time_us": {"p50": Unshowable(), "p95": 1}}]})
    page = write_report(tmp_path, run_record({"busbw_GBps": 1.5}), [poisoned]).read_text(encoding="utf-8")
    assert "its measurements cannot be shown: round.json has them" in page
    assert "its measurements cannot be shown" not in write_report(tmp_path, run_record({}), [found]).read_text()


def test_means_beyond_a_float_are_the_values() -> None:
    largest = 1.7976931348623157e308
    assert combine([{"a": largest}, {"a": largest / 2}])[0] == {"a": [largest, largest / 2]}
