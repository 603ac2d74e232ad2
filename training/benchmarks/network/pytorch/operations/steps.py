"""Collectives that nccl-tests composes of messages between ranks: the ring of messages, and the hypercube."""

import torch

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.operations.collectives import Buffered


class SendRecvRing(Buffered):
    """Every rank sends to the next and receives from the one before, at once: S is one message.

    Source: nccl-tests, src/sendrecv.cu.
    """

    buffers = 2

    def __init__(self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = False) -> None:
        super().__init__(team, dtype, seed, in_place=in_place)
        self._next, self._before = (team.rank + 1) % team.size, (team.rank - 1) % team.size

    def allocate(self) -> None:
        self._sent, self._received = self.empty(self.count), self.empty(self.count)

    def write(self) -> None:
        self._received.zero_()
        pattern.fill(self._sent, self.message(self.team.rank, self._next))

    def run(self) -> None:
        self.exchange(self._sent, self._next, self._received, self._before)

    def wrong_elements(self) -> torch.Tensor | None:
        return pattern.count_wrong(self._received, self.message(self._before, self.team.rank))


class Hypercube(Buffered):
    """all_gather in log2 n steps, in each of which a rank exchanges all that it has with one other: S is the output.

    Needs a power of two of ranks.

    Source: nccl-tests, src/hypercube.cu.
    """

    chunked = has_own_chunk = True

    def allocate(self) -> None:
        self._output, self._input = self.empty(self.count), self.empty(self.chunk)

    def write(self) -> None:
        self._output.zero_()
        pattern.fill(self._input, self.message(self.team.rank))

    def run(self) -> None:
        place, size, chunk = self.team.rank, self.team.size, self._input.numel()
        self._output[place * chunk : (place + 1) * chunk].copy_(self._input)
        width = 1
        while width < size:
            own = place // width * width
            theirs = own ^ width
            sent = self._output[own * chunk : (own + width) * chunk]
            received = self._output[theirs * chunk : (theirs + width) * chunk]
            self.exchange(sent, place ^ width, received, place ^ width)
            width *= 2

    def wrong_elements(self) -> torch.Tensor | None:
        return self.wrong_chunks(self._output)
