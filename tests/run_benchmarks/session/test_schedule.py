"""Before a round, what an earlier one left running on its hosts is ended, or the host is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import HostError, LinkLostError, TaskError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.records import FirstFailure, RoundRecord, Verdict
from run_benchmarks.runtimes import process
from run_benchmarks.session import schedule
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_record import RunState
from run_benchmarks.session.schedule import RoundScheduler, TooFewHostsError
from run_benchmarks.state.context import RunContext
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal, JournalState, RunStarted
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.rounds import round_record

LINK = LinkLostError("localhost", "the connection is gone")
REFUSED = TaskError("localhost", "its engine refuses")
STARTED = RunStarted(run_id="run1", pid=1, plan_digest="d", cluster_conf="c", test_conf="t", rounds={"ONE": 1})


FIRST_FAILS = ((Verdict.FAIL, False), (Verdict.PASS, False))


class Task:
    """Runs until it is ended, which fails with these errors, one a call, before it succeeds."""

    def __init__(self, *errors: HostError) -> None:
        self.runs, self._errors = True, list(errors)

    def finish(self, grace: float) -> str:
        if self._errors:
            raise self._errors.pop(0)
        self.runs = False
        return ""


class Rounds:
    """In Round's place: the first attempt loses its host and leaves a task there, the second passes."""

    def __init__(self, task: Task, folder: Path, verdicts: Sequence[tuple[Verdict, bool]] = FIRST_FAILS) -> None:
        self._task, self._folder, self._verdicts = task, folder, verdicts
        self.task_ran: list[bool] = []

    def __call__(self, *_: Any, **__: Any) -> Rounds:
        return self

    def run(self) -> RoundRecord:
        self.task_ran.append(self._task.runs)
        number = len(self.task_ran)
        verdict, lost = self._verdicts[number - 1]
        failure = FirstFailure(host="h", rank=None, exit_code=1, signal=None, message="m", log_tail="", lost=lost)
        return round_record(self._folder / str(number), verdict=verdict, attempt=number, first_failure=failure)

    def lost_hosts(self) -> dict[str, str]:
        return {"localhost": "localhost: out of reach"} if len(self.task_ran) == 1 else {}

    owed: tuple[str, ...] = ()

    @property
    def left(self) -> dict[str, list[Task]]:
        return {"localhost": [self._task]} if len(self.task_ran) == 1 else {}


@pytest.fixture
def attempts(load: Load, tmp_path: Path) -> Iterator[RoundRecord]:
    return attempts_of(load, tmp_path, "ONE['retries'] = 1\n", JournalState(started=STARTED, begun_ms=0))


def attempts_of(load: Load, tmp_path: Path, settings: str, past: JournalState) -> Iterator[RoundRecord]:
    """The attempts at the first round of a case whose files say this, after what an earlier controller did."""
    prepared = prepare(load(f"{TEST}{settings}"), "run20261121191924")
    found = RoundScheduler(
        prepared,
        {"localhost": LocalHost("localhost")},
        RunState(started_ms=0, rounds={}, reports={"localhost": HostReport(host="localhost")}),
        tmp_path,
        Interruption("clean"),
        journal=Journal(tmp_path),
        past=past,
    )
    return found.attempts(prepared.plan.cases[0], 1)


@pytest.mark.parametrize("errors", [(), (LINK,)], ids=["at once", "after an outage"])
def test_a_host_that_comes_back_is_rid_of_what_runs_there(
    attempts: Iterator[RoundRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, errors: tuple[HostError, ...]
) -> None:
    rounds = Rounds(Task(*errors), tmp_path)
    monkeypatch.setattr(schedule, "RoundRunner", rounds)
    assert [record.verdict for record in attempts] == [Verdict.FAIL, Verdict.PASS]
    assert rounds.task_ran == [True, False]


@pytest.mark.parametrize("end", [lambda run: run.end("SIGINT"), lambda run: run.end_within(0.0, "RUN_TIME_LIMIT")])
def test_no_link_is_waited_for_as_long_once_the_run_is_to_end(
    attempts: Iterator[RoundRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Interruption], None],
) -> None:
    contexts: list[RunContext] = []

    class Seen(Rounds):
        def __call__(self, context: RunContext, *_: Any, **__: Any) -> Rounds:
            contexts.append(context)
            return self

    monkeypatch.setattr(schedule, "RoundRunner", Seen(Task(), tmp_path))
    next(attempts)
    (context,) = contexts
    assert not context.collect_limits.is_urgent()
    end(context.interruption)
    assert context.collect_limits.is_urgent()


def test_a_lost_host_that_cannot_be_rid_of_it_is_not_used(
    attempts: Iterator[RoundRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(Task(REFUSED), tmp_path)
    monkeypatch.setattr(schedule, "RoundRunner", rounds)
    assert next(attempts).verdict is Verdict.FAIL
    with pytest.raises(TooFewHostsError, match="out of reach"):
        next(attempts)
    assert rounds.task_ran == [True]


def test_an_outage_while_a_resume_ends_what_ran_there_leaves_no_host_out(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    past, answers = JournalState(started=STARTED, begun_ms=0), [LINK]
    past.attempts["ONE", 1] = 1

    def clean(*_: object) -> list[str]:
        if answers:
            raise answers.pop()
        return []

    monkeypatch.setattr(process.ProcessRuntime, "clean", clean)
    monkeypatch.setattr(schedule, "RoundRunner", Rounds(Task(), tmp_path, [PASSED]))
    assert [record.verdict for record in attempts_of(load, tmp_path, "", past)] == [Verdict.PASS]
    assert answers == []


LOST, FAILED, PASSED = (Verdict.FAIL, True), (Verdict.FAIL, False), (Verdict.PASS, False)


@pytest.mark.parametrize(
    ("retry_lost", "retries", "earlier", "seen"),
    [
        (0, 0, 0, [LOST]),
        (1, 0, 0, [LOST, PASSED]),
        (1, 0, 0, [LOST, LOST]),
        (1, 0, 1, [LOST]),
        (2, 0, 1, [LOST, FAILED]),
        (1, 1, 0, [LOST, FAILED, PASSED]),
        (1, 1, 0, [FAILED, LOST, FAILED]),
        (0, 1, 0, [LOST, PASSED]),
        (3, 0, 0, [FAILED]),
    ],
)
def test_what_the_infrastructure_lost_is_counted_apart(
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    retry_lost: int,
    retries: int,
    earlier: int,
    seen: list[tuple[Verdict, bool]],
) -> None:
    """Beyond RETRY_LOST a lost round counts as any other that failed; `earlier` were lost before a resume."""
    past = JournalState(started=STARTED, begun_ms=0)
    past.losses["ONE", 1] = earlier
    settings = f"RETRY_LOST = {retry_lost}\nONE['retries'] = {retries}\n"
    monkeypatch.setattr(schedule, "RoundRunner", Rounds(Task(), tmp_path, [*seen, PASSED]))
    found = [(record.verdict, record.is_lost) for record in attempts_of(load, tmp_path, settings, past)]
    assert found == seen
    text = (tmp_path / "journal.jsonl").read_text()
    assert text.count('"lost":true') == found.count(LOST)
