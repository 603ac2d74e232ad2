"""One row of docs/data/performance.csv: what every `measure` of this package returns."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Row:
    """A measured figure beside the baseline taken in the same run on the same machine.

    `ratio` is measured / baseline in the same unit; `goal` says in words what was aimed at; `met` whether it was met.
    """

    what: str
    measured: str
    baseline: str
    ratio: float
    goal: str
    met: bool
