"""States what Megatron-core's tensor-parallel layers send and compute, with and without sequence parallelism.

With tp 1 nothing is sent except by the loss, whose three reductions run even over a group of one rank.
"""

from workloads.dialects.framework import quantised
from workloads.dialects.framework.kernels import Kernels
from workloads.dialects.framework.placement import RankPlacement
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import BFLOAT16, FLOAT8, FLOAT32, SIZES, Call
from workloads.rows.ops import CommType

LOSS_REDUCTIONS = 3
"""Largest logit, logit of the target, sum of exponentials."""


class TensorParallel:
    """Calls over the tensor-parallel group of one rank. T is a micro-batch's activation in bytes, 2 * s * b * h.

    kept: tokens that a rank has between its blocks, where sequence parallelism splits them.
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement, context: int = 0) -> None:
        self.size = place.tp
        self.ranks = place.tensor
        self.split = args.enable_sequence_parallel and place.tp > 1
        self.activation = args.activation_bytes
        self.tokens = args.seq_length * args.micro_batch
        self.kept = self.tokens // self.size if self.split else self.tokens
        self.hidden, self.vocab = args.hidden_size, args.padded_vocab_size // self.size
        self.logits_bytes = SIZES[BFLOAT16] * args.micro_batch * args.padded_vocab_size
        self.kernels = Kernels(args, self.tokens, context=context)

    def call(self, comm_type: CommType, size: int, phase: str, module: str, dtype: str = BFLOAT16) -> Call:
        return Call(comm_type, "tp", self.ranks, dtype, size, phase, module)

    def gather(self, phase: str, module: str, size: int | None = None) -> Call:
        size = self.activation if size is None else size
        return self.call(CommType.all_gather_into_tensor, size, phase, module)

    def scatter(self, phase: str, module: str, size: int | None = None) -> Call:
        size = self.activation if size is None else size
        return self.call(CommType.reduce_scatter_tensor, size, phase, module)

    def reduce(self, phase: str, module: str, size: int | None = None) -> Call:
        size = self.activation if size is None else size
        return self.call(CommType.all_reduce, size, phase, module)

    def column(
        self, phase: str, module: str, outer: int, inner: int | None = None, *, normed: bool = False
    ) -> list[Call]:
        """Forward of a column-parallel layer of `outer` columns on this rank: the input is gathered where it is split.

        inner: width of the input, by default the model's; normed: it comes from a norm that is part of the module.
        """
        inner = self.hidden if inner is None else inner
        whole = self._whole(phase, module, inner, normed=normed)
        return [*whole, *self.kernels.product(phase, module, inner, outer)]

    def column_back(self, module: str, outer: int, inner: int | None = None) -> list[Call]:
        """Backward: the input is gathered once more for the weight's gradient, whose product hides the reduction."""
        inner = self.hidden if inner is None else inner
        size = self._bytes(inner)
        calls = quantised.operand(self.kernels, "backward", module, (self.tokens, outer))
        calls += [self._gather_operand("backward", module, inner)] if self.split else []
        calls += self.kernels.input_gradient(module, inner, outer)
        if self.split:
            calls.append(self.scatter("backward", module, size))
            calls += quantised.turned(self.kernels, module, (self.tokens, inner))
        elif self.size > 1:
            calls.append(self.reduce("backward", module, size))
        return [*calls, *self.kernels.weight_gradient(module, inner, outer)]

    def row(self, phase: str, module: str, inner: int) -> list[Call]:
        """Forward of a row-parallel layer of `inner` rows on this rank: the partial outputs are summed."""
        calls = quantised.operand(self.kernels, phase, module, (self.tokens, inner))
        calls += self.kernels.product(phase, module, inner, self.hidden)
        if self.size > 1:
            calls.append(self.scatter(phase, module) if self.split else self.reduce(phase, module))
        return calls

    def row_back(self, module: str, inner: int) -> list[Call]:
        kernels, sides = self.kernels, [(self.tokens, self.hidden)] if self.split else []
        calls = [*self._whole("backward", module, self.hidden, both=True)]
        calls += [*kernels.input_gradient(module, inner, self.hidden), *quantised.turned(kernels, module, *sides)]
        return [*calls, *kernels.weight_gradient(module, inner, self.hidden)]

    def _whole(self, phase: str, module: str, width: int, *, both: bool = False, normed: bool = False) -> list[Call]:
        """An operand that sequence parallelism splits: quantised, and gathered. both: see quantised.gathered_bytes."""
        calls = quantised.operand(self.kernels, phase, module, (self.kept, width), sent=self.split, normed=normed)
        if self.split and self.kernels.is_low(module) and self.kernels.args.fp8_recipe == quantised.CURRENT:
            # One scale for the parts of all ranks.
            calls.insert(-1, self.call(CommType.all_reduce, SIZES[FLOAT32], phase, module, FLOAT32))
        return [*calls, *([self._gather_operand(phase, module, width, both=both)] if self.split else [])]

    def _gather_operand(self, phase: str, module: str, width: int, *, both: bool = False) -> Call:
        if not self.kernels.is_low(module):
            return self.gather(phase, module, self._bytes(width))
        size = quantised.gathered_bytes(self.kernels, self.tokens * width, both=both)
        return self.call(CommType.all_gather_into_tensor, size, phase, module, FLOAT8)

    def norm(self, phase: str, module: str, *, joined: bool = False) -> list[Call]:
        """A norm of the tokens between blocks, forward. joined: it is part of the linear layer behind it."""
        if joined:
            return quantised.norm(self.kernels, phase, module, (self.kept, self.hidden))
        return self.kernels.moving("norm", phase, module, self.hidden, self.kept)

    def norm_back(self, module: str, *, passed_by: bool = True) -> list[Call]:
        """A norm backward. passed_by: a residual went by its block, whose gradient is added."""
        calls = self.kernels.moving("norm_backward", "backward", module, self.hidden, self.kept)
        return calls + (self.residual("backward", module) if passed_by else [])

    def residual(self, phase: str, module: str) -> list[Call]:
        """A sum with what passes a block by; backward of the gradients of both ways."""
        return self.kernels.moving("residual", phase, module, self.hidden, self.kept)

    def logits(self, module: str) -> list[Call]:
        """Inference: the logits of each sequence's last token are gathered over the vocabulary's parts."""
        return [self.gather("forward", module, self.logits_bytes)] if self.size > 1 else []

    def loss(self) -> list[Call]:
        """The vocabulary-parallel cross entropy, 4 bytes a token; it has no backward communication."""
        size = SIZES[FLOAT32] * self.tokens
        most, *sums = [self.call(CommType.all_reduce, size, "forward", "", FLOAT32)] * LOSS_REDUCTIONS
        return [most, *self.kernels.moving("loss", "forward", "", self.vocab), *sums]

    def loss_back(self) -> list[Call]:
        return self.kernels.moving("loss_backward", "backward", "", self.vocab)

    def _bytes(self, width: int) -> int:
        return SIZES[BFLOAT16] * self.tokens * width
