"""Collectives that sum: all_reduce, reduce and reduce_scatter."""

import torch
import torch.distributed as dist

from training.benchmarks.network.pytorch import pattern
from training.benchmarks.network.pytorch.collectives import Buffered, renamed
from training.benchmarks.network.pytorch.team import Team


class AllReduce(Buffered):
    """all_reduce (sum) in place: S is the size of one rank's buffer."""

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = True) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self.sent = pattern.sent(team.rank, team.size, dtype, seed).to(team.device)
        self.expected = pattern.summed(team.size, dtype, seed).to(team.device)
        self.buffer = self.empty(0)

    def release(self) -> None:
        """See Buffered."""
        self.buffer = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self.buffer = self.empty(self.count)

    def refill(self) -> None:
        """See Collective."""
        pattern.fill(self.buffer, self.sent)

    def run(self) -> None:
        """See Collective."""
        dist.all_reduce(self.buffer, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return self.wrong_in(self.buffer, self.expected)


class Reduce(AllReduce):
    """reduce (sum) to the team's first rank, in place: S is the size of one rank's buffer."""

    def run(self) -> None:
        """See Collective."""
        dist.reduce(self.buffer, dst=self.team.ranks[0], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """Count of the root, 0-d; the other ranks' buffers are undefined afterwards."""
        return self.wrong_in(self.buffer, self.expected) if self.team.rank == 0 else self.none_wrong()


class ReduceScatter(Buffered):
    """reduce_scatter (sum): S is the whole input of a rank. In place, the output is this rank's part of the input."""

    chunked = True

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._reduce_scatter = renamed("reduce_scatter_single", "reduce_scatter_tensor")
        self._sent = pattern.sent(team.rank, team.size, dtype, seed).to(team.device)
        self._summed = pattern.summed(team.size, dtype, seed).to(team.device)
        self._input = self._output = self.empty(0)
        self.buffers = 1.0 if in_place else 1.0 + 1.0 / team.size

    def release(self) -> None:
        """See Buffered."""
        self._input = self._output = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self._input = self.empty(self.count)
        chunk = self.count // self.team.size
        own = self._input[self.team.rank * chunk : (self.team.rank + 1) * chunk]
        self._output = own if self.in_place else self.empty(chunk)

    def refill(self) -> None:
        """See Collective."""
        if not self.in_place:
            self._output.zero_()
        pattern.fill(self._input, self._sent)

    def run(self) -> None:
        """See Collective."""
        self._reduce_scatter(self._output, self._input, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """Count of this rank's part, 0-d: the pattern covers the whole input, so each part starts at another offset
        of it.
        """
        offset = self.team.rank * (self.count // self.team.size)
        return self.wrong_in(self._output, torch.roll(self._summed, -(offset % pattern.PERIOD)))
