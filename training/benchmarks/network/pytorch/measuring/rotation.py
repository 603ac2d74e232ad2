"""Times an operation as nccl-tests does: back to back over rotating buffers, the mean of all ranks.

Source: nccl-tests, src/common.cu: launches in a row, one wait at the end, elapsed time / operations, averaged over the
ranks; each launch uses the next part of buffers as large as the largest size.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.statistics import MICROSECONDS
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.measuring.timing import aggregated
from training.benchmarks.network.pytorch.operations.collectives import Collective

# Small messages would need thousands of buffers to fill the largest size; so many are out of any cache's reach.
MOST_COPIES = 64


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


def _wait(team: Team) -> None:
    if team.device.type == "cuda":
        torch.cuda.synchronize()
