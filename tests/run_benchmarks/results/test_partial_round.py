"""A round that ended early keeps what was measured of it, marked as partial wherever it is shown."""

from pathlib import Path
from typing import Any

import pytest

from protocol.outcome import Preformatted
from protocol.perflog import Event
from run_benchmarks.report.html import write_report
from run_benchmarks.results.judge import judge
from run_benchmarks.results.outcomes import console_blocks, measured_round
from run_benchmarks.results.partial import PartialRecord
from run_benchmarks.results.records import Verdict
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import STEP, node_exit, outcome, rank_failure, run_record

PARTIAL = {"partial": True, "completed_steps": 1, "total_steps": 4, "max_busbw_GBps": 1.5, "answer": "partial: 1 of 4"}


def test_a_round_that_was_stopped_keeps_its_steps_and_figures(tmp_path: Path) -> None:
    node = outcome(tmp_path, finished=PARTIAL, exit_code=143, record=node_exit(143), stopped=True)
    judgement = judge([node], ended_early=(Verdict.ABORTED, "interrupted by SIGINT"))
    assert judgement.verdict is Verdict.ABORTED
    assert judgement.partial == PartialRecord(completed_steps=1, total_steps=None)
    assert judgement.metrics == PARTIAL and judgement.steps == [STEP]


def test_a_rank_0_that_was_killed_leaves_its_steps(tmp_path: Path) -> None:
    record = node_exit(137, [rank_failure(0, 5, exit_code=None, signal="SIGKILL")])
    judgement = judge([outcome(tmp_path, exit_code=137, record=record, until=Event.STEP_END)], ended_early=None)
    assert judgement.verdict is Verdict.FAIL
    assert judgement.partial == PartialRecord(completed_steps=1, total_steps=None)


def test_a_round_that_measured_all_or_nothing_is_not_partial(tmp_path: Path) -> None:
    assert judge([outcome(tmp_path / "all")], ended_early=None).partial is None
    assert judge([outcome(tmp_path / "none", until=Event.STEP_BEGIN)], ended_early=None).partial is None


def test_a_partial_result_with_exit_code_0_is_no_pass(tmp_path: Path) -> None:
    judgement = judge([outcome(tmp_path, finished=PARTIAL)], ended_early=None)
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, "rank 0: partial: 1 of 4")


@pytest.mark.parametrize(
    ("steps", "total", "said"), [(3, 8, "3 of 8 steps"), (1, None, "1 of an unknown number of steps")]
)
def test_it_is_told_in_words(steps: int, total: int | None, said: str) -> None:
    assert str(PartialRecord(completed_steps=steps, total_steps=total)) == said


def test_console_and_report_mark_it(tmp_path: Path) -> None:
    step: dict[str, Any] = {
        **STEP,
        "pattern": "all",
        "collective": "all_reduce",
        "world_size": 2,
        "convention": "c",
        "count": 256,
        "dtype": "float32",
        "in_place": True,
        "wrong_elements": 0,
    }
    partial = PartialRecord(completed_steps=1, total_steps=4)
    record = a_round([step]).model_copy(update={"verdict": Verdict.ABORTED, "partial": partial})
    assert measured_round(record).partial == "1 of 4 steps"
    (block,) = console_blocks(case(), record)
    assert isinstance(block, Preformatted) and "PAIRS round 1 (partial: 1 of 4 steps)" in block.text
    run = run_record({}).model_copy(update={"cases": [case()]})
    page = write_report(tmp_path, run, [record]).read_text()
    assert "Partial result: 1 of 4 steps were measured" in page
