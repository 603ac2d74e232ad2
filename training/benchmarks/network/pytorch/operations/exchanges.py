"""Collectives in which every rank receives from every other without summing: all_gather and all_to_all."""

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.team import renamed
from training.benchmarks.network.pytorch.operations.collectives import Buffered


class AllGather(Buffered):
    """all_gather into one tensor: S is the whole output. In place, the input is this rank's part of the output."""

    chunked = has_own_chunk = True

    def allocate(self) -> None:
        self._all_gather = renamed("all_gather_single", "all_gather_into_tensor")
        self._output = self.empty(self.count)
        own = self._output.view(self.team.size, self.chunk)[self.team.rank]
        self._input = own if self.in_place else self.empty(self.chunk)

    def write(self) -> None:
        self._output.zero_()
        pattern.fill(self._input, self.message(self.team.rank))

    def run(self) -> None:
        self._all_gather(self.wire(self._output), self.wire(self._input), group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return self.wrong_chunks(self._output)


class AllToAll(Buffered):
    """all_to_all in equal parts: S is one rank's input, all its parts."""

    chunked = True
    buffers = 2

    def part(self, source: int, destination: int) -> int:
        """Elements that `source` sends to `destination`."""
        return self.chunk

    def allocate(self) -> None:
        everyone, me = range(self.team.size), self.team.rank
        self._input_parts = [self.part(me, other) for other in everyone]
        self._output_parts = [self.part(other, me) for other in everyone]
        self._input, self._output = self.empty(self.count), self.empty(self.count)

    def write(self) -> None:
        self._output.zero_()
        for destination, part in enumerate(torch.split(self._input, self._input_parts)):
            pattern.fill(part, self.message(self.team.rank, destination))

    def run(self) -> None:
        output, given = self.wire(self._output), self.wire(self._input)
        dist.all_to_all_single(output, given, self._output_parts, self._input_parts, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        wrong = self.none_wrong()
        for source, part in enumerate(torch.split(self._output, self._output_parts)):
            wrong += pattern.count_wrong(part, self.message(source, self.team.rank))
        return wrong


class AllToAllUneven(AllToAll):
    """all_to_all in parts of 1 to n shares: S is one rank's input; each rank still sends and receives S in total.

    Source i sends destination j 1 + (i + j) mod n shares of S / (1 + 2 + ... + n): a Latin square, so that every row
    and column has the same sum; the remainder of the division goes to the largest part.
    """

    chunked = False

    def part(self, source: int, destination: int) -> int:
        size = self.team.size
        shares = size * (size + 1) // 2
        own = 1 + (source + destination) % size
        rest = self.count % shares if own == size else 0
        return self.count // shares * own + rest


class AllToAllV(AllToAll):
    """all_to_all in parts as nccl-tests' alltoallv has them: S is one rank's input, n chunks.

    Of n ranks, source i sends destination j (i + j) mod n parts of 2 / n chunk; the rest of S goes where that is 0.

    Source: nccl-tests and rccl-tests, src/alltoallv.cu.
    """

    def part(self, source: int, destination: int) -> int:
        size = self.team.size
        unit = 2 * self.chunk // size
        own = (source + destination) % size
        return own * unit if own else self.count - unit * size * (size - 1) // 2
