"""Collectives with a root, a place in the team: broadcast, gather and scatter."""

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.operations.collectives import Buffered


class Broadcast(Buffered):
    """broadcast from the root, in place: S is the size of one rank's buffer."""

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = True, root: int = 0) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._root = root
        self._buffer = self.empty(0)

    def release(self) -> None:
        """See Buffered."""
        self._buffer = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self._buffer = self.empty(self.count)

    def write(self) -> None:
        """See Buffered."""
        pattern.fill(self._buffer, self.message(self.team.rank))

    def run(self) -> None:
        """See Collective."""
        dist.broadcast(self.wire(self._buffer), src=self.team.ranks[self._root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return pattern.count_wrong(self._buffer, self.message(self._root))


class _Chunks(Buffered):
    """One chunk a rank and, at the root, all of them."""

    chunked = True

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False, root: int = 0) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._root = root
        self._is_root = team.rank == root
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

    def _wired(self) -> list[torch.Tensor] | None:
        """All chunks as they are sent or received, which the root alone has."""
        return [*map(self.wire, self._all)] if self._is_root else None


class Gather(_Chunks):
    """gather of one chunk a rank at the root: S is all chunks."""

    def write(self) -> None:
        """See Buffered."""
        for received in self._all:
            received.zero_()
        pattern.fill(self._chunk, self.message(self.team.rank))

    def run(self) -> None:
        """See Collective."""
        dist.gather(self.wire(self._chunk), self._wired(), dst=self.team.ranks[self._root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        wrong = self.none_wrong()
        for source, received in enumerate(self._all):
            wrong += pattern.count_wrong(received, self.message(source))
        return wrong


class Scatter(_Chunks):
    """scatter of one chunk a rank from the root: S is all chunks."""

    def write(self) -> None:
        """See Buffered."""
        self._chunk.zero_()
        for destination, sent in enumerate(self._all):
            pattern.fill(sent, self.message(self._root, destination))

    def run(self) -> None:
        """See Collective."""
        dist.scatter(self.wire(self._chunk), self._wired(), src=self.team.ranks[self._root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return pattern.count_wrong(self._chunk, self.message(self._root, self.team.rank))
