"""Times an operation: every iteration on its own, all ranks starting together, the slowest rank counting."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import elapsed_ns, timed_event
from training.benchmarks.driver.workload.statistics import MICROSECONDS, TimeStatistics, statistics
from training.benchmarks.driver.workload.team import Team, of_every_rank, slowest_rank
from training.benchmarks.network.pytorch.message_config import MessageConfig
from training.benchmarks.network.pytorch.operations.collectives import Collective
from training.benchmarks.network.slow_parts.events import STALL_FACTOR, STALL_US

# Operations after a comparison that take longer than the others.
SETTLING = 2
# Of computes with operations; one more has computes alone.
ROWS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """One size: times over all ranks and, if checked, each rank's wrong elements in all checked iterations.

    `stalled_iterations` counts those that took far longer than the fastest, as after a lost packet. `last_rank_us` is
    the median of the shortest time among the ranks, that of the rank which came last: it waited for nobody. `added_us`
    is what an operation adds to a row of computes, see `added_time`.
    """

    time_us: TimeStatistics
    stalled_iterations: int
    wrong_elements: list[int] | None
    checked_iterations: int
    last_rank_us: float = 0.0
    added_us: float = 0.0

    @property
    def verdict(self) -> str:
        """pass, fail or not_checked."""
        if self.wrong_elements is None:
            return "not_checked"
        return "fail" if any(self.wrong_elements) else "pass"


def measure(
    collective: Collective, team: Team, config: MessageConfig, compute: Callable[[], None] | None = None
) -> Measurement:
    """Time the prepared collective as the settings say: `warmup_iterations` untimed ones, then `iterations` timed ones.

    Before each iteration the team's ranks meet in a barrier; its time is that of the slowest rank. With `check`, data
    received in every warm-up iteration except the last, and in one more after the timed ones, is compared; with a
    `check_interval` also in one more after every so many timed ones, and SETTLING untimed ones follow it.

    `aggregate` operations are timed as one, and the time is divided by it. `compute` runs on every rank between the
    barrier and the operation; then the ranks begin when their compute ends.

    Only the barrier lies between the last warm-up iteration and the timed ones: directly after a comparison or a refill
    an operation takes longer (the first two of 1 MiB over gloo: 10 % and 6 %). Sums repeated in place therefore grow:
    integers wrap, floating point reaches infinity. Adding these takes the same time as any number. NaN cannot occur
    (the contributions to an element of a sum have the same sign, no factor is zero), nor denormals.
    """
    elapsed_s, iterations, aggregate = timer_of(team), config.iterations, config.aggregate
    several = aggregated(collective.run, team, aggregate)
    operation = accelerators(team.device).captured(several) if config.cuda_graph else several
    wrong = torch.zeros(1, dtype=torch.int64, device=team.device)
    checked = 0

    def checked_iteration() -> None:
        nonlocal checked
        collective.refill()
        elapsed_s(operation if aggregate == 1 else collective.run, team)
        found = collective.wrong_elements()
        if found is not None:
            wrong.add_(found)
            checked += 1

    checked_warmup = max(0, config.warmup_iterations - 1) if config.check else 0
    for _ in range(checked_warmup):
        checked_iteration()
    collective.refill()
    for _ in range(config.warmup_iterations - checked_warmup):
        elapsed_s(operation, team)
    times_s = np.empty(iterations)
    for iteration in range(iterations):
        if config.check and config.check_interval and iteration and iteration % config.check_interval == 0:
            checked_iteration()
            for _ in range(SETTLING):
                elapsed_s(operation, team)
        times_s[iteration] = elapsed_s(operation, team, compute) / aggregate
    added_s = added_time(operation, team, compute, iterations) if compute else 0.0
    if config.check:
        checked_iteration()
    times_us = slowest_rank(times_s, team) * MICROSECONDS
    last_us = -slowest_rank(-times_s, team) * MICROSECONDS if compute else times_us
    return Measurement(
        time_us=statistics(times_us),
        last_rank_us=float(np.median(last_us)),
        added_us=added_s / aggregate * MICROSECONDS,
        stalled_iterations=count_stalls(times_us),
        wrong_elements=of_every_rank(wrong, team) if checked else None,
        checked_iterations=checked,
    )


def added_time(operation: Callable[[], None], team: Team, compute: Callable[[], None], count: int) -> float:
    """Seconds that each of some operations adds to as many computes in a row; ranks meet in the operations only.

    In a job a part of an operation is hidden: ranks leave it at different times, and those that compute first send
    while the others compute. After a barrier all ranks compute at once, and nothing is hidden.

    Rows of computes and rows with operations take turns; the median over all neighbours is the result, so that neither
    clocks that drift nor one row that is disturbed count as operations. Rows of two thirds of `count` keep it short.
    """

    def both() -> None:
        compute()
        operation()

    length, elapsed_s = max(1, 2 * count // 3), timer_of(team)

    def seconds(run: Callable[[], None]) -> float:
        def row() -> None:
            for _ in range(length):
                run()

        return elapsed_s(row, team)

    rows = [seconds(run) for run in (*[compute, both] * ROWS, compute)]
    differences = np.diff(slowest_rank(np.array(rows), team))
    differences[1::2] *= -1
    return max(0.0, float(np.median(differences))) / length


def aggregated(operation: Callable[[], None], team: Team, count: int) -> Callable[[], None]:
    """The operation `count` times in a row: in one group call (nccl-tests' -m), one launch; gloo has none."""
    if count == 1:
        return operation

    def several() -> None:
        for _ in range(count):
            operation()

    if not (is_accelerator(team.device) and accelerators(team.device).groups):
        return several

    def grouped() -> None:
        with dist.distributed_c10d._coalescing_manager(group=team.handle, device=team.device):
            several()

    return grouped


def count_stalls(times_us: NDArray[np.float64]) -> int:
    """How many `times_us`, microseconds (iterations,), exceed the smallest by STALL_US and STALL_FACTOR."""
    least = times_us.min()
    return int(np.count_nonzero((times_us - least >= STALL_US) & (times_us >= STALL_FACTOR * least)))


class Timer(Protocol):
    """Seconds of one operation, started when all ranks have met, and after `compute`."""

    def __call__(
        self, operation: Callable[[], None], team: Team, compute: Callable[[], None] | None = None
    ) -> float: ...


def timer_of(team: Team) -> Timer:
    """How operations of the team's devices are timed."""
    return device_time if is_accelerator(team.device) else cpu_time


def cpu_time(operation: Callable[[], None], team: Team, compute: Callable[[], None] | None = None) -> float:
    """Seconds of one operation on the CPU, started when all ranks have met, and after `compute`."""
    team.barrier()
    if compute is not None:
        compute()
    begin = time.perf_counter()
    operation()
    return time.perf_counter() - begin


def device_time(operation: Callable[[], None], team: Team, compute: Callable[[], None] | None = None) -> float:
    """Seconds of one operation on the device's current stream, between events; see Timer."""
    begin = timed_event(team.device)
    end = timed_event(team.device)
    team.barrier()
    accelerators(team.device).synchronize()
    if compute is not None:
        compute()
    begin.record()
    operation()
    end.record()
    end.synchronize()
    return elapsed_ns(begin, end) / 1e9
