"""How an operation is timed: every iteration on its own, all ranks starting together, the slowest rank counting."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from training.benchmarks.driver.process_group import ProcessGroup
from training.benchmarks.network.pytorch.collectives import Collective

MICROSECONDS = 1e6


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeStatistics:
    """Times of one operation over the iterations, microseconds (percentiles interpolate linearly; cv = std / mean)."""

    min: float
    p50: float
    p95: float
    p99: float
    max: float
    mean: float
    cv: float

    def rounded(self) -> dict[str, float]:
        """As written to PerfLog: to a nanosecond."""
        return {name: round(value, 3) for name, value in asdict(self).items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One size: times over all ranks and, where checked, each rank's number of wrong elements (all iterations)."""

    time_us: TimeStatistics
    wrong_elements: list[int] | None

    @property
    def verdict(self) -> str:
        """pass, fail or not_checked."""
        if self.wrong_elements is None:
            return "not_checked"
        return "fail" if any(self.wrong_elements) else "pass"


def measure(collective: Collective, group: ProcessGroup, *, warmup: int, iterations: int, check: bool) -> Measurement:
    """Time the prepared collective: `warmup` untimed iterations, then `iterations` timed ones.

    Before each iteration the buffers are refilled and all ranks meet in a barrier; with `check` all received data is
    compared after it. An iteration's time is that of the slowest rank.
    """
    elapsed_s = _cuda_time if group.device.type == "cuda" else _cpu_time
    times_s = np.empty(iterations)
    wrong = torch.zeros(1, dtype=torch.int64, device=group.device)
    for iteration in range(-warmup, iterations):
        collective.refill()
        seconds = elapsed_s(collective.run)
        if iteration >= 0:
            times_s[iteration] = seconds
        if check:
            wrong += collective.wrong_elements()
    return Measurement(
        time_us=statistics(_slowest_rank(times_s, group) * MICROSECONDS),
        wrong_elements=_of_every_rank(wrong, group) if check else None,
    )


def statistics(times_us: NDArray[np.float64]) -> TimeStatistics:
    """Statistics of the 1-D array of times, microseconds."""
    p50, p95, p99 = np.percentile(times_us, [50, 95, 99])
    mean = float(times_us.mean())
    return TimeStatistics(
        min=float(times_us.min()),
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        max=float(times_us.max()),
        mean=mean,
        cv=float(times_us.std()) / mean,
    )


def _cpu_time(operation: Callable[[], None]) -> float:
    dist.barrier()
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def _cuda_time(operation: Callable[[], None]) -> float:
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    operation()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3  # elapsed_time is in milliseconds


def _slowest_rank(times_s: NDArray[np.float64], group: ProcessGroup) -> NDArray[np.float64]:
    times = torch.from_numpy(times_s).to(group.device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.cpu().numpy()


def _of_every_rank(count: torch.Tensor, group: ProcessGroup) -> list[int]:
    counts = [torch.zeros_like(count) for _ in range(group.placement.world_size)]
    dist.all_gather(counts, count)
    return [int(each) for each in counts]
