"""Defines the verdicts of rounds, cases and runs, and their order."""

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """How a round, case or run ended. A case has the worst verdict of its rounds, a run that of its cases.

    DEGRADED: everything was measured, and a part of the cluster was found to be worse than it should be.
    """

    PASS = "pass"
    DEGRADED = "degraded"
    SKIPPED = "skipped"
    FAIL = "fail"
    TIMEOUT = "timeout"
    ABORTED = "aborted"

    @property
    def is_failure(self) -> bool:
        """Whether a round ended badly by itself: not measured, nor left out, nor ended by a person or lost task."""
        return self in (Verdict.FAIL, Verdict.TIMEOUT)

    @property
    def is_measured(self) -> bool:
        """Whether all ranks finished with right data, so that the measurements count."""
        return self in (Verdict.PASS, Verdict.DEGRADED)


def with_remarks(verdict: Verdict, count: int) -> str:
    """A verdict together with the number of its remarks."""
    return f"{verdict.value}, with {count} remark{'s' * (count != 1)}" if count else verdict.value


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The worst of several verdicts in the order of Verdict; PASS for none."""
    order = list(Verdict)
    return max(verdicts, key=order.index, default=Verdict.PASS)
