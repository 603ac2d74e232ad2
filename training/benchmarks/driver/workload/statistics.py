"""Describes measured times: percentiles over iterations. Needs no torch."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeStatistics:
    """An operation's times over the iterations in us (percentiles by linear interpolation; cv = std / mean)."""

    min: float
    p25: float
    p50: float
    p75: float
    p95: float
    p99: float
    max: float
    mean: float
    cv: float

    def rounded(self) -> dict[str, float]:
        """The times for PerfLog, in microseconds, rounded to a nanosecond."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


def statistics(times_us: NDArray[np.float64]) -> TimeStatistics:
    """Statistics of `times_us`, microseconds, shape (iterations,)."""
    p25, p50, p75, p95, p99 = np.percentile(times_us, [25, 50, 75, 95, 99])
    mean = float(times_us.mean())
    return TimeStatistics(
        min=float(times_us.min()),
        p25=float(p25),
        p50=float(p50),
        p75=float(p75),
        p95=float(p95),
        p99=float(p99),
        max=float(times_us.max()),
        mean=mean,
        cv=float(times_us.std()) / mean,
    )
