"""Collectives with a root, a place in the team: broadcast, gather and scatter."""

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload import pattern
from training.benchmarks.network.pytorch.operations.collectives import Buffered


class Broadcast(Buffered):
    """broadcast from the root, in place: S is the size of one rank's buffer."""

    def allocate(self) -> None:
        self._buffer = self.empty(self.count)

    def write(self) -> None:
        pattern.fill(self._buffer, self.message(self.team.rank))

    def run(self) -> None:
        dist.broadcast(self.wire(self._buffer), src=self.team.ranks[self.root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return pattern.count_wrong(self._buffer, self.message(self.root))


class _Chunks(Buffered):
    """One chunk a rank and, at the root, all of them."""

    chunked = has_own_chunk = True

    def allocate(self) -> None:
        self._chunk = self.empty(self.chunk)
        self._all = self.empty(self.count).view(self.team.size, self.chunk) if self.is_root else self.empty(0)

    def _wired(self) -> list[torch.Tensor] | None:
        """All chunks as they are sent or received, which the root alone has."""
        return [*map(self.wire, self._all)] if self.is_root else None


class Gather(_Chunks):
    """gather of one chunk a rank at the root: S is all chunks."""

    def write(self) -> None:
        for received in self._all:
            received.zero_()
        pattern.fill(self._chunk, self.message(self.team.rank))

    def run(self) -> None:
        dist.gather(self.wire(self._chunk), self._wired(), dst=self.team.ranks[self.root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return self.wrong_chunks(self._all) if self.is_root else self.none_wrong()


class Scatter(_Chunks):
    """scatter of one chunk a rank from the root: S is all chunks."""

    def write(self) -> None:
        self._chunk.zero_()
        for destination, sent in enumerate(self._all):
            pattern.fill(sent, self.message(self.root, destination))

    def run(self) -> None:
        dist.scatter(self.wire(self._chunk), self._wired(), src=self.team.ranks[self.root], group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return pattern.count_wrong(self._chunk, self.message(self.root, self.team.rank))
