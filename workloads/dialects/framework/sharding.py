"""Refuses what FSDP2 and DeepSpeed's ZeRO cannot run, or what has not been traced with them."""

from collections.abc import Iterator

from workloads.job import refusals, rules
from workloads.job.parameters import FP8_RECIPES, FSDP_UNITS, WorkloadArgs

NOT_SHARDED = {
    "tensor_model_parallel_size": 1, "pipeline_model_parallel": 1, "context_parallel_size": 1, "virtual_pipeline": 1,
    "expert_model_parallel_size": 1, "moe_enable": False, "multi_latent_attention": False,
    "enable_sequence_parallel": False,
}  # fmt: skip
EFFECTIVE = {
    1: {"stage", "reduce_bucket_size", "contiguous_gradients", "overlap_comm"},
    2: {"stage", "reduce_bucket_size", "contiguous_gradients"},
    3: {"stage", "activation_recompute", *refusals.LEAST} - {"allgather_bucket_size"},
}
"""By ZeRO's stage, parameters that change what is sent, among those that other frames do not have."""


def sharded(args: WorkloadArgs) -> Iterator[str]:
    """Broken rules of FSDP2 and ZeRO, which are traced with data-parallel ranks alone."""
    for name, one in NOT_SHARDED.items():
        if getattr(args, name) != one and (args.frame, name) != ("FSDP2", "tensor_model_parallel_size"):
            yield (
                f"{name} is {getattr(args, name)}, but frame {args.frame} has data-parallel ranks alone; nearest: {one}"
            )
    if args.hidden_size % args.framework_heads:
        yield f"hidden_size {args.hidden_size} must be a multiple of num_attention_heads {args.framework_heads}"
    groups = args.num_query_groups
    if groups is not None and groups >= 1 and args.framework_heads % groups:
        yield f"num_attention_heads {args.framework_heads} must be a multiple of num_query_groups {groups}"
    yield from _fsdp2(args) if args.frame == "FSDP2" else refusals.buckets(args)


def _fsdp2(args: WorkloadArgs) -> Iterator[str]:
    tp = args.tensor_model_parallel_size
    data = args.world_size // tp
    if args.replicate < 1 or data % args.replicate or data == args.replicate > 1:
        within = f" / tp {tp}" if tp > 1 else ""
        yield (
            f"replicate {args.replicate} must divide world_size {args.world_size}{within} and leave two ranks or more "
            f"to shard over; nearest: {rules.divisor_near(data, max(1, args.replicate))}"
        )
    yield from refusals.clipping(args)
    if args.fsdp_units not in FSDP_UNITS:
        yield f"fsdp_units is {args.fsdp_units!r}; allowed: {', '.join(FSDP_UNITS)}"
    if tp > 1 and args.fp8_recipe != FP8_RECIPES[0]:
        yield f"fp8_recipe is {args.fp8_recipe!r}, which is stated without tensor parallelism alone; nearest: none"
    yield from refusals.split_by_torchtitan(args, args.framework_heads)
