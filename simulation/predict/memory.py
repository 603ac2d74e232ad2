"""Estimates the peak of memory of a Megatron-LM rank: weights, optimizer, activations, what a layer's backward adds.

Activations are those that TransformerEngine's modules keep (the terms of Korthikanti et al., arXiv:2205.05198, without
masks of dropout, with gated MLPs, grouped heads and fused attention). Held against 8 layouts of SimuMax's B200 rows.
"""

from dataclasses import dataclass

from simulation.predict.job import TrainingJob
from simulation.predict.weights import layers_of, stage_weights

GIB = 2**30
HALF, SINGLE = 2, 4
RESERVED = 1.04
"""Reserved bytes over allocated ones: the median of SimuMax's rows; 1.07 at the 90th percentile."""


@dataclass(frozen=True, slots=True)
class Memory:
    """GiB on the fullest rank of one stage, by part."""

    stage: int
    weights: float
    gradients: float
    optimizer: float
    activations: float
    transient: float

    @property
    def allocated(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.activations + self.transient

    @property
    def reserved(self) -> float:
        return self.allocated * RESERVED


def memory_of(job: TrainingJob) -> list[Memory]:
    """The memory of every stage, in their order."""
    return [_stage(job, stage) for stage in range(job.pp)]


def fullest(job: TrainingJob) -> Memory:
    """The stage whose ranks hold most."""
    return max(memory_of(job), key=lambda each: each.allocated)


def _stage(job: TrainingJob, stage: int) -> Memory:
    held = stage_weights(job, stage)
    shards = job.dp * job.cp if job.distributed_optimizer or job.fsdp else 1
    expert_shards = job.expert_dp if job.distributed_optimizer or job.fsdp else 1
    of_all = shards if job.fsdp else 1
    of_experts = expert_shards if job.fsdp else 1
    resident = held.shared / of_all + held.experts / of_experts
    dense, expert = layers_of(job, stage)
    live = _live_batches(job, stage)
    layers = dense * _kept(job, experts=False) + expert * _kept(job, experts=True)
    peak = max([_backward(job, experts=kind) for kind, count in ((False, dense), (True, expert)) if count] or [0.0])
    if stage == job.pp - 1:
        # Logits and their gradient, the input of the head and its gradient.
        head = job.tokens * (2 * HALF * job.vocab / job.tp + 2 * HALF * job.hidden / job.split)
        peak = max(peak, head)
    unused = 0.0 if job.fsdp else HALF * sum(held.matrices)
    if job.fsdp:  # two layers put together, and the gradients of one
        peak += (2 * HALF + SINGLE) * max(held.matrices, default=0.0) * 2
    return Memory(
        stage,
        weights=HALF * resident / GIB,
        gradients=job.grad_bytes * resident / GIB,
        optimizer=3 * SINGLE * (held.shared / shards + held.experts / expert_shards) / GIB,
        activations=live * layers / GIB,
        transient=(peak + unused) / GIB,
    )


def _live_batches(job: TrainingJob, stage: int) -> float:
    """Micro-batches whose activations a stage holds at most, in micro-batches of all its layers (1F1B).

    Interleaved: (pp - 1) / (pp vpp) more on the first stage, arXiv:2104.04473, section 2.2.
    """
    most = job.pp - stage
    if job.vpp > 1:
        return min(job.micro_batches, 1 + (2 * (job.pp - stage - 1) + (job.vpp - 1) * job.pp) / job.vpp)
    return min(most, job.micro_batches)


def _kept(job: TrainingJob, *, experts: bool) -> float:
    """Bytes of a layer's activations that one micro-batch keeps until its backward pass."""
    if job.recompute == "full":
        return job.tokens * HALF * job.hidden / job.split
    kept = 4 * HALF * job.hidden / job.split + _attention_kept(job)
    if experts:
        copies = job.topk / job.split
        gates = 2 if job.gated else 1
        kept += copies * HALF * (job.hidden + (gates + 1) * job.moe_ffn) + 2 * SINGLE * job.experts / job.split
    kept += _mlp_kept(job, job.shared_ffn if experts else job.ffn)
    return job.tokens * kept


def _attention_kept(job: TrainingJob) -> float:
    """Bytes a token: queries, keys, values, output, and the sums of the softmax."""
    if job.latent is not None:
        at = job.latent
        query, value = job.heads * (at.nope + at.rope), job.heads * at.v
        small = 2 * at.q_lora + 2 * at.kv_lora + at.rope
        return HALF * small + (HALF * (2 * query + 2 * value) + SINGLE * job.heads) / job.tp
    width = job.heads * job.head_dim
    return (HALF * (2 * width + 2 * job.kv_heads * job.head_dim) + SINGLE * job.heads) / job.tp


def _mlp_kept(job: TrainingJob, ffn: int) -> float:
    return HALF * ((2 if job.gated else 1) + 1) * ffn / job.tp


def _backward(job: TrainingJob, *, experts: bool) -> float:
    """Bytes that the backward pass of one layer adds: the gradients of its widest tensors."""
    gates = 2 if job.gated else 1
    if experts:
        copies = job.tokens * job.topk / job.split
        return copies * HALF * (4 * job.hidden + (gates + 1) * job.moe_ffn)
    again = _kept(job.without_recompute(), experts=False) if job.recompute == "full" else 0.0
    gathered = HALF * job.hidden * (1 if job.tp == 1 else 2)
    return again + job.tokens * (HALF * gates * job.ffn / job.tp + gathered)
