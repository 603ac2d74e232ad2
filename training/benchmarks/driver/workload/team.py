"""The ranks that measure together: all of them, or those of one group of a cluster pattern."""

from dataclasses import dataclass
from typing import Self

import torch
import torch.distributed as dist

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

    def barrier(self) -> None:
        """Return when all ranks of the team have called it."""
        dist.barrier(group=self.handle)
