"""--save-baseline writes what a run that passed measured; what it does not write, it says."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.commands import starting
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import InputProblems
from run_benchmarks.results.records import RunRecord, Verdict
from run_benchmarks.session.learning import save_baseline
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.session import Session
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import BaselineTarget
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.network_rounds import a_round
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.pytorch.outcome import OUTCOME


@pytest.fixture
def session(load: Load, tmp_path: Path) -> Session:
    """A session of two cases, of which only ONE has measurements."""
    settings = load(TEST.replace('["ONE"]', '["ONE", "TWO"]') + "TWO = ONE\n")
    found = Session(prepare(settings, "run1"), tmp_path, Interruption(""), [])
    measured = steps("pairs", 4, slowest_member({}), noise=0.01, seed=1)
    found._state.rounds["ONE"] = [a_round([{**step, "collective": "all_reduce"} for step in measured])]
    return found


@pytest.fixture
def record() -> RunRecord:
    """The record of a run with both cases, which passed."""
    one = run_record({})
    return one.model_copy(update={"cases": [*one.cases, one.cases[0].model_copy(update={"name": "TWO"})]})


def test_a_case_without_measurements_is_named(
    session: Session, record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(LOG, "warning", lambda text, *words: said.append(text % words))
    file = tmp_path / "good.json"
    assert save_baseline(session._recorder, record, file) == ""
    assert [case["case"] for case in json.loads(file.read_text())["cases"]] == ["ONE"]
    assert said == [f"Baseline: TWO is not in {file}: it measured nothing that a baseline keeps"]


def test_a_run_that_failed_leaves_no_baseline(session: Session, record: RunRecord, tmp_path: Path) -> None:
    file = tmp_path / "good.json"
    failed = record.model_copy(update={"exit_code": 1, "verdict": Verdict.FAIL})
    said = save_baseline(session._recorder, failed, file)
    assert not file.exists()
    assert "good.json: not written: the run ended with verdict fail" in said


def test_an_outcome_that_fails_leaves_no_baseline(
    session: Session, record: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def references(case: object, rounds: Sequence[object]) -> Mapping[str, Any]:
        raise KeyError("points")

    monkeypatch.setattr(OUTCOME, "references", references)
    file = tmp_path / "good.json"
    said = save_baseline(session._recorder, record, file)
    assert not file.exists()
    assert "good.json: not written: its measurements cannot be analysed: KeyError: 'points'" in said


def test_a_resume_replaces_only_the_baseline_that_its_own_run_saved(
    session: Session, record: RunRecord, tmp_path: Path
) -> None:
    """A controller that is killed between saving its baseline and ending its journal must not block the resume."""
    target = BaselineTarget(file=tmp_path / "good.json")
    assert save_baseline(session._recorder, record, target.file) == ""
    starting.refuse_target(target, "run1")
    for other in ("run2", ""):
        with pytest.raises(InputProblems, match=r"good\.json: is there; give --force"):
            starting.refuse_target(target, other)
