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
    """One size: times over all ranks and, where checked, each rank's wrong elements of all checked iterations."""

    time_us: TimeStatistics
    wrong_elements: list[int] | None
    checked_iterations: int

    @property
    def verdict(self) -> str:
        """pass, fail or not_checked."""
        if self.wrong_elements is None:
            return "not_checked"
        return "fail" if any(self.wrong_elements) else "pass"


def measure(collective: Collective, group: ProcessGroup, *, warmup: int, iterations: int, check: bool) -> Measurement:
    """Time the prepared collective: `warmup` untimed iterations, then `iterations` timed ones.

    Before each iteration all ranks meet in a barrier; its time is that of the slowest rank. With `check` the data that
    arrives in every warm-up iteration and in one more after the timed ones is compared: between two timed iterations a
    comparison would leave caches and threads in another state than a training step finds them in.
    """
    elapsed_s = cuda_time if group.device.type == "cuda" else cpu_time
    wrong = torch.zeros(1, dtype=torch.int64, device=group.device)

    def untimed_iteration() -> None:
        collective.refill()
        elapsed_s(collective.run)
        if check:
            wrong.add_(collective.wrong_elements())

    for _ in range(warmup):
        untimed_iteration()
    times_s = np.empty(iterations)
    for iteration in range(iterations):
        if iteration % collective.runs_per_refill == 0:
            collective.refill()
        times_s[iteration] = elapsed_s(collective.run)
    if check:
        untimed_iteration()
    return Measurement(
        time_us=statistics(slowest_rank(times_s, group) * MICROSECONDS),
        wrong_elements=_of_every_rank(wrong, group) if check else None,
        checked_iterations=warmup + 1 if check else 0,
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


def cpu_time(operation: Callable[[], None]) -> float:
    """Seconds of one operation on the CPU, begun when all ranks have met."""
    dist.barrier()
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def cuda_time(operation: Callable[[], None]) -> float:
    """Seconds of one operation on the current CUDA stream, between events, begun when all ranks have met."""
    begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    dist.barrier()
    torch.cuda.synchronize()
    begin.record()
    operation()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3  # elapsed_time is in milliseconds


def slowest_rank(times_s: NDArray[np.float64], group: ProcessGroup) -> NDArray[np.float64]:
    """Of each iteration the longest time among the ranks; `times_s` holds this rank's, shape (iterations,)."""
    times = torch.from_numpy(times_s).to(group.device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.cpu().numpy()


def _of_every_rank(count: torch.Tensor, group: ProcessGroup) -> list[int]:
    counts = [torch.zeros_like(count) for _ in range(group.placement.world_size)]
    dist.all_gather(counts, count)
    return [int(each) for each in counts]
