"""Lists what of a job cannot be traced, and why: all mistakes at once, before a framework is started."""

from collections.abc import Iterator

from workloads.job import refusals
from workloads.job.parameters import CP_COMM_TYPES, FSDP_UNITS, TRAINING, WORKLOAD_PHASES
from workloads.job.routing import routing
from workloads.rows.ranks import MOST_RANKS
from workloads.trace.job import TraceJob

FRAMES = ("Megatron", "FSDP2", "DeepSpeed")
CHOICES = {
    "phase": WORKLOAD_PHASES,
    "activation_recompute": ("none", "selective", "full"),
    "position_embedding": ("rope", "learned_absolute", "none"),
    "normalization": ("RMSNorm", "LayerNorm"),
    "dtype": ("bfloat16", "float16"),
    "fsdp_units": FSDP_UNITS,
    "cp_comm_type": CP_COMM_TYPES,
}
POSITIVE = (
    "world_size", "tensor_model_parallel_size", "pipeline_model_parallel", "virtual_pipeline", "micro_batch",
    "expert_model_parallel_size", "context_parallel_size", "num_microbatches", "iterations", "hidden_size",
    "num_layers", "seq_length", "num_attention_heads", "vocab_size", "replicate",
)  # fmt: skip


def problems(job: TraceJob) -> list[str]:
    """Every reason not to trace the job; where sizes are below 1 or beyond what can be counted, only these."""
    found = [f"{name} is {getattr(job, name)}; it is at least 1" for name in POSITIVE if getattr(job, name) < 1]
    if job.world_size > MOST_RANKS:
        found.append(f"world_size is {job.world_size}; it is at most {MOST_RANKS}")
    found += refusals.too_many(job)
    if found:
        return found
    found += refusals.clipping(job)
    for name, allowed in CHOICES.items():
        if getattr(job, name) not in allowed:
            found.append(f"{name} is {getattr(job, name)!r}, none of {', '.join(allowed)}")
    if not 0 <= job.rank < job.world_size:
        found.append(f"rank {job.rank} is none of the ranks 0 to {job.world_size - 1}")
    found += _shapes(job)
    found += _megatron(job) if job.frame == "Megatron" else _sharded(job)
    return found


def _shapes(job: TraceJob) -> Iterator[str]:
    """Reasons in the heads and the numbers' type."""
    if job.kv_channels is not None and job.kv_channels < 1:
        yield f"kv_channels is {job.kv_channels}; it is at least 1"
    if job.hidden_size % job.num_attention_heads and (job.kv_channels is None or job.frame != "Megatron"):
        yield f"hidden_size {job.hidden_size} is no multiple of num_attention_heads {job.num_attention_heads}"
    if job.dtype != "bfloat16" and job.frame != "DeepSpeed":
        yield f"dtype {job.dtype} is traced with frame DeepSpeed alone, others with bfloat16"


def _megatron(job: TraceJob) -> Iterator[str]:
    tp, pp, ep = job.tensor_model_parallel_size, job.pipeline_model_parallel, job.expert_model_parallel_size
    cp = job.context_parallel_size
    if job.world_size % (tp * pp * cp):
        yield f"world_size {job.world_size} is no multiple of tp * pp{' * cp' * (cp > 1)} = {tp * pp * cp}"
    yield from refusals.context_parallelism(job)
    if job.virtual_pipeline > 1 and pp == 1:
        yield f"virtual_pipeline {job.virtual_pipeline} needs more than one pipeline stage"
    yield from refusals.overlapped(job)
    yield from refusals.without_gradients(job)
    if job.enable_sequence_parallel and tp == 1:
        yield "enable_sequence_parallel needs tensor_model_parallel_size above 1"
    if not job.num_experts:
        if ep > 1:
            yield f"expert_model_parallel_size {ep} needs num_experts"
    else:
        yield from _experts(job)


def _experts(job: TraceJob) -> Iterator[str]:
    tp, pp, ep = job.tensor_model_parallel_size, job.pipeline_model_parallel, job.expert_model_parallel_size
    if job.world_size % (job.expert_tp * ep * pp):
        yield f"world_size {job.world_size} is no multiple of expert tp * ep * pp = {job.expert_tp * ep * pp}"
    if tp > 1 and not job.enable_sequence_parallel and job.phase == TRAINING:
        yield "experts with tensor parallelism need enable_sequence_parallel"
    if job.moe_token_dispatcher not in refusals.DISPATCHERS:
        yield refusals.dispatcher(job.moe_token_dispatcher)
    try:
        routing(
            job.routing, tokens=job.tokens_per_rank, topk=job.moe_router_topk, experts=job.num_experts, ep=ep,
            etp=job.expert_tp,
        )  # fmt: skip
    except ValueError as error:
        yield str(error)


def _sharded(job: TraceJob) -> Iterator[str]:
    if job.phase != TRAINING:
        yield f"phase is {job.phase}, but frame {job.frame} is traced in training alone; Megatron has the others"
    alone = ["pipeline_model_parallel", "expert_model_parallel_size", "context_parallel_size"]
    if job.frame == "FSDP2":
        yield from _fsdp2(job)
    else:
        alone.append("tensor_model_parallel_size")
    for name in alone:
        if getattr(job, name) > 1:
            yield f"{name} is {getattr(job, name)}, but frame {job.frame} is traced with data parallelism alone"
    if job.num_experts:
        yield f"num_experts is {job.num_experts}, but frame {job.frame} is traced with dense layers alone"
    if job.frame == "DeepSpeed" and job.stage not in (1, 2, 3):
        yield f"stage is {job.stage}; ZeRO has the stages 1, 2 and 3"
    if job.frame == "DeepSpeed":
        yield from refusals.buckets(job)


def _fsdp2(job: TraceJob) -> Iterator[str]:
    tp = job.tensor_model_parallel_size
    if job.world_size % (job.replicate * tp):
        yield f"world_size {job.world_size} is no multiple of replicate * tp = {job.replicate * tp}"
    yield from refusals.split_by_torchtitan(job, job.num_attention_heads)
