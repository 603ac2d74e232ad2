"""Collectives that reduce: all_reduce, reduce and reduce_scatter."""

import torch
import torch.distributed as dist

from common.bandwidth import Op
from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.operands import Operands
from training.benchmarks.driver.workload.team import Team, renamed
from training.benchmarks.network.pytorch.operations.collectives import UNSIGNED, Buffered


class Reducing(Buffered):
    """A collective that reduces by `op`: its operands for the present count."""

    carriers = UNSIGNED

    def __init__(
        self, team: Team, dtype: torch.dtype, seed: int, *, in_place: bool = True, op: Op = "sum", root: int = 0
    ) -> None:
        super().__init__(team, dtype, seed, in_place=in_place, root=root)
        self.op = op
        # For torch.distributed, looked up once: 2 us between clock and operation make 1 MiB over gloo 10 us longer.
        self.reduce_op: dist.ReduceOp.RedOpType = getattr(dist.ReduceOp, "PRODUCT" if op == "prod" else op.upper())
        self._operands: Operands | None = None

    @property
    def operands(self) -> Operands:
        """The contributions of the ranks to `count` elements, and the result."""
        if self._operands is None or self._operands.count != self.count:
            self._operands = Operands(
                self.op, self.dtype, self.team.device, ranks=self.team.size, seed=self.seed, count=self.count
            )
        return self._operands

    def fill_own(self, buffer: torch.Tensor) -> None:
        """Write this rank's contribution to this iteration into the flat `buffer` of `count` elements."""
        pattern.fill(buffer, self.operands.contribution(self.team.rank, self.iteration))

    def wrong_in(self, buffer: torch.Tensor, begin: int = 0) -> torch.Tensor:
        """Number of elements of the flat `buffer`, 0-d, that differ from the result from its element `begin` on."""
        operands = self.operands
        return pattern.count_wrong(buffer, operands.result(self.iteration), begin, operands.tolerance)


class AllReduce(Reducing):
    """all_reduce in place: S is the size of one rank's buffer."""

    def allocate(self) -> None:
        self.buffer = self.empty(self.count)
        self.wired = self.wire(self.buffer)

    def write(self) -> None:
        self.fill_own(self.buffer)

    def run(self) -> None:
        dist.all_reduce(self.wired, self.reduce_op, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        return self.wrong_in(self.buffer)


class Reduce(AllReduce):
    """reduce to the rank at place `root`, in place: S is the size of one rank's buffer."""

    def run(self) -> None:
        dist.reduce(self.wired, self.team.ranks[self.root], self.reduce_op, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """Count of the root, 0-d; the other ranks' buffers are undefined afterwards."""
        return self.wrong_in(self.buffer) if self.is_root else self.none_wrong()


class ReduceScatter(Reducing):
    """reduce_scatter: S is the whole input of a rank. In place, the output is this rank's part of the input."""

    chunked = has_own_chunk = True

    def allocate(self) -> None:
        self._reduce_scatter = renamed("reduce_scatter_single", "reduce_scatter_tensor")
        self._input = self.empty(self.count)
        begin = self.team.rank * self.chunk
        self._output = self._input[begin : begin + self.chunk] if self.in_place else self.empty(self.chunk)

    def write(self) -> None:
        if not self.in_place:
            self._output.zero_()
        self.fill_own(self._input)

    def run(self) -> None:
        self._reduce_scatter(self.wire(self._output), self.wire(self._input), self.reduce_op, group=self.team.handle)

    def wrong_elements(self) -> torch.Tensor | None:
        """Count of this rank's part of the result, 0-d."""
        return self.wrong_in(self._output, self.team.rank * self.chunk)
