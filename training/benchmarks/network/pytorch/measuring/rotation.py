"""Times an operation as other tools do: nccl-tests, and ml-engineering's all_reduce_bench.

Sources: nccl-tests, src/common.cu: launches in a row over rotating buffers, one wait at the end, elapsed time /
operations, averaged over the ranks; each launch uses the next part of buffers as large as the largest size.
ml-engineering, network/benchmarks/all_reduce_bench.py: each trial makes up to 10 calls in a row after a barrier; the
bandwidth of a trial is the mean over the ranks, that of a size the mean over the trials.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from common.bandwidth import GB
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.statistics import MICROSECONDS
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.measuring.timing import aggregated, timer_of
from training.benchmarks.network.pytorch.operations.collectives import Collective

# Small messages would need thousands of buffers to fill the largest size; so many are out of any cache's reach.
MOST_COPIES = 64
# Of all_reduce_bench: calls in a row, and how long the device is busy before them: 2 ms at 2 GHz.
_CALLS = 10
_BUSY_CYCLES = 4_000_000


def copies_of(size_bytes: int, largest_bytes: int, iterations: int) -> int:
    """How many buffers rotate: as many as fit in the largest size, at most one for each iteration."""
    return max(1, min(MOST_COPIES, iterations, largest_bytes // max(1, size_bytes)))


def back_to_back(
    make: Callable[[], Collective],
    team: Team,
    *,
    size_bytes: int,
    largest_bytes: int,
    warmup: int,
    iterations: int,
    aggregate: int = 1,
) -> float:
    """Mean microseconds of an operation over `iterations` and all ranks of the team; all its ranks call it."""
    copies = [make() for _ in range(copies_of(size_bytes, largest_bytes, iterations))]
    for copy in copies:
        copy.prepare(size_bytes)
        copy.refill()
    operations = [aggregated(copy.run, team, aggregate) for copy in copies]
    for _ in range(max(1, warmup)):
        operations[0]()
    _wait(team)
    team.barrier()
    _wait(team)
    begin = time.perf_counter()
    for iteration in range(iterations):
        operations[iteration % len(operations)]()
    _wait(team)
    total = torch.tensor((time.perf_counter() - begin) / iterations / aggregate, dtype=torch.float64)
    total = total.to(team.device)
    dist.all_reduce(total, group=team.handle)
    return float(total) / team.size * MICROSECONDS


def calls_of_a_trial(size_bytes: int) -> int:
    """Calls that all_reduce_bench makes in a row: 10, of messages above 102 MiB fewer, of 1 GiB and more one."""
    return max(1, min(_CALLS, (1 << 30) // max(1, size_bytes)))


def trials(collective: Collective, team: Team, *, size_bytes: int, iterations: int) -> float:
    """algbw of the prepared collective in GB/s, as all_reduce_bench takes it in `iterations` trials; all ranks call it.

    On a GPU the calls are queued before the device comes to them, as there, so that their launches do not count.
    """
    calls = calls_of_a_trial(size_bytes)

    def operation() -> None:
        for _ in range(calls):
            collective.run()

    elapsed_s = timer_of(team)
    busy = accelerators(team.device).busy(_BUSY_CYCLES) if is_accelerator(team.device) else None
    seconds = []
    for _ in range(iterations):
        collective.refill()
        seconds.append(elapsed_s(operation, team, busy) / calls)
    rate = torch.tensor([size_bytes / each for each in seconds], dtype=torch.float64).mean().to(team.device)
    dist.all_reduce(rate, group=team.handle)
    return float(rate) / team.size / GB


def _wait(team: Team) -> None:
    if is_accelerator(team.device):
        accelerators(team.device).synchronize()
