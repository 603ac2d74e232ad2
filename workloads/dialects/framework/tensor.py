"""States what Megatron-core's tensor-parallel layers send, with and without sequence parallelism.

With tp 1 nothing is sent except by the loss, whose three reductions run even over a group of one rank.
"""

from workloads.dialects.framework.placement import RankPlacement
from workloads.job.parameters import WorkloadArgs
from workloads.rows.ops import CommType
from workloads.rows.traced_op import BFLOAT16, FLOAT32, SIZES, Call

LOSS_REDUCTIONS = 3
"""Largest logit, logit of the target, sum of exponentials."""


class TensorParallel:
    """Calls over the tensor-parallel group of one rank. T is a micro-batch's activation in bytes, 2 * s * b * h."""

    def __init__(self, args: WorkloadArgs, place: RankPlacement) -> None:
        self.size = place.tp
        self.ranks = place.tensor
        self.split = args.enable_sequence_parallel and place.tp > 1
        self.activation = args.activation_bytes
        self.tokens = args.seq_length * args.micro_batch
        self.logits_bytes = SIZES[BFLOAT16] * args.micro_batch * args.padded_vocab_size

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

    def column(self, phase: str, module: str) -> list[Call]:
        """Forward of a column-parallel layer: the input is gathered where it is split."""
        return [self.gather(phase, module)] if self.split else []

    def column_back(self, module: str) -> list[Call]:
        """Backward: the input is gathered once more for the weight's gradient, its own gradient is reduced."""
        if self.split:
            return [self.gather("backward", module), self.scatter("backward", module)]
        return [self.reduce("backward", module)] if self.size > 1 else []

    def row(self, phase: str, module: str) -> list[Call]:
        """Forward of a row-parallel layer: the partial outputs are summed."""
        if self.size == 1:
            return []
        return [self.scatter(phase, module) if self.split else self.reduce(phase, module)]

    def row_back(self, module: str) -> list[Call]:
        return [self.gather("backward", module)] if self.split else []

    def logits(self, module: str) -> list[Call]:
        """Inference: the logits of each sequence's last token are gathered over the vocabulary's parts."""
        return [self.gather("forward", module, self.logits_bytes)] if self.size > 1 else []

    def loss(self) -> list[Call]:
        """The vocabulary-parallel cross entropy, 4 bytes a token; it has no backward communication."""
        size = SIZES[FLOAT32] * self.tokens
        return [self.call(CommType.all_reduce, size, "forward", "", FLOAT32)] * LOSS_REDUCTIONS
