"""Collectives with a root, the team's first rank: broadcast, gather and scatter."""

import torch
import torch.distributed as dist

from training.benchmarks.network.pytorch import pattern
from training.benchmarks.network.pytorch.collectives import Buffered
from training.benchmarks.network.pytorch.team import Team


class Broadcast(Buffered):
    """broadcast from the root, in place: S is the size of one rank's buffer."""

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = True) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._own, self._roots = self.moved(team.rank, 0), self.moved(0, 0)
        self._buffer = self.empty(0)

    def release(self) -> None:
        """See Buffered."""
        self._buffer = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self._buffer = self.empty(self.count)

    def refill(self) -> None:
        """See Collective."""
        pattern.fill(self._buffer, self._own)

    def run(self) -> None:
        """See Collective."""
        dist.broadcast(self._buffer, src=self.team.ranks[0], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return self.wrong_in(self._buffer, self._roots)


class Gather(Buffered):
    """gather of one chunk a rank at the root: S is all chunks."""

    chunked = True

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._is_root = team.rank == 0
        self._periods = [self.moved(source, 0) for source in range(team.size if self._is_root else 0)]
        self._own = self.moved(team.rank, 0)
        self._chunk = self.empty(0)
        self._all: list[torch.Tensor] = []
        self.buffers = 1.0 + 1.0 / team.size  # of the root

    def release(self) -> None:
        """See Buffered."""
        self._chunk, self._all = self.empty(0), []

    def allocate(self) -> None:
        """See Buffered."""
        chunk = self.count // self.team.size
        self._chunk = self.empty(chunk)
        if self._is_root:
            self._all = list(torch.split(self.empty(self.count), chunk))

    def refill(self) -> None:
        """See Collective."""
        for received in self._all:
            received.zero_()
        pattern.fill(self._chunk, self._own)

    def run(self) -> None:
        """See Collective."""
        received = self._all if self._is_root else None
        dist.gather(self._chunk, received, dst=self.team.ranks[0], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        wrong = self.none_wrong()
        for received, period in zip(self._all, self._periods, strict=True):
            wrong += self.wrong_in(received, period)
        return wrong


class Scatter(Buffered):
    """scatter of one chunk a rank from the root: S is all chunks."""

    chunked = True

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._is_root = team.rank == 0
        self._periods = [self.moved(0, destination) for destination in range(team.size if self._is_root else 0)]
        self._expected = self.moved(0, team.rank)
        self._chunk = self.empty(0)
        self._all: list[torch.Tensor] = []
        self.buffers = 1.0 + 1.0 / team.size  # of the root

    def release(self) -> None:
        """See Buffered."""
        self._chunk, self._all = self.empty(0), []

    def allocate(self) -> None:
        """See Buffered."""
        chunk = self.count // self.team.size
        self._chunk = self.empty(chunk)
        if self._is_root:
            self._all = list(torch.split(self.empty(self.count), chunk))

    def refill(self) -> None:
        """See Collective."""
        self._chunk.zero_()
        for sent, period in zip(self._all, self._periods, strict=True):
            pattern.fill(sent, period)

    def run(self) -> None:
        """See Collective."""
        sent = self._all if self._is_root else None
        dist.scatter(self._chunk, sent, src=self.team.ranks[0], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return self.wrong_in(self._chunk, self._expected)
