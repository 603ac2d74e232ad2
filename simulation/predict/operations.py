"""Lists the operations of one rank for one micro-batch: matrix products, attention, memory traffic, collectives.

Shapes follow Megatron-LM: sequence parallelism beside tensor parallelism, fused SwiGLU, TransformerEngine's norms;
context parallelism by all-to-all or ring; experts by all-to-all with a capacity factor of 1. Bytes are those of 16-bit
activations. A product's FLOPs are 2 m n k; attention's those of a causal mask (half of the full square).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from simulation.predict.job import TrainingJob

HALF = 2
"""Bytes of an activation."""
EAGER_NORM, EAGER_ROPE, EAGER_GATE = (18, 34), 10, (5, 9)
"""16-bit elements that torch's operators one by one move for each element: RMSNorm forward (a cast to 32 bits, square,
mean, product, cast, weight) and backward, rotary positions in 32-bit complex numbers, a gate forward and backward.
"""
TP, CP, EP = "tp", "cp", "ep"
ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, ALL_TO_ALL = "ALLGATHER", "REDUCESCATTER", "ALLREDUCE", "ALLTOALL"
PRODUCTS, EXPERTS, HEAD, ATTENTION, MEMORY, PERMUTATION = (
    "products", "experts", "head", "attention", "memory-bound", "permutation",
)  # fmt: skip


class Product(NamedTuple):
    """`times` products x(m, k) @ w(k, n). master: bytes of float32 gradients that its epilogue reads and writes."""

    part: str
    m: int
    n: int
    k: int
    times: int = 1
    master: int = 0

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k * self.times


class Attention(NamedTuple):
    """Causal attention of `heads` heads (times samples) over `seq` tokens; qk and v are widths of a head."""

    seq: int
    heads: float
    qk: int
    v: int
    backward: bool

    @property
    def flops(self) -> float:
        """FlashAttention-2, arXiv:2307.08691: two products forward, five backward (2.5 times)."""
        return (2.5 if self.backward else 1.0) * self.heads * self.seq**2 * (self.qk + self.v)


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


Operation = Product | Attention | Traffic | Collective


@dataclass(frozen=True, slots=True)
class Part:
    """The work of a piece of the model in one micro-batch: forward, and backward."""

    forward: tuple[Operation, ...]
    backward: tuple[Operation, ...]

    @property
    def flops(self) -> float:
        """FLOPs of its products and attention."""
        return sum(op.flops for op in (*self.forward, *self.backward) if isinstance(op, Product | Attention))


def dense_layer(job: TrainingJob) -> Part:
    """A layer whose MLP is dense."""
    return _joined([_attention_block(job), _mlp(job, job.ffn), _around(job)])


def expert_layer(job: TrainingJob) -> Part:
    """A layer whose MLP is experts, with shared ones where the model has them."""
    pieces = [_attention_block(job), _experts(job), _around(job)]
    if job.shared_ffn:
        pieces.append(_mlp(job, job.shared_ffn))
    return _joined(pieces)


def head(job: TrainingJob) -> Part:
    """The last norm, the product with the vocabulary, and cross entropy."""
    width = job.vocab // job.tp
    logits = job.tokens * width
    traffic = Traffic(HEAD, logits * HALF * (2 if job.fused_loss else 6), 4)
    piece = _linear(job, HEAD, job.hidden, width, 1)
    gather = Collective(ALL_GATHER, TP, job.tokens * job.hidden * HALF)
    forward = [*piece.forward, traffic, *([gather] if job.tp > 1 else [])]
    backward = [*piece.backward, Traffic(HEAD, logits * HALF * (2 if job.fused_loss else 6), 3)]
    if job.tp > 1:
        backward += [gather, gather._replace(op=REDUCE_SCATTER)]
    return Part(tuple(forward), tuple(backward))


def embedding(job: TrainingJob) -> Part:
    """The look-up of the tokens and its gradient."""
    moved = job.tokens * job.hidden * HALF
    scatter = [Collective(REDUCE_SCATTER, TP, moved)] if job.tp > 1 else []
    gather = [Collective(ALL_GATHER, TP, moved)] if job.tp > 1 else []
    return Part((Traffic(MEMORY, 2 * moved), *scatter), (Traffic(MEMORY, 5 * moved), *gather))


def _attention_block(job: TrainingJob) -> Part:
    if job.latent is not None:
        return _latent_attention(job)
    heads, groups = job.heads // job.tp, max(1, job.kv_heads // job.tp)
    width, kv = heads * job.head_dim, groups * job.head_dim
    qkv = _linear(job, PRODUCTS, job.hidden, width + 2 * kv, 1)
    out = _linear(job, PRODUCTS, width, job.hidden, 1)
    rope = Traffic(MEMORY, (EAGER_ROPE if job.eager else 2) * job.tokens * (width + kv) * HALF, 2)
    split = Traffic(MEMORY, 2 * job.tokens * (width + 2 * kv) * HALF, 2)
    core = list(_core(job, heads, job.head_dim, job.head_dim, width, kv))
    return Part(
        (*qkv.forward, rope, split, *core[0], *out.forward, *_tensor_forward(job)),
        (*out.backward, *core[1], rope, split, *qkv.backward, *_tensor_backward(job)),
    )


def _latent_attention(job: TrainingJob) -> Part:
    """Multi-head latent attention: DeepSeek-V2, arXiv:2405.04434, section 2.1."""
    assert job.latent is not None
    at, heads = job.latent, job.heads // job.tp
    query = heads * (at.nope + at.rope)
    queries = [(job.hidden, at.q_lora), (at.q_lora, query)] if at.q_lora else [(job.hidden, query)]
    pieces = [
        *(_linear(job, PRODUCTS, inner, outer, 1) for inner, outer in queries),
        _linear(job, PRODUCTS, job.hidden, at.kv_lora + at.rope, 1),
        _linear(job, PRODUCTS, at.kv_lora, heads * (at.nope + at.v), 1),
        _linear(job, PRODUCTS, heads * at.v, job.hidden, 1),
    ]
    norms = Traffic(MEMORY, 2 * job.tokens * (at.q_lora + at.kv_lora) * HALF, len(queries))
    # The keys are put together of two parts, rotated, and the values copied: each read and written once.
    rope = Traffic(MEMORY, 2 * job.tokens * (2 * query + heads * at.v) * HALF, 4)
    forward, backward = _core(job, heads, at.nope + at.rope, at.v, query, query)
    return Part(
        (*(op for each in pieces for op in each.forward), norms, rope, *forward, *_tensor_forward(job)),
        (*(op for each in pieces for op in each.backward), norms, norms, rope, *backward, *_tensor_backward(job)),
    )


def _core(
    job: TrainingJob, heads: int, qk: int, v: int, width: int, kv: int
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Attention itself, forward and backward, with what context parallelism sends."""
    whole = job.seq
    shared = heads * job.mbs / job.cp
    sent: list[Operation] = []
    if job.cp > 1 and job.cp_comm == "a2a":
        # Queries, keys, values to heads, and the output back to tokens.
        size = job.tokens * (2 * width + 2 * kv) * HALF
        sent = [Collective(ALL_TO_ALL, CP, size), Traffic(MEMORY, 2 * size, 4)]
    elif job.cp > 1:
        sent = [Collective(ALL_GATHER, CP, job.tokens * 2 * kv * HALF * job.cp)]
    return (
        (Attention(whole, shared, qk, v, backward=False), *sent),
        (Attention(whole, shared, qk, v, backward=True), *sent),
    )


def _mlp(job: TrainingJob, ffn: int) -> Part:
    width = ffn // job.tp
    gates = 2 if job.gated else 1
    first = _linear(job, PRODUCTS, job.hidden, gates * width, 1)
    second = _linear(job, PRODUCTS, width, job.hidden, 1)
    elements = job.tokens * width * HALF
    moved = EAGER_GATE if job.eager and job.gated else (gates + 1, 2 * gates + 1)
    act, act_back = (Traffic(MEMORY, each * elements) for each in moved)
    return Part(
        (*first.forward, act, *second.forward, *_tensor_forward(job)),
        (*second.backward, act_back, *first.backward, *_tensor_backward(job)),
    )


def _experts(job: TrainingJob) -> Part:
    """Routed experts, balanced, each with a capacity factor of 1."""
    local = job.experts // job.ep
    copies = job.tokens * job.topk // job.split
    each = max(1, copies // local)
    gates = 2 if job.gated else 1
    first = _linear(job, EXPERTS, job.hidden, gates * job.moe_ffn, local, each)
    second = _linear(job, EXPERTS, job.moe_ffn, job.hidden, local, each)
    moved = copies * job.hidden * HALF
    sent = [Collective(ALL_TO_ALL, EP, moved)] * 2 if job.ep > 1 else []
    # Copies are made, sorted by expert on arrival, and weighted sums taken: each reads and writes.
    sort = Traffic(PERMUTATION, 2 * 4 * moved, 8)
    router = Product(PRODUCTS, job.tokens, job.experts, job.hidden)
    gate = Traffic(PERMUTATION, job.tokens * job.experts * 4 * 8, 12)
    elements = copies * job.moe_ffn * HALF
    return Part(
        (router, gate, sort, *sent, *first.forward, Traffic(MEMORY, (gates + 1) * elements), *second.forward),
        (
            *second.backward, Traffic(MEMORY, (2 * gates + 1) * elements), *first.backward, *sent, sort, gate,
            router, router,
        ),
    )  # fmt: skip


def _around(job: TrainingJob) -> Part:
    """Two norms and two sums with the residual, over the tokens that a rank keeps between its blocks."""
    kept = job.tokens // job.split * job.hidden * HALF
    norm, norm_back = EAGER_NORM if job.eager else (2, 3)
    return Part((Traffic(MEMORY, 2 * (norm + 3) * kept, 4),), (Traffic(MEMORY, 2 * (norm_back + 3) * kept, 4),))


def _linear(job: TrainingJob, part: str, inner: int, outer: int, count: int, tokens: int | None = None) -> Part:
    """A linear layer of `count` weights (inner x outer): its product, and the two of its gradients."""
    rows = job.tokens if tokens is None else tokens
    master = count * inner * outer * 2 * job.grad_bytes
    return Part(
        (Product(part, rows, outer, inner, count),),
        (Product(part, rows, inner, outer, count), Product(part, outer, inner, rows, count, master)),
    )


def _tensor_forward(job: TrainingJob) -> Iterator[Operation]:
    """The messages of tensor parallelism for one block forward: before its first product and after its last."""
    if job.tp > 1:
        size = job.tokens * job.hidden * HALF
        if job.sp:
            yield Collective(ALL_GATHER, TP, size)
            yield Collective(REDUCE_SCATTER, TP, size)
        else:
            yield Collective(ALL_REDUCE, TP, size)


def _tensor_backward(job: TrainingJob) -> Iterator[Operation]:
    """The same backward; with sequence parallelism the input is gathered again for the gradient of the weights."""
    yield from _tensor_forward(job)
    if job.tp > 1 and job.sp:
        yield Collective(ALL_GATHER, TP, job.tokens * job.hidden * HALF)


def _joined(parts: list[Part]) -> Part:
    return Part(tuple(op for part in parts for op in part.forward), tuple(op for part in parts for op in part.backward))
