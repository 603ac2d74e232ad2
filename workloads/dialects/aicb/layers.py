"""Megatron's layers as AICB runs them: the collectives and GEMMs of one micro-batch.

T = 2*b*s*h bytes is the full activation. Column-parallel layers gather their input, row-parallel ones reduce their
output. Attention core, norms and experts have no GEMMs (deviation `missing_gemms`). Code that names a deviation
reproduces AICB's behaviour, not Megatron's.
"""

from dataclasses import dataclass

from workloads.dialects.layers import ColumnParallelLinear, Experts, RowParallelLinear, VocabParallelEmbedding
from workloads.dialects.model import Linear, MockedModel, MockedParam
from workloads.job.parameters import ELEMENT_BYTES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommGroup, CommType, LogItem, gemm

DISPATCH_FP8_FACTOR = (1 + 4 / 128) / 2
"""DeepSeek sends tokens to experts in FP8: half of bf16, plus 4 bytes of scale for each 128 elements."""


@dataclass(frozen=True, slots=True)
class Run:
    """Facts of the run that the layers need: sequence length, micro-batch and the form of tensor parallelism."""

    seq: int
    batch: int
    tp: int
    sequence_parallel: bool
    computes: bool

    @classmethod
    def of(cls, args: WorkloadArgs) -> "Run":
        return cls(
            args.seq_length,
            args.micro_batch,
            args.tensor_model_parallel_size,
            args.enable_sequence_parallel,
            args.computes,
        )

    @property
    def scatters(self) -> bool:
        """Whether sequence-parallel communication happens: the option is on and there is more than one tensor rank."""
        return self.sequence_parallel and self.tp > 1

    def tp_op(self, comm_type: CommType, width: int, stage: str) -> LogItem:
        """A collective over the tensor-parallel group on an activation of `width` columns, in elements."""
        size = ELEMENT_BYTES * self.batch * self.seq * width
        return LogItem(comm_type, CommGroup.tp_group, self.tp, size, stage)


class MegatronColumnLinear(ColumnParallelLinear):
    """Forward: all-gather under sequence parallelism. Backward: gather, reduce-scatter; without it, all-reduce."""

    def __init__(self, run: Run, input_size: int, output_size: int, *, name: str, bias: bool = False) -> None:
        super().__init__(input_size, output_size, run.tp, name=name, bias=bias)
        self.run = run

    @property
    def gemm_rows(self) -> int:
        """Rows of the GEMM's first operand. Deviation `sequence_parallel_gemm`: s * tp, though s is already whole."""
        return self.run.seq * self.run.tp if self.run.sequence_parallel else self.run.seq

    def forward(self) -> Block[LogItem]:
        run, rows = self.run, []
        if run.scatters:
            rows.append(run.tp_op(CommType.all_gather, self.input_size, "forward.MegatronColumnLinear"))
        if run.computes:
            first = (self.gemm_rows, run.batch, self.input_size)
            rows.append(gemm(f"forward.MegatronColumnLinear.{self.name}", first, self.weight.shape))
        return Block(rows)

    def backward(self) -> Block[LogItem]:
        run, stage = self.run, "backward.MegatronColumnLinear"
        rows, out = self.gemm_rows, self.output_size_per_partition
        dgrad = gemm(f"{stage}.{self.name}", (rows, run.batch, out), (out, self.input_size))
        wgrad = gemm(f"{stage}.{self.name}", (out, rows * run.batch), (rows * run.batch, self.input_size))
        gemms = [[dgrad], [wgrad]] if run.computes else [[], []]
        if run.scatters:
            gather = run.tp_op(CommType.all_gather, self.input_size, stage)
            scatter = run.tp_op(CommType.reduce_scatter, self.input_size, stage)
            return Block([gather, *gemms[0], scatter, *gemms[1]])
        reduces = run.tp > 1 and not run.sequence_parallel
        reduce = [run.tp_op(CommType.all_reduce, self.input_size, stage)] if reduces else []
        return Block([*gemms[0], *gemms[1], *reduce])


class MegatronRowLinear(RowParallelLinear):
    """Forward: reduce-scatter under sequence parallelism, else all-reduce. Backward: gather, or nothing."""

    def __init__(self, run: Run, input_size: int, output_size: int, *, name: str, bias: bool = False) -> None:
        super().__init__(input_size, output_size, run.tp, name=name, bias=bias)
        self.run = run

    def forward(self) -> Block[LogItem]:
        run, rows = self.run, []
        if run.computes:
            first = (run.seq, run.batch, self.input_size_per_partition)
            rows.append(gemm(f"forward.MegatronRowLinear.{self.name}", first, self.weight.shape))
        if run.tp > 1:
            comm_type = CommType.reduce_scatter if run.sequence_parallel else CommType.all_reduce
            rows.append(run.tp_op(comm_type, self.output_size, "forward.MegatronRowLinear"))
        return Block(rows)

    def backward(self) -> Block[LogItem]:
        run, rows = self.run, []
        if run.scatters:
            rows.append(run.tp_op(CommType.all_gather, self.output_size, "backward.MegatronRowLinear"))
        if run.computes:
            stage = f"backward.MegatronRowLinear{self.name}"  # deviation `row_stage_dot`
            tokens, inner = run.seq * run.batch, self.input_size_per_partition
            rows.append(gemm(stage, (run.seq, run.batch, self.output_size), (self.output_size, inner)))
            rows.append(gemm(stage, (self.output_size, tokens), (tokens, inner)))
        return Block(rows)


class MegatronLinear(Linear):
    """A projection that every rank computes in full (DeepSeek's low-rank down-projections): no communication."""

    def __init__(self, run: Run, in_features: int, out_features: int, *, name: str, bias: bool = False) -> None:
        super().__init__(in_features, out_features, name=name)
        self.run = run
        if bias:
            self.bias = MockedParam((out_features,), name=f"{name}.bias")

    def forward(self) -> Block[LogItem]:
        first = (self.run.seq, self.run.batch, self.in_features)
        row = gemm(f"forward.Linear.{self.name}", first, self.weight.shape)
        return Block([row] if self.run.computes else [])

    def backward(self) -> Block[LogItem]:
        tokens = self.run.seq * self.run.batch
        row = gemm(f"backward.Linear.{self.name}", (self.out_features, tokens), (tokens, self.in_features))
        return Block([row] if self.run.computes else [])


class MegatronEmbedding(VocabParallelEmbedding):
    """One all-reduce of T each way if the vocabulary is split. Deviation `embedding_copies`: word vectors count 4x."""

    def __init__(self, run: Run, args: WorkloadArgs) -> None:
        super().__init__(args.padded_vocab_size, args.seq_length, args.hidden_size, run.tp, word_copies=4)
        self.run = run
        self.hidden_size = args.hidden_size

    def forward(self) -> Block[LogItem]:
        return self._reduce("forward.MegatronEmbedding")

    def backward(self) -> Block[LogItem]:
        return self._reduce("backward.MegatronEmbedding")

    def _reduce(self, stage: str) -> Block[LogItem]:
        rows = [self.run.tp_op(CommType.all_reduce, self.hidden_size, stage)] if self.run.tp > 1 else []
        return Block(rows)


class MoE(MockedModel):
    """Token dispatch, experts (no GEMM rows), combine. Deviation `moe_backward`: the backward pass sends nothing.

    fp8_dispatch: DeepSeek's variant, which dispatches in FP8 and has no routing all-gather.
    """

    name = "mlp_moelayer"

    def __init__(self, run: Run, args: WorkloadArgs, *, fp8_dispatch: bool) -> None:
        self.run = run
        self.ep = args.expert_model_parallel_size
        self.num_experts = args.num_experts
        self.token_elements = args.activation_bytes // ELEMENT_BYTES * args.moe_router_topk
        self.fp8_dispatch = fp8_dispatch
        self.experts = Experts(
            args.hidden_size,
            args.ffn_size,
            args.num_experts,
            ep=self.ep,
            tp=run.tp,
            matrices=3 if fp8_dispatch else 2,
            name=self.name,
        )

    def forward(self) -> Block[LogItem]:
        rows = []
        gathered = ELEMENT_BYTES * self.token_elements
        exchanged = ELEMENT_BYTES * (self.token_elements // self.run.tp)
        if not self.fp8_dispatch and (self.run.tp > 1 or self.ep > 1):
            routing = 2 * self.ep * self.num_experts * self.run.tp
            rows.append(_moe_op(CommType.all_gather, CommGroup.ep_group, routing, "preprocess"))
        if self.ep > 1:
            dispatched = exchanged * DISPATCH_FP8_FACTOR if self.fp8_dispatch else exchanged
            rows.append(_moe_op(CommType.all_to_all, CommGroup.ep_group, dispatched, "dispatch"))
        if self.run.tp > 1:
            rows.append(_moe_op(CommType.all_gather, CommGroup.tp_group, gathered, "permutation"))
            rows.append(_moe_op(CommType.reduce_scatter, CommGroup.tp_group, gathered, "unpermutation"))
        if self.ep > 1:
            rows.append(_moe_op(CommType.all_to_all, CommGroup.ep_group, exchanged, "combine"))
        return Block(rows)

    def backward(self) -> Block[LogItem]:
        return Block()


def _moe_op(comm_type: CommType, group: CommGroup, size: int | float, what: str) -> LogItem:
    """A collective row of an expert layer, `size` in bytes. Deviation `moe_group_size`: the group size is left out."""
    return LogItem(comm_type, group, None, size, f"forward.MoE.{what}")
