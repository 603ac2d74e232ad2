"""Estimates by how much each rank's clock differs from rank 0's: the exchange with the shortest round trip tells."""

import time
from dataclasses import dataclass

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.process_group import ProcessGroup

EXCHANGES = 16


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """offset_ns: to be added to this rank's time.monotonic_ns to have rank 0's; error_ns: the most it is wrong by."""

    offset_ns: int
    error_ns: int


def measure(group: ProcessGroup) -> ClockOffset:
    """The offset by now. All ranks call it; rank 0 answers one after the other.

    Rank 0 reads its clock between a request and its answer. Half of the round trip is the largest error, however the
    two ways differ. Source: Cristian, Probabilistic clock synchronization, 1989.
    """
    place = group.placement
    word = torch.zeros(1, dtype=torch.int64, device=group.device)
    best: ClockOffset | None = None
    for rank in range(1, place.world_size):
        for _ in range(EXCHANGES):
            if place.rank == 0:
                dist.recv(word, rank)
                int(word)
                word.fill_(time.monotonic_ns())
                dist.send(word, rank)
            elif place.rank == rank:
                begin = time.monotonic_ns()
                dist.send(word, 0)
                dist.recv(word, 0)
                theirs = int(word)
                end = time.monotonic_ns()
                trip = end - begin
                found = ClockOffset(theirs - begin - trip // 2, -(-trip // 2))
                best = found if best is None or found.error_ns < best.error_ns else best
    return best or ClockOffset(0, 0)


def joined(before: ClockOffset, after: ClockOffset) -> ClockOffset:
    """One offset for a run from the estimates before and after it; a drift between them is part of the error."""
    offset = (before.offset_ns + after.offset_ns) // 2
    apart = abs(before.offset_ns - after.offset_ns)
    return ClockOffset(offset, max(before.error_ns, after.error_ns) + -(-apart // 2))
