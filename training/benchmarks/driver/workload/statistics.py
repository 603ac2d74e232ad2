"""Describes measured times: percentiles over iterations, and the slowest rank's of each iteration."""

from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from training.benchmarks.driver.workload.team import Team

MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeStatistics:
    """Times of one operation over the iterations, in microseconds (percentiles are interpolated linearly; cv = std /
    mean).
    """

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


def slowest_rank(times_s: NDArray[np.float64], team: Team) -> NDArray[np.float64]:
    """The longest time among the ranks for each iteration; `times_s`, seconds, and the result have shape
    (iterations,).
    """
    times = torch.from_numpy(times_s).to(team.device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX, group=team.handle)
    return times.cpu().numpy()


def of_every_rank(count: torch.Tensor, team: Team) -> list[int]:
    """Each rank's `count`, shape (1,), int64 on its device, on every rank."""
    counts = [torch.zeros_like(count) for _ in team.ranks]
    dist.all_gather(counts, count, group=team.handle)
    return [int(each) for each in counts]
