"""Estimates the peak of memory of a rank: weights, optimizer, activations, what a layer's backward adds.

Megatron-LM: activations are those that TransformerEngine's modules keep (the terms of Korthikanti et al.,
arXiv:2205.05198, without masks of dropout, with gated MLPs, grouped heads and fused attention); held against 8 layouts
of SimuMax's B200 rows. FSDP2: those that torch's own modules keep; held against torchtitan's rows and our H100's.

FSDP2 clears gradients before each step, so they come as activations go: allocated is the largest sum of both at the
loss, in the backward pass of a layer, or when the last gradients are summed. Gradients lie in another stream's part of
the allocator, which no other tensor takes: reserved has them at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

from workloads.job import activations
from workloads.job.model_states import HALF, SINGLE, ModelStates, fully_sharded, mixed_precision, single_precision
from workloads.job.training_job import ELEMENTWISE, TrainingJob
from workloads.job.weights import StageWeights, kinds_of, layers_of, stage_weights

GIB = 2**30
RESERVED = 1.04
"""Reserved bytes over allocated ones: the median of SimuMax's rows (1.07 at the 90th percentile), and of torchtitan's
with torch.compile (1.12 without).
"""


@dataclass(frozen=True, slots=True)
class Memory:
    """GiB on the fullest rank of one stage, by part, at the peak of what is allocated."""

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    transient: float
    pooled: float = 0.0
    """Of FSDP2's other streams, whose tensors are not there at the peak."""

    @property
    def allocated(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.transient

    @property
    def at_once(self) -> float:
        """GiB that all streams need, each with a part of the allocator's of its own."""
        return self.allocated + self.pooled

    @property
    def reserved(self) -> float:
        return self.at_once * RESERVED


def memory_of(job: TrainingJob) -> list[Memory]:
    """The memory of every stage, in their order."""
    of_layers = [(_kept(job, experts=experts), _backward(job, experts=experts)) for experts in (False, True)]
    kinds = kinds_of(job)
    alike = {kind: _alike(job, kinds.index(kind), of_layers) for kind in dict.fromkeys(kinds)}
    return [_stage(job, stage, alike[kind]) for stage, kind in enumerate(kinds)]


class _Alike(NamedTuple):
    """All that stages of one kind share: bytes that a micro-batch keeps, and those that the backward pass of a layer
    and the loss add.
    """

    held: StageWeights
    states: ModelStates
    kept: float
    peak: float
    head: float


class _Moment(NamedTuple):
    """Bytes that lie beside weights and optimizer at one moment of a step."""

    gradients: float
    activations: float
    transient: float


def _alike(job: TrainingJob, stage: int, of_layers: Sequence[tuple[float, float]]) -> _Alike:
    """of_layers: bytes that a layer keeps, and those that its backward pass adds, without experts and with them."""
    held = stage_weights(job, stage)
    counts = layers_of(job, stage)
    layers = sum(count * kept for count, (kept, _) in zip(counts, of_layers, strict=True))
    peak = max([added for count, (_, added) in zip(counts, of_layers, strict=True) if count] or [0.0])
    head = 0.0
    if stage == job.pp - 1:
        # Logits and their gradient (torch's own loss: in float32, and the softmax), the head's input and its gradient.
        logits = 3 * SINGLE if job.of_torch else 2 * HALF
        head = job.tokens * (logits * job.words + 2 * HALF * job.hidden / job.split)
    return _Alike(held, _states(job, stage, held), layers, peak, head)


def _stage(job: TrainingJob, stage: int, its: _Alike) -> Memory:
    held, states, layers, peak, head = its
    unused = 0.0 if job.of_torch else HALF * sum(held.matrices)
    passing = unused + states.passing + _received(job, stage)
    at_once = _Moment(states.gradients, _live_batches(job, stage) * layers, max(peak, head) + passing)
    if job.replicated and job.recompute != activations.NONE:
        at_once = max(_of_replica(job, held, at_once, (peak, head)), key=sum)
    fullest = at_once
    if job.of_torch and not job.replicated and job.pp == 1:
        fullest = max(_moments(job, held, at_once, (peak, head)), key=sum)
    return Memory(
        stage,
        weights=states.weights / GIB,
        gradients=fullest.gradients / GIB,
        optimizer=states.optimizer / GIB,
        activations=fullest.activations / GIB,
        transient=fullest.transient / GIB,
        pooled=max(0.0, sum(at_once) - sum(fullest)) / GIB,
    )


def _moments(job: TrainingJob, held: StageWeights, all_: _Moment, added: tuple[float, float]) -> tuple[_Moment, ...]:
    """FSDP2's step: at the loss, in backward passes of layers, and when the gradients outside of the layers are summed.
    Of several micro-batches the first leaves gradients to the others.

    all_: all gradients and activations; added: what the backward pass of a layer and the loss add. The 16-bit copies
    outside of the layers stay from their first use to the backward pass, in which the head's gradient joins them. Of
    layers there are the one in use and the next one, and in float32 the gradients of the one before, which are summed;
    a layer's own gradients come as its activations go. Layers in between hold no more than one of the four at the ends.
    """
    peak, head = added
    layer, outside = held.widest, held.shared - held.layers
    copies, of_head = HALF * outside, HALF * job.vocab * job.hidden / job.tp
    left = all_.gradients if job.micro_batches > 1 else 0.0
    of_layer = all_.gradients * (held.layers + held.experts) / (held.shared + held.experts) / job.layers
    own = max(all_.activations / job.layers, HALF * layer - peak)

    def backward(done: int) -> _Moment:
        """In the backward pass of the layer before `done` others."""
        rest = all_.activations * (job.layers - 1 - done) / job.layers
        next_, summed = HALF * layer * (done < job.layers - 1), SINGLE * layer * (done > 0)
        return _Moment(max(left, done * of_layer), rest + own, peak + copies + of_head + HALF * layer + next_ + summed)

    return (
        _Moment(left, all_.activations, head + copies + (HALF * layer if job.fsdp > 1 else 0.0)),
        *(backward(done) for done in {0, 1, job.layers - 2, job.layers - 1} if 0 <= done < job.layers),
        _Moment(all_.gradients, 0.0, (SINGLE if job.fsdp == 1 else HALF + SINGLE) * outside),
    )


def _of_replica(job: TrainingJob, held: StageWeights, all_: _Moment, added: tuple[float, float]) -> tuple[_Moment, ...]:
    """A replica's step whose layers are computed again: at the loss autocast's 16-bit copies of all weights lie there,
    and no gradient of the logits; in the backward pass the copies of one layer.
    """
    peak, head = added
    loss = max(0.0, head - SINGLE * job.tokens * job.words)
    return (
        all_._replace(transient=HALF * (held.shared + held.experts) + loss),
        all_._replace(transient=HALF * (held.shared - held.layers + held.widest) + max(peak, head)),
    )


def _received(job: TrainingJob, stage: int) -> float:
    """Bytes of the buffers in which torch's stages receive activations and gradients of every micro-batch."""
    if not job.of_torch or job.pp == 1:
        return 0.0
    ways = 2 * job.vpp - (stage == 0) - (stage == job.pp - 1)
    return HALF * ways * job.micro_batches * job.tokens * job.hidden / job.split


def _states(job: TrainingJob, stage: int, held: StageWeights) -> ModelStates:
    """The bytes of weights, gradients and optimizer on a rank of a stage."""
    if job.fsdp:
        if job.replicated:
            return single_precision(held.shared + held.experts, half_copy=True)
        if job.of_torch and job.pp > 1:
            # Gathered weights and whole gradients stay until the last micro-batch (torch.distributed.pipelining).
            passing = (HALF + SINGLE) * (held.shared + held.experts)
            experts = fully_sharded(held.experts, job.expert_shards, 0, 0)
            return fully_sharded(held.shared, job.fsdp, 0, 0).plus(experts)._replace(passing=passing)
        layers, outside = sum(layers_of(job, stage)), held.shared - held.layers
        if job.of_torch and job.fsdp == 1:
            # Whoever holds the weights, the 16-bit copies of those outside of the layers stay.
            return fully_sharded(held.shared + held.experts, 1, 0, 0)._replace(passing=HALF * outside)
        layer = held.layers / max(1, layers)
        parts = [
            fully_sharded(held.shared, job.fsdp, layer, outside),
            fully_sharded(held.experts, job.expert_shards, held.experts / max(1, layers), 0.0),
        ]
    else:
        is_divided = job.distributed_optimizer
        parts = [
            mixed_precision(held.shared, job.dp * job.cp if is_divided else 1, job.grad_bytes),
            mixed_precision(held.experts, job.expert_dp if is_divided else 1, job.grad_bytes),
        ]
    return reduce(ModelStates.plus, parts)


def _live_batches(job: TrainingJob, stage: int) -> float:
    """Micro-batches whose activations a stage holds at most, in micro-batches of all its layers (1F1B).

    Interleaved: (pp - 1) / (pp vpp) more on the first stage, arXiv:2104.04473, section 2.2: the chunks of its warm-up
    and the next one.
    """
    most = job.pp - stage
    if job.vpp > 1:
        return min(job.micro_batches, (2 * (job.pp - stage - 1) + (job.vpp - 1) * job.pp + 1) / job.vpp)
    return min(most, job.micro_batches)


def _kept(job: TrainingJob, *, experts: bool) -> float:
    """Bytes of a layer's activations that one micro-batch keeps until its backward pass."""
    return job.tokens * sum(activations.kept(_widths(job, experts=experts), _recomputed(job), _keeping(job)).values())


def _keeping(job: TrainingJob) -> activations.Keeping:
    if not job.eager:
        return activations.COMPILED if job.of_torch else activations.FUSED
    return activations.AUTOCAST if job.autocast else activations.EAGER


def _recomputed(job: TrainingJob) -> str:
    """Megatron-LM's selective recomputation repeats what fused attention does not keep."""
    if job.recompute in (activations.NONE, activations.FULL):
        return job.recompute
    if not job.of_torch:
        return activations.NONE
    return activations.ELEMENTWISE if job.recompute == ELEMENTWISE else activations.OPERATORS


def _widths(job: TrainingJob, *, experts: bool) -> activations.LayerWidths:
    sizes = activations.DecoderSizes(
        job.hidden, job.heads, job.kv_heads, job.head_dim, job.shared_ffn if experts else job.ffn, job.gated
    )
    found = activations.decoder_widths(sizes, job.tp, job.split)
    if job.latent is not None:
        at = job.latent
        queries, values = job.heads * (at.nope + at.rope) / job.tp, job.heads * at.v / job.tp
        found = found._replace(
            queries=queries, keys=queries, values=values, attended=values,
            compressed=2 * at.q_lora + 2 * at.kv_lora + at.rope,
        )  # fmt: skip
    if not experts:
        return found
    routed = activations.Experts(job.topk / job.split, job.hidden, job.moe_ffn, job.experts / job.split)
    return found._replace(experts=routed)


def _backward(job: TrainingJob, *, experts: bool) -> float:
    """Bytes that the backward pass of one layer adds: the gradients of its widest tensors."""
    gates = 2 if job.gated else 1
    if experts:
        copies = job.tokens * job.topk / job.split
        return copies * HALF * (4 * job.hidden + (gates + 1) * job.moe_ffn)
    is_again = job.recompute == "full" or (job.of_torch and job.recompute != "none")
    again = _kept(job.without_recompute(), experts=False) if is_again else 0.0
    gathered = HALF * job.hidden * (1 if job.tp == 1 else 2)
    return again + job.tokens * (HALF * gates * job.ffn / job.tp + gathered)
