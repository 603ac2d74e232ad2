"""Before a round, what an earlier one left running on its hosts is ended, or the host is left out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.errors import LinkLostError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.records import RoundRecord, Verdict
from run_benchmarks.session import schedule
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.schedule import RoundScheduler, TooFewHostsError
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal, JournalState, RunStarted
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.rounds import round_record

STARTED = RunStarted(run_id="run1", pid=1, plan_digest="d", cluster_conf="c", test_conf="t", rounds={"ONE": 1})


class Task:
    """Runs until it is ended, which fails `stubborn` times."""

    def __init__(self, stubborn: int) -> None:
        self.runs, self._stubborn = True, stubborn

    def finish(self, grace: float) -> str:
        self._stubborn -= 1
        if self._stubborn >= 0:
            raise LinkLostError("localhost", "its engine does not answer")
        self.runs = False
        return ""


class Rounds:
    """In Round's place: the first attempt loses its host and leaves a task there, the second passes."""

    def __init__(self, task: Task, folder: Path) -> None:
        self._task, self._folder = task, folder
        self.task_ran: list[bool] = []

    def __call__(self, *_: Any, **__: Any) -> Rounds:
        return self

    def run(self) -> RoundRecord:
        self.task_ran.append(self._task.runs)
        verdict = Verdict.PASS if len(self.task_ran) > 1 else Verdict.FAIL
        return round_record(self._folder / str(len(self.task_ran)), verdict=verdict)

    def lost_hosts(self) -> dict[str, str]:
        return {"localhost": "localhost: out of reach"} if len(self.task_ran) == 1 else {}

    owed: tuple[str, ...] = ()

    @property
    def left(self) -> dict[str, list[Task]]:
        return {"localhost": [self._task]} if len(self.task_ran) == 1 else {}


@pytest.fixture
def attempts(load: Load, tmp_path: Path) -> Iterator[RoundRecord]:
    prepared = prepare(load(f"{TEST}ONE['retries'] = 1\n"), "run20261121191924")
    found = RoundScheduler(
        prepared,
        {"localhost": LocalHost("localhost")},
        {"localhost": HostReport(host="localhost")},
        tmp_path,
        Interruption("clean"),
        journal=Journal(tmp_path),
        past=JournalState(started=STARTED, begun_ms=0),
    )
    return found.attempts(prepared.plan.cases[0], 1)


def test_a_host_that_comes_back_is_rid_of_what_runs_there(
    attempts: Iterator[RoundRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(Task(stubborn=0), tmp_path)
    monkeypatch.setattr(schedule, "RoundRunner", rounds)
    assert [record.verdict for record in attempts] == [Verdict.FAIL, Verdict.PASS]
    assert rounds.task_ran == [True, False]


def test_a_lost_host_that_cannot_be_rid_of_it_is_not_used(
    attempts: Iterator[RoundRecord], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = Rounds(Task(stubborn=1), tmp_path)
    monkeypatch.setattr(schedule, "RoundRunner", rounds)
    assert next(attempts).verdict is Verdict.FAIL
    with pytest.raises(TooFewHostsError, match="out of reach"):
        next(attempts)
    assert rounds.task_ran == [True]
