"""An outcome that fails on what hosts sent costs the part that was asked for, and is told in its place."""

from typing import NoReturn

import pytest

from protocol.outcome import Paragraph
from run_benchmarks.results.outcomes import assess, console_blocks, report_blocks
from tests.run_benchmarks.results.network_rounds import a_round, case
from training.benchmarks.network.pytorch.outcome import OUTCOME

SAID = "its measurements cannot be analysed: KeyError: 'points'"


@pytest.fixture(autouse=True)
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every statement of the network benchmark fails."""

    def fail(*_: object) -> NoReturn:
        raise KeyError("points")

    for part in ("assess", "console", "report"):
        monkeypatch.setattr(OUTCOME, part, fail)


def test_the_verdict_has_a_warning() -> None:
    assert assess(case(), [a_round([])]).warnings == (SAID,)


def test_the_console_and_the_report_have_a_sentence() -> None:
    assert console_blocks(case(), a_round([])) == (Paragraph(text=f"PAIRS round 1: {SAID}"),)
    assert report_blocks(case(), a_round([])) == (Paragraph(text=SAID),)
