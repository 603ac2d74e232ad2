"""Lists the operations of one rank for one micro-batch: the rows of the framework dialect, as prediction prices them.

What runs, in which order and with which shapes is stated by workloads.dialects.framework: of Megatron-core, with
balanced experts in grouped products, or of the decoder that FSDP2 shards.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm
from typing import NamedTuple

from workloads.compute.operators import read_kernel
from workloads.dialects.framework.context import of_one_rank
from workloads.dialects.framework.decoder import layer
from workloads.dialects.framework.decoder_kernels import DecoderKernels, ModuleKernels
from workloads.dialects.framework.inference import one_pass
from workloads.dialects.framework.kernels import HEADS, ROUTER
from workloads.dialects.framework.model import Chunk, Span
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.quantised import BLOCK, CURRENT, MXFP8
from workloads.formats.simai_text import COLLECTIVES, WORDS
from workloads.job.parameters import DECODE, FP8_RECIPES, WorkloadArgs
from workloads.job.training_job import TrainingJob
from workloads.rows.calls import FLOAT8, SIZES, Call, Event
from workloads.rows.ops import CommType

FP8, FP4 = "fp8", "nvfp4"
HALF = 2
"""Bytes of an activation."""
TP, CP, EP = "tp", "cp", "ep"
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, _BROADCAST = COLLECTIVES
SEND = "SEND"
PRODUCTS, EXPERTS, HEAD, ATTENTION, MEMORY, PERMUTATION, QUANTISATION = (
    "products", "experts", "head", "attention", "memory-bound", "permutation", "quantisation",
)  # fmt: skip


class Product(NamedTuple):
    """`times` products x(m, k) @ w(n, k). master: bytes of gradients that the epilogue of a weight's gradient reads and
    writes. quantised: its operands are of FP8 or FP4, and rows of their own say what makes them; wide: always 16 bits.
    """

    part: str
    m: int
    n: int
    k: int
    times: int = 1
    master: int = 0
    of_weight: bool = False
    quantised: bool = False
    wide: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.times


class Attention(NamedTuple):
    """Causal attention of `heads` heads (times samples) over `seq` tokens; qk and v are widths of a head.

    full: share of the layers that attend to all tokens, the others to the last `window`.
    """

    seq: float
    heads: float
    qk: int
    v: int
    backward: bool
    window: int = 0
    full: float = 1.0

    @property
    def pairs(self) -> float:
        """Of a query and a key, of one head."""
        return self.full * self.seq**2 / 2 + (1 - self.full) * self.window * (self.seq - self.window / 2)

    @property
    def flops(self) -> float:
        """FlashAttention-2, arXiv:2307.08691: two products forward, five backward (2.5 times)."""
        return (2.5 if self.backward else 1.0) * 2 * self.heads * self.pairs * (self.qk + self.v)

    @property
    def products_of_backward(self) -> float:
        """FLOPs of the backward pass over those of the forward pass: three products as wide as qk, two as v."""
        return (3 * self.qk + 2 * self.v) / (self.qk + self.v)


class Decoding(NamedTuple):
    """Attention of one token to `context` tokens of `units` heads of keys and values (times sequences); widths: of a
    key and a value together; `shared` queries read each.
    """

    context: int
    units: int
    shared: int
    widths: int


class Experts(NamedTuple):
    """The experts of a rank without gradients; see kernels.experts_us."""

    copies: float
    pairs: float
    experts: int
    sizes: tuple[int, int]


class Traffic(NamedTuple):
    """Bytes read and written by operations that the memory's rate bounds, and the kernels that do it."""

    part: str
    bytes: float
    kernels: int = 1


class Collective(NamedTuple):
    """Bytes of the whole buffer of a collective in a group of ranks."""

    op: str
    group: str
    bytes: float


Operation = Product | Attention | Decoding | Experts | Traffic | Collective


@dataclass(frozen=True, slots=True)
class Part:
    """The work of a piece of the model in one micro-batch: forward, and backward."""

    forward: tuple[Operation, ...]
    backward: tuple[Operation, ...]

    @property
    def flops(self) -> float:
        """FLOPs of its products and attention."""
        return sum(op.flops for op in (*self.forward, *self.backward) if isinstance(op, Product | Attention))


class Parts(NamedTuple):
    """The pieces of a model. dense, expert: a layer of either kind, None where the model has none."""

    embedding: Part
    dense: Part | None
    expert: Part | None
    head: Part


class _Cost(NamedTuple):
    """Prices a row of the dialect: as so many kernels that move `moved` 16-bit elements for each, 0: its own bytes."""

    kernels: int = 1
    moved: float = 0


_USUAL = _Cost()
_NONE: Mapping[str, _Cost] = {}
_COSTS = {
    # Copies are made or summed with indices that are computed; probabilities pass a chain of small operators.
    "permute": _Cost(2), "routing": _Cost(12, 16), "routing_backward": _Cost(12, 16),
    "loss": _Cost(4, 2), "loss_backward": _Cost(3, 2),
}  # fmt: skip
_UNFUSED_LOSS = {"loss": _Cost(4, 6), "loss_backward": _Cost(3, 6)}
_EAGER = {
    "norm": _Cost(1, 18), "norm_backward": _Cost(1, 34), "rope": _Cost(1, 10), "rope_backward": _Cost(1, 10),
    "gated_activation": _Cost(1, 5), "gated_activation_backward": _Cost(1, 9),
    "amax": _Cost(2, 3), "quantize": _Cost(4, 13.5), "rescale": _Cost(2, 6),
}  # fmt: skip
"""Costs where no operator is fused: RMSNorm (a cast to 32 bits, square, mean, product, cast, weight), rotary
positions in 32-bit complex numbers, a gate, and FP8 (sizes, largest; cast to 32 bits, product, limits, cast).
"""
QUANTISED_BYTES = 4
"""Of an element that is read in 16 bits and written twice in eight."""
BY_ROWS = ("H100", "H200", "L40S")
"""GPUs whose FP8 products need each operand's copy in the other order; Blackwell's take either (Transformer Engine's
is_non_tn_fp8_gemm_supported).
"""
_EITHER = {"quantize_both": _Cost(1, 1.5)}
FP4_BYTES = 0.5625
"""Of an element of NVFP4, with its part of a scale for 16."""
FOUR_OF_EIGHT = FP4_BYTES / (1 + 1 / BLOCK)
"""Bytes of a gathered operand over those of MXFP8."""
_FOUR_BITS = {"quantize_both": _Cost(2, (2 * HALF + 2 * FP4_BYTES) / HALF)}
"""The largest element is looked for first."""
_FUSED = {"residual": _Cost(0), "rope": _Cost(0)}
"""Costs that inference engines pay in other kernels: the sum in the norm, positions where keys are stored."""
_CLASSES = {
    HEAD: ("loss",), PERMUTATION: ("permute", "routing"), QUANTISATION: ("amax", "quantize", "transpose", "rescale"),
}  # fmt: skip
_OPS = {CommType[call]: op for call, op in WORDS.items() if op != _BROADCAST} | {CommType.isend: SEND}
_GROUPS = {"tp": TP, "cp": CP, "ep": EP, "tp_ep": EP}


def parts(job: TrainingJob) -> Parts:
    """The pieces of the model on one rank; full recomputation begins a layer's backward with its second forward."""
    # Of a sweep's layouts many differ in what no piece depends on.
    return _parts(replace(
        job, name="", gpu=job.gpu if job.precision == FP8 else "", gpus=0, gpus_per_node=0,
        precision=job.precision if job.precision in (FP8, FP4) else "",
        power_limit=0, memory_GBps=0, pp=1, vpp=1, dp=1, micro_batches=1,
        recompute=job.recompute if job.recompute == "full" else "none", distributed_optimizer=False, overlap=False,
        positions=0,
    ))  # fmt: skip


@lru_cache(maxsize=1 << 10)
def _parts(job: TrainingJob) -> Parts:
    args = replace(_one_of_each(job), fp8_recipe=_recipe(job), activation_recompute=job.recompute)
    if job.is_torch_decoder:
        return _decoder_parts(job, replace(args, frame="FSDP2"))
    chunk = Chunk(of_one_rank(args), RankPlacement(args, 0), Span(0, args.num_layers, first=True, last=True))
    return _pieces(job, [Part(_priced(job, forward), _priced(job, backward)) for forward, backward, _ in chunk.parts()])


def _recipe(job: TrainingJob) -> str:
    """How the dialect's rows scale; NVFP4's are those of MXFP8 with other bytes."""
    if job.is_torch_decoder:
        recipe = FP8_RECIPES[2] if job.scaling == FP8_RECIPES[2] else FP8_RECIPES[1]
        return recipe if job.precision == FP8 else FP8_RECIPES[0]
    if job.of_torch or job.precision not in (FP8, FP4):
        return FP8_RECIPES[0]
    return MXFP8 if job.precision == FP4 else job.engine_scaling


def inference_parts(job: TrainingJob, phase: str) -> Parts:
    """The pieces of a pass without gradients, as Megatron-core's static batching runs it: of whole prompts of job.seq
    tokens, or in phase decode of one token of each sequence after as many.

    Experts run as in engines: in a tensor-parallel group each rank has a part of each expert, or of the experts (ep),
    and sees all tokens, for a sum gives them to all; over several (ep above tp) tokens go to experts and back.
    """
    args = replace(_one_of_each(job), phase=phase, enable_sequence_parallel=False)
    args = replace(args, world_size=job.tp, expert_model_parallel_size=1)
    span = Span(0, args.num_layers, first=True, last=True)
    chunk = Chunk(one_pass(args), RankPlacement(args, 0), span, job.seq)
    found = _pieces(
        job, [Part(_priced(job, filter(_is_engines, forward), _FUSED), ()) for forward, _, _ in chunk.parts()]
    )
    if found.expert is None:
        return found
    tokens = job.mbs * (1 if phase == DECODE else job.seq)
    return found._replace(expert=Part((*found.expert.forward, *_engine_experts(job, tokens)), ()))


def _is_engines(event: Event) -> bool:
    """Whether an inference engine does it as Megatron-core does, not so experts, what picks them and sorts tokens for
    them, and what sums those that see all.
    """
    if not isinstance(event, Call):
        return True
    apart = ".shared_experts" in event.module and not event.kernel
    return not (apart or event.module.endswith(".experts") or event.kernel.startswith(("permute", "routing")))


def _engine_experts(job: TrainingJob, tokens: int) -> tuple[Operation, ...]:
    """A layer's experts, and what is sent for `tokens` of each replica."""
    within = max(1, job.tp // job.ep)
    copies = tokens * max(1, job.ep // job.tp) * job.topk
    weights = (3 if job.gated else 2) * job.hidden * job.moe_ffn // within
    one = Experts(copies, copies / job.ep, job.experts // job.ep, (weights, job.hidden))
    whole = HALF * tokens * job.hidden
    if job.ep <= job.tp:
        return one, Collective(ALL_REDUCE, TP, whole)
    away = Collective(ALL_TO_ALL, EP, whole * min(job.topk, job.ep) / job.tp)
    shared = (Collective(ALL_REDUCE, TP, whole),) if job.shared_ffn else ()
    return away, one, away, Collective(ALL_GATHER, TP, whole), *shared


def _pieces(job: TrainingJob, found: list[Part]) -> Parts:
    layers = iter(found[1:-1])
    dense = next(layers) if job.leading_dense else None
    return Parts(found[0], dense, next(layers, None), found[-1])


def _decoder_parts(job: TrainingJob, args: WorkloadArgs) -> Parts:
    kernels = DecoderKernels(args)

    def part(modules: Iterable[ModuleKernels], forward: list[Call], backward: list[Call]) -> Part:
        modules = list(modules)
        ahead = [call for each in modules for call in (*each.before, *each.forward)]
        back = [call for each in reversed(modules) for call in (*each.backward, *each.after)]
        return Part(_priced(job, [*ahead, *forward]), _priced(job, [*backward, *back]))

    ends, whole, again = kernels.ends(), layer(args, 0), list[Call]()
    modules = list(kernels.layer(whole).values())
    if args.activation_recompute == "full":
        # torch's checkpoint ends where all that is needed is there: before the last product.
        again = [call for each in modules for call in (*each.before, *each.forward)][: -len(modules[-1].forward)]
    return Parts(
        part([ends["embed_tokens"]], [], []),
        part(modules, kernels.end(whole), again),
        None,
        part([ends["norm"], ends["lm_head"]], kernels.loss("forward"), kernels.loss("backward")),
    )


def _one_of_each(job: TrainingJob) -> WorkloadArgs:
    """The job with one layer of each kind on one stage, in the fewest ranks that hold its groups."""
    dense, expert = int(job.leading_dense > 0), int(job.leading_dense < job.layers)
    args = WorkloadArgs(
        world_size=lcm(job.tp * job.cp, job.ep), tensor_model_parallel_size=job.tp, context_parallel_size=job.cp,
        num_layers=dense + expert, hidden_size=job.hidden, ffn_hidden_size=job.ffn, num_attention_heads=job.heads,
        num_query_groups=job.kv_heads, kv_channels=job.head_dim, vocab_size=job.vocab, make_vocab_size_divisible_by=1,
        seq_length=job.seq, micro_batch=job.mbs, global_batch=job.mbs, swiglu=job.gated, cp_comm_type=job.cp_comm,
        enable_sequence_parallel=job.sp, grad_reduce_in_fp32=job.grad_bytes > HALF, computation_enable=True,
        untie_embeddings=True,
    )  # fmt: skip
    if job.latent is not None:
        at = job.latent
        args = replace(
            args, multi_latent_attention=True, qk_layernorm=True, q_lora_rank=at.q_lora, kv_lora_rank=at.kv_lora,
            qk_nope_dim=at.nope, qk_rope_dim=at.rope, v_head_dim=at.v,
        )  # fmt: skip
    if expert:
        args = replace(
            args, moe_enable=True, moe_grouped_gemm=True, num_experts=job.experts, moe_router_topk=job.topk,
            moe_ffn_hidden_size=job.moe_ffn, moe_shared_expert_size=job.shared_ffn, moe_first_dense_layers=dense,
            expert_model_parallel_size=job.ep, expert_tensor_parallel_size=1,
        )  # fmt: skip
    return args


def _priced(job: TrainingJob, events: Iterable[Event], fused: Mapping[str, _Cost] = _NONE) -> tuple[Operation, ...]:
    costs = {**_COSTS, **({} if job.fused_loss else _UNFUSED_LOSS), **(_EAGER if job.eager else {}), **fused}
    calls = [event for event in events if isinstance(event, Call)]
    if job.precision == FP4:
        costs |= _FOUR_BITS
        calls = [_in_four_bits(call) for call in calls]
    elif _takes_either_order(job):
        costs |= _EITHER
        calls = [call for call in calls if not call.kernel.startswith("transpose")]
    # What a rank receives of a ring is timed with what it sends.
    its = (_operation(call, costs) for call in calls if call.comm_type is not CommType.irecv)
    return tuple(its) if job.full_share == 1 else tuple(_windowed(job, each) for each in its)


def _takes_either_order(job: TrainingJob) -> bool:
    """Whether one copy of an operand in FP8 serves both of its products."""
    return not job.of_torch and job.gpu not in BY_ROWS and job.scaling != MXFP8


def quantised_bytes(job: TrainingJob) -> float:
    """Bytes that Transformer Engine moves for each element that it quantises, both orders and scales together."""
    if job.precision == FP4:
        return HALF * _FOUR_BITS["quantize_both"].moved
    if job.scaling == MXFP8:
        return QUANTISED_BYTES + 2 / BLOCK
    largest = HALF if job.engine_scaling == CURRENT else 0
    return largest + (HALF * _EITHER["quantize_both"].moved if _takes_either_order(job) else QUANTISED_BYTES)


def _in_four_bits(call: Call) -> Call:
    is_gathered = call.group and call.dtype == FLOAT8
    return replace(call, bytes=round(call.bytes * FOUR_OF_EIGHT)) if is_gathered else call


def _windowed(job: TrainingJob, each: Operation) -> Operation:
    """An operation of the mean layer of those with a window and those without."""
    if isinstance(each, Attention):
        return each._replace(window=job.window, full=job.full_share)
    if isinstance(each, Decoding):
        seen = job.full_share * each.context + (1 - job.full_share) * min(each.context, job.window)
        return each._replace(context=round(seen))
    return each


def _operation(call: Call, costs: dict[str, _Cost]) -> Operation:
    if not call.kernel:
        return Collective(_OPS[call.comm_type], _GROUPS[call.group], call.bytes)
    op, shape, moved = read_kernel(call.kernel)
    sizes = tuple(shape.values())
    backward = op.endswith("backward")
    if op.startswith(("gemm", "experts")):
        times, (m, k, n) = (1, sizes) if op.startswith("gemm") else (sizes[0], sizes[1:])
        part = HEAD if call.module in HEADS else EXPERTS if op.startswith("experts") else PRODUCTS
        master = moved - times * (SIZES[call.dtype] * (m * k + k * n) + HALF * m * n)
        wide = part == HEAD or call.module.endswith(ROUTER)
        return Product(part, m, n, k, times, master, op.endswith("wgrad"), call.dtype == FLOAT8, wide)
    if op == "attention_decode":
        batch, context, heads, groups, qk, v = sizes
        return Decoding(context, batch * groups, heads // groups, qk + v)
    if op.startswith("attention_part"):
        # Without a mask: as much as a causal one of a longer sequence.
        batch, queries, keys, heads, _, qk, v = sizes
        return Attention((2 * queries * keys) ** 0.5, heads * batch, qk, v, backward)
    if op.startswith("attention"):
        batch, seq, heads, _, qk, v, _ = sizes
        return Attention(seq, heads * batch, qk, v, backward)
    cost = costs.get(op, _USUAL)
    part = next((name for name, ops in _CLASSES.items() if op.startswith(ops)), MEMORY)
    return Traffic(part, HALF * cost.moved * sizes[0] * sizes[1] if cost.moved else moved, cost.kernels)
