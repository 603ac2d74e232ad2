"""Collectives that nccl-tests composes of messages between ranks: the ring of messages, and the hypercube."""

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.operations.collectives import Buffered


class SendRecvRing(Buffered):
    """Every rank sends to the next and receives from the one before, at once: S is one message.

    Source: nccl-tests, src/sendrecv.cu.
    """

    buffers = 2.0

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._next, self._before = (team.rank + 1) % team.size, (team.rank - 1) % team.size
        self._sent = self._received = self.empty(0)

    def release(self) -> None:
        """See Buffered."""
        self._sent = self._received = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self._sent, self._received = self.empty(self.count), self.empty(self.count)

    def write(self) -> None:
        """See Buffered."""
        self._received.zero_()
        pattern.fill(self._sent, self.message(self.team.rank, self._next))

    def run(self) -> None:
        """See Collective."""
        ranks, handle = self.team.ranks, self.team.handle
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, self.wire(self._sent), ranks[self._next], handle),
                dist.P2POp(dist.irecv, self.wire(self._received), ranks[self._before], handle),
            ]
        )
        for work in works:
            work.wait()

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        return pattern.count_wrong(self._received, self.message(self._before, self.team.rank))


class Hypercube(Buffered):
    """all_gather in log2 n steps, in each of which a rank exchanges all that it has with one other: S is the output.

    Needs a power of two of ranks.

    Source: nccl-tests, src/hypercube.cu.
    """

    chunked = True

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._input = self._output = self.empty(0)
        self.buffers = 1.0 + 1.0 / team.size

    def release(self) -> None:
        """See Buffered."""
        self._input = self._output = self.empty(0)

    def allocate(self) -> None:
        """See Buffered."""
        self._output, self._input = self.empty(self.count), self.empty(self.count // self.team.size)

    def write(self) -> None:
        """See Buffered."""
        self._output.zero_()
        pattern.fill(self._input, self.message(self.team.rank))

    def run(self) -> None:
        """See Collective."""
        place, size, chunk = self.team.rank, self.team.size, self._input.numel()
        self._output[place * chunk : (place + 1) * chunk].copy_(self._input)
        width = 1
        while width < size:
            own = place // width * width
            theirs = own ^ width
            other = self.team.ranks[place ^ width]
            sent = self._output[own * chunk : (own + width) * chunk]
            received = self._output[theirs * chunk : (theirs + width) * chunk]
            works = dist.batch_isend_irecv(
                [
                    dist.P2POp(dist.isend, self.wire(sent), other, self.team.handle),
                    dist.P2POp(dist.irecv, self.wire(received), other, self.team.handle),
                ]
            )
            for work in works:
                work.wait()
            width *= 2

    def wrong_elements(self) -> torch.Tensor | None:
        """See Collective."""
        wrong = self.none_wrong()
        for source, chunk in enumerate(self._output.view(self.team.size, -1)):
            wrong += pattern.count_wrong(chunk, self.message(source))
        return wrong
