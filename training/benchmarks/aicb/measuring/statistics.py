"""The statistics of measured samples, in ns. Needs no torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

OUTLIER = 3
"""A sample of more than so many times the shortest does not count, as in AICB's own AIOB."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of one call in ns. count: samples used; dropped: those of more than three times the shortest.

    warm_up: calls before; settled: whether the last five of them were within the wanted spread, a fraction of their
    median; without that the numbers say less.
    """

    minimum: float
    average: float
    p50: float
    maximum: float
    count: int
    dropped: int
    warm_up: int
    settled: bool
    spread: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    def scaled(self, factor: float) -> "Samples":
        """All times multiplied by `factor`."""
        times = {name: getattr(self, name) * factor for name in ("minimum", "average", "p50", "maximum")}
        return Samples(**{**asdict(self), **times})

    @property
    def half_range(self) -> float:
        """Half the range of the samples, as a fraction of their average."""
        return (self.maximum - self.minimum) / 2 / self.average if self.average else 0.0


def spread_of(times: Sequence[float]) -> float:
    """Range of samples as a fraction of their median."""
    return (max(times) - min(times)) / max(median(times), 1e-9)


def summarise(times: Sequence[float], *, warm_up: int, settled: bool, spread: float) -> Samples:
    """The statistics of samples in ns. spread: a fraction, of the last calls of the warm-up."""
    kept = [time for time in times if time <= OUTLIER * min(times)]
    return Samples(
        minimum=min(kept),
        average=fmean(kept),
        p50=median(kept),
        maximum=max(kept),
        count=len(kept),
        dropped=len(times) - len(kept),
        warm_up=warm_up,
        settled=settled,
        spread=spread,
    )


def total(samples: Sequence[Samples]) -> Samples:
    """One after another: sums of the times, settled where all are."""
    return Samples(
        minimum=sum(each.minimum for each in samples),
        average=sum(each.average for each in samples),
        p50=sum(each.p50 for each in samples),
        maximum=sum(each.maximum for each in samples),
        count=min((each.count for each in samples), default=0),
        dropped=sum(each.dropped for each in samples),
        warm_up=sum(each.warm_up for each in samples),
        settled=all(each.settled for each in samples),
        spread=max((each.spread for each in samples), default=0.0),
    )
