"""The ranks that measure together: all of them, or those of one group of a cluster pattern."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.process_group import ProcessGroup


@dataclass(frozen=True, kw_only=True, slots=True)
class Team:
    """A process group of which this process is a member. `ranks` are global, in the team's order; `handle` None: all.

    `rank` is this process's place in the team, 0 to size - 1.
    """

    ranks: tuple[int, ...]
    rank: int
    device: torch.device
    handle: dist.ProcessGroup | None = None

    @property
    def size(self) -> int:
        """The number of ranks in the team."""
        return len(self.ranks)

    @classmethod
    def world(cls, group: ProcessGroup) -> Self:
        """All ranks of the job."""
        placement = group.placement
        return cls(ranks=tuple(range(placement.world_size)), rank=placement.rank, device=group.device)

    def backwards(self) -> Self:
        """The same ranks, the two halves in the place of each other; an odd last rank stays the last."""
        half = self.size // 2
        order = self.ranks[half : 2 * half] + self.ranks[:half] + self.ranks[2 * half :]
        return replace(self, ranks=order, rank=order.index(self.ranks[self.rank]))

    def barrier(self) -> None:
        """Return when all ranks of the team have called it."""
        dist.barrier(group=self.handle)


def split(groups: Sequence[list[int]], group: ProcessGroup) -> dist.ProcessGroup | None:
    """This rank's group among disjoint `groups` of global ranks, None for a rank in none of them.

    Where the vendor's library can, all groups come from one split of the world's communicator (one colour a group),
    which every rank joins once. new_group would split the world once for each group. gloo cannot split; there a group
    concerns its members alone, and for the other ranks new_group only counts it, which keeps the names the same.
    """
    if is_accelerator(group.device) and accelerators(group.device).splits:
        split: dist.ProcessGroup | None = dist.split_group(split_ranks=list(groups))
        return split if any(group.placement.rank in ranks for ranks in groups) else None
    handle: dist.ProcessGroup | None = None
    for ranks in groups:
        made = dist.new_group(ranks)
        if group.placement.rank in ranks:
            handle = made
    return handle


def renamed(name: str, former: str) -> Callable[..., object]:
    """torch.distributed's function of that name or its former one: torch 2.13 renamed some and warns."""
    found: Callable[..., object] = getattr(dist, name, None) or getattr(dist, former)
    return found


def slowest_rank(times_s: NDArray[np.float64], team: Team) -> NDArray[np.float64]:
    """The longest time of an iteration among the ranks; `times_s`, seconds, and the result: (iterations,)."""
    times = torch.from_numpy(times_s).to(team.device)
    dist.all_reduce(times, op=dist.ReduceOp.MAX, group=team.handle)
    return times.cpu().numpy()


def of_every_rank(count: torch.Tensor, team: Team) -> list[int]:
    """Each rank's `count`, shape (1,), int64 on its device, on every rank."""
    counts = [torch.zeros_like(count) for _ in team.ranks]
    dist.all_gather(counts, count, group=team.handle)
    return [int(each) for each in counts]
