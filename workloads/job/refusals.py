"""Says why what a GPU alone can show is refused: the same words wherever a workload is traced or stated by rules."""

from collections.abc import Iterator
from math import isfinite

from workloads.job.parameters import ALL_TO_ALL, TORCHTITAN, TRAINING, WorkloadArgs
from workloads.job.rules import divisor_near, multiple_near, sequence_step

FLEX = "DeepEP sends from its own GPU kernels, not by collectives that can be seen"
MOST = {"num_layers": 100_000, "num_experts": 100_000}
"""Limits far beyond any model: each layer and expert takes memory and time, 100,000 of them 2 s and 300 MB."""
LEAST = {
    "reduce_bucket_size": 1, "allgather_bucket_size": 1, "param_persistence_threshold": 0,
    "model_persistence_threshold": 0, "max_live_parameters": 0, "prefetch_bucket_size": 0, "max_reuse_distance": 0,
    "sub_group_size": 1,
}  # fmt: skip
"""The smallest sizes of ZeRO, in elements."""
DISPATCHERS = ("allgather", "alltoall")
"""How tokens reach their experts, as far as it can be traced."""
DEEPEP = "deepep"
"""Megatron-core's flex dispatcher, which rules alone state."""


def too_many(args: WorkloadArgs) -> list[str]:
    """The refusals of numbers above MOST."""
    return [
        f"{name} is {getattr(args, name)}; it is at most {most}, nearest: {most}"
        for name, most in MOST.items()
        if getattr(args, name) > most
    ]


def context_parallelism(args: WorkloadArgs) -> Iterator[str]:
    """Name what Transformer Engine cannot divide over context-parallel ranks."""
    cp, tp = args.context_parallel_size, args.tensor_model_parallel_size
    if cp == 1:
        return
    step = sequence_step(tp, cp, split=args.enable_sequence_parallel)
    if args.seq_length % step:
        yield (
            f"seq_length {args.seq_length} must be a multiple of {step}: each of the {cp} context-parallel ranks has "
            f"two chunks of a sequence; nearest: {multiple_near(args.seq_length, step)}"
        )
    groups = args.framework_heads if args.multi_latent_attention else args.num_query_groups or args.framework_heads
    shared = max(1, min(groups, args.framework_heads) // tp)
    if args.cp_comm_type == ALL_TO_ALL and shared % cp:
        yield (
            f"context_parallel_size {cp}: by a2a each rank gets as many of the {shared} groups of heads of a tensor "
            f"rank; nearest: {divisor_near(shared, cp)}, or --cp_comm_type p2p"
        )
    if args.phase != TRAINING:
        yield f"context_parallel_size {cp}: Megatron-core's static batching divides no prompts; nearest: 1"


def overlapped(args: WorkloadArgs) -> Iterator[str]:
    """Name a gather of parameters that Megatron cannot overlap."""
    if args.overlap_param_gather and not (args.use_distributed_optimizer and args.overlap_grad_reduce):
        yield "overlap_param_gather needs use_distributed_optimizer and overlap_grad_reduce"


def without_gradients(args: WorkloadArgs) -> Iterator[str]:
    """Name what Megatron-core's inference does not have."""
    if args.phase == TRAINING:
        return
    if args.enable_sequence_parallel:
        yield f"enable_sequence_parallel: Megatron-core's static batching splits no sequences in phase {args.phase}"
    if args.virtual_pipeline > 1:
        yield (
            f"virtual_pipeline is {args.virtual_pipeline}: Megatron-core has no virtual stages in phase {args.phase}; "
            "nearest: 1"
        )


def clipping(args: WorkloadArgs) -> Iterator[str]:
    """Name a norm at which gradients cannot be clipped."""
    if not (isfinite(args.clip_grad) and args.clip_grad >= 0):
        yield f"clip_grad is {args.clip_grad}; it is 0 (no clipping) or a number above it, nearest: 1.0"


def buckets(args: WorkloadArgs) -> Iterator[str]:
    """Name ZeRO's sizes that are too small."""
    for name, least in LEAST.items():
        if getattr(args, name) < least:
            yield f"{name} is {getattr(args, name)}; it must be at least {least}, nearest: {least}"


def dispatcher(name: str) -> str:
    """The refusal of a moe_token_dispatcher that is not one of DISPATCHERS."""
    why = f": {FLEX}" if name == "flex" else ""
    return f"moe_token_dispatcher is {name!r}; allowed: {', '.join(DISPATCHERS)}{why}"


def split_by_torchtitan(job: WorkloadArgs, heads: int) -> Iterator[str]:
    """Yield a sentence for each thing that torchtitan's plan cannot shard, or split over tensor-parallel ranks."""
    tp = job.tensor_model_parallel_size
    if job.fsdp_units == TORCHTITAN and not job.untie_embeddings:
        yield "fsdp_units torchtitan shards the head apart from the embedding: it needs --untie_embeddings"
    if tp == 1:
        return
    if job.fsdp_units != TORCHTITAN:
        yield "tensor_model_parallel_size above 1 needs fsdp_units torchtitan, whose plan splits the layers"
    sizes = {
        "num_attention_heads": heads, "num_query_groups": job.num_query_groups or heads, "seq_length": job.seq_length,
        "ffn_hidden_size": job.ffn_size, "vocab_size": job.vocab_size,
    }  # fmt: skip
    for name, size in sizes.items():
        if size % tp:
            yield f"{name} {size} must be a multiple of tensor_model_parallel_size {tp}; nearest: {-(-size // tp) * tp}"
