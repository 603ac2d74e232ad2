"""AICB's SimAI text for Megatron and DeepSeek: a walk over the model's layers, once per micro-batch.

Without AIOB times each row computes for 1 ns and AICB's older generator decides the communication; with them the newer
one does, and the two disagree (deviations `simai_plain_*` and `simai_aiob_*`).
"""

from abc import ABC, abstractmethod

from workloads.compute.aiob import DEEPSEEK, CompFile
from workloads.dialects.aicb import derived
from workloads.dialects.aicb.layers import DISPATCH_FP8_FACTOR
from workloads.dialects.aicb.transformer import DeepSeekMoE, TransformerModel
from workloads.dialects.layers import Experts
from workloads.dialects.model import MockedModel, Stack
from workloads.formats.simai import SimaiHeader, SimaiWorkload
from workloads.formats.simai_text import (
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    DP_EP,
    EP,
    IDLE,
    NONE,
    REDUCESCATTER,
    Phase,
    WorkItem,
)
from workloads.job.parameters import ELEMENT_BYTES, GRADIENT_BYTES, WorkloadArgs
from workloads.rows.blocks import Block

MOE = "mlp_moelayer"
BLOCKS = ("embedding_layer", "attention_layer", "mlp_layer")


def generate(args: WorkloadArgs, times: CompFile | None) -> SimaiWorkload:
    """The text for one iteration. times: None for the generator without AIOB."""
    walk: _Walk = _PlainWalk(args) if times is None else _AiobWalk(args, times)
    rows: Block[WorkItem] = Block([*walk.head(), walk.micro_batches(), *_tail(args)])
    return SimaiWorkload(_header(args), rows, args)


def _header(args: WorkloadArgs) -> SimaiHeader:
    """Deviations `simai_vpp` (layers per stage where SimAI wants virtual stages) and `simai_pp_comm_float`."""
    pp_comm: int | float = 0
    if args.pipeline_model_parallel > 1:
        pp_comm = args.activation_bytes
        if args.enable_sequence_parallel:
            pp_comm = args.activation_bytes / args.tensor_model_parallel_size
    return SimaiHeader(
        tp=args.tensor_model_parallel_size,
        ep=args.expert_model_parallel_size,
        pp=args.pipeline_model_parallel,
        vpp=derived.layers_per_stage(args),
        ga=args.num_microbatches,
        all_gpus=args.world_size,
        pp_comm=pp_comm,
    )


def _tail(args: WorkloadArgs) -> list[WorkItem]:
    """Loss and optimizer reductions, which take no compute time."""
    still = Phase(0)
    loss = Phase(0, ALLREDUCE, 4 * args.micro_batch * args.seq_length)
    small = Phase(0, ALLREDUCE, 4)
    rows = [WorkItem(f"cross_entropy{number}", loss, still, still) for number in (1, 2, 3)]
    return rows + [WorkItem(f"optimizer{number}", small, still, still) for number in (1, 2, 3, 4)]


class _Walk(ABC):
    """Shared by both generators: with sequence parallelism AICB's walk stops at leaves, else at whole blocks."""

    def __init__(self, args: WorkloadArgs) -> None:
        self.args = args
        self.tp = args.tensor_model_parallel_size
        self.size = args.activation_bytes
        self.model = TransformerModel(args)
        self.parameters, self.expert_parameters = self._count(self.model)

    @abstractmethod
    def head(self) -> list[WorkItem]:
        """Gradient and parameter rows before the first micro-batch."""

    @abstractmethod
    def micro_batches(self) -> Block[WorkItem]:
        """The layers, once per micro-batch."""

    @abstractmethod
    def rows(self, name: str) -> list[WorkItem]:
        """The rows of a layer that the walk stops at."""

    def stops_at(self, module: MockedModel) -> bool:
        if self.args.enable_sequence_parallel:
            return not module.child_modules()
        return module.name in BLOCKS

    def walk(self, module: MockedModel) -> Block[WorkItem]:
        if self.stops_at(module):
            return Block(self.rows(module.name))
        rows: Block[WorkItem] = Block([self.walk(child) for child in module.child_modules()])
        return rows.times(module.count) if isinstance(module, Stack) else rows

    def _count(self, module: MockedModel) -> tuple[int, int]:
        """Parameters of all layers, and of the MoE layers. Deviation `simai_shared_experts`: counted in both."""
        if self.stops_at(module):
            numel = module.numel()
            return numel, numel if isinstance(module, Experts) else 0
        counts = [self._count(child) for child in module.child_modules()]
        total, experts = sum(total for total, _ in counts), sum(experts for _, experts in counts)
        if isinstance(module, DeepSeekMoE):
            return total + total - experts, total
        repeat = module.count if isinstance(module, Stack) else 1
        return repeat * total, repeat * experts

    def expert_gradients(self) -> list[WorkItem]:
        """Deviation `simai_moe_rows`: dense models have these rows, too, with 0 bytes."""
        if self.args.expert_model_parallel_size == self.args.data_parallel_size:
            return []
        gather = Phase(1, ALLGATHER, ELEMENT_BYTES * self.expert_parameters, DP_EP)
        scatter = Phase(1, REDUCESCATTER, GRADIENT_BYTES * self.expert_parameters, DP_EP)
        return [
            WorkItem("moe_grad_norm1", weight_gradient=gather),
            WorkItem("moe_grad_norm2", weight_gradient=scatter),
        ]

    def layernorm(self) -> list[WorkItem]:
        """Deviation `simai_layernorm`: all parameters are reduced, and only without sequence parallelism."""
        if self.args.enable_sequence_parallel:
            return []
        return [WorkItem("layernorm", input_gradient=Phase(1, ALLREDUCE, ELEMENT_BYTES * self.parameters))]

    def moe(self, compute: int, *, shares: bool, exchanges: bool) -> list[WorkItem]:
        """The five rows of an expert layer. compute: ns in the first row.

        shares, exchanges: whether there are collectives over tp, and over ep; the first row needs either.
        """
        args = self.args
        routing = 2 * args.expert_model_parallel_size * args.num_experts * self.tp
        exchanged = self.size * args.moe_router_topk // self.tp
        dispatched = int(exchanged * DISPATCH_FP8_FACTOR) if args.frame == "DeepSeek" else exchanged
        gather = Phase(1, ALLGATHER, self.size * args.moe_router_topk) if shares else IDLE
        scatter = Phase(1, REDUCESCATTER, self.size * args.moe_router_topk) if shares else IDLE
        route = Phase(compute, ALLGATHER, routing) if shares or exchanges else Phase(compute)
        dispatch = Phase(1, ALLTOALL, dispatched, EP) if exchanges else IDLE
        combine = Phase(1, ALLTOALL, exchanged, EP) if exchanges else IDLE
        return [
            WorkItem(MOE, route, Phase(compute)),
            WorkItem(MOE, dispatch, combine),
            WorkItem(MOE, gather, scatter),
            WorkItem(MOE, scatter, gather),
            WorkItem(MOE, combine, combine),
        ]


class _PlainWalk(_Walk):
    """Without AIOB times. Deviations `simai_plain_groups` and `simai_plain_backward`."""

    def head(self) -> list[WorkItem]:
        gather = Phase(1, ALLGATHER, ELEMENT_BYTES * self.parameters)
        scatter = Phase(1, REDUCESCATTER, GRADIENT_BYTES * self.parameters)
        gradients = WorkItem("grad_norm", gather, weight_gradient=scatter)
        return [gradients, *self.layernorm(), *self.expert_gradients()]

    def micro_batches(self) -> Block[WorkItem]:
        embedding = ELEMENT_BYTES * self.args.vocab_size * self.args.hidden_size
        ends = WorkItem("embedding_norm", Phase(1, ALLREDUCE, embedding))
        return Block([self.walk(self.model), ends], max(0, self.args.num_microbatches))

    def rows(self, name: str) -> list[WorkItem]:
        if name == MOE:
            return self.moe(1, shares=True, exchanges=True)
        size = self.size * 2 if self.args.recompute_activations and "attention" in name else self.size
        if name in BLOCKS and not self.args.enable_sequence_parallel:
            return [WorkItem(name, Phase(1, ALLREDUCE, size), Phase(1, ALLREDUCE, self.size))]
        if name == "embedding_layer":
            return [WorkItem(name, Phase(1, NONE, self.size), Phase(1, NONE, self.size))]
        if name.endswith("column"):
            return [WorkItem(name, Phase(1, ALLGATHER, size))]
        if name.endswith("row"):
            return [WorkItem(name, Phase(1, REDUCESCATTER, size), Phase(1, NONE, self.size))]
        return []


class _AiobWalk(_Walk):
    """With AIOB times. Deviations `simai_aiob_backward`, `simai_aiob_head` and `simai_aiob_embedding`."""

    def __init__(self, args: WorkloadArgs, times: CompFile) -> None:
        super().__init__(args)
        self.times = times
        self.stale = self.grad_backward = times.average_ns("param_time")

    def head(self) -> list[WorkItem]:
        dense = self.parameters - self.expert_parameters
        compute = self.times.minimum_ns("param_time") + self.grad_backward
        return [
            WorkItem("grad_gather", weight_gradient=Phase(1, ALLGATHER, ELEMENT_BYTES * dense)),
            WorkItem("grad_param_comm", weight_gradient=Phase(1, REDUCESCATTER, GRADIENT_BYTES * dense)),
            WorkItem("grad_param_compute", input_gradient=Phase(compute)),
            *self.layernorm(),
            WorkItem("embedding_grads", input_gradient=self._shared(ALLREDUCE, 1, self.size)),
            *self.expert_gradients(),
        ]

    def micro_batches(self) -> Block[WorkItem]:
        count = self.args.num_microbatches
        if count < 1:
            return Block()
        first = self.walk(self.model)
        *_, last = first
        self.stale = last.weight_gradient.compute_ns
        return Block([first, self.walk(self.model).times(count - 1)])

    def rows(self, name: str) -> list[WorkItem]:
        if name == MOE:
            exchanges = self.args.expert_model_parallel_size > 1
            return self.moe(self.times.mlp_ns(), shares=self.tp > 1, exchanges=exchanges)
        if name == "embedding_layer":
            forward = self._shared(ALLREDUCE, self.times.average_ns("Emb"), self.size)
            return [WorkItem(name, forward, IDLE, Phase(self.stale))]
        if name in BLOCKS:
            compute = self._block_ns(name)
            forward = self._shared(ALLREDUCE, compute, self.size)
            return [WorkItem(name, forward, Phase(compute), Phase(compute))]
        if name.endswith("column"):
            forward_ns, backward_ns = self._half_ns(name)
            forward = self._shared(ALLGATHER, forward_ns, self.size)
            return [WorkItem(name, forward, self._shared(REDUCESCATTER, backward_ns, 0), Phase(backward_ns))]
        if name.endswith("row"):
            forward_ns, backward_ns = self._half_ns(name)
            forward = self._shared(REDUCESCATTER, forward_ns, self.size)
            return [WorkItem(name, forward, self._shared(ALLGATHER, backward_ns, self.size), Phase(backward_ns))]
        if name in DEEPSEEK:
            compute = self.times.average_ns(name)
            doubled = 2 if self.args.recompute_activations else 1
            return [WorkItem(name, Phase(doubled * compute), Phase(compute), Phase(compute))]
        return []

    def _block_ns(self, name: str) -> int:
        if name.startswith("mlp"):
            return self.times.mlp_ns()
        return self.times.attention_ns(recompute=self.args.recompute_activations)

    def _half_ns(self, name: str) -> tuple[int, int]:
        """Forward and backward ns of one of a block's two projections: half the block, or DeepSeek's own section.

        Deviations `simai_aiob_recompute` (the forward time doubles), `simai_aiob_latent` (halved although it is whole).
        """
        doubled = 2 if self.args.recompute_activations and "attention" in name else 1
        whole = self.times.average_ns(name) if name in DEEPSEEK else self._block_ns(name)
        return doubled * whole // 2, whole // 2

    def _shared(self, comm: str, compute: int, size: int) -> Phase:
        """A tensor-parallel collective of `size` bytes, or none if there is one tensor rank."""
        return Phase(compute, comm, size) if self.tp > 1 else Phase(compute)
