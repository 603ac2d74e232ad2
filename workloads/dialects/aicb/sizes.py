"""Checks the sizes that AICB needs to divide, and says what is nearest; Megatron itself has rules of its own.

Each is a rule of AICB's generators: layers are dropped, experts do not exceed the data-parallel ranks and need sequence
parallelism, a head a layer where nobody says otherwise.
"""

from collections.abc import Iterator

from workloads.dialects.aicb import derived
from workloads.job.parameters import WorkloadArgs
from workloads.job.rules import RuleViolation, divisor_near, multiple_near

ZERO_LEAST = {"reduce_bucket_size": 1, "allgather_bucket_size": 1, "max_live_parameters": 1, "prefetch_bucket_size": 1,
              "param_persistence_threshold": 0, "model_persistence_threshold": 0}  # fmt: skip

SWIGLU_LEAST_HIDDEN = 24
"""The smallest hidden_size for which swiglu's 8h/3 holds a step of 64."""


def check(args: WorkloadArgs) -> Iterator[RuleViolation]:
    """Every broken rule; frame collective_test has no model, and so none."""
    if args.frame == "collective_test":
        return
    yield from _layers(args)
    if args.frame == "DeepSpeed":
        yield from _deepspeed(args)
    else:
        yield from _tensor_parallel(args)
        yield from _experts(args)


def _layers(args: WorkloadArgs) -> Iterator[RuleViolation]:
    layers, pp, heads = args.num_layers, args.pipeline_model_parallel, derived.heads(args)
    if layers % pp:
        yield RuleViolation(
            f"num_layers {layers} must be a multiple of pipeline_model_parallel {pp}; nearest num_layers: "
            f"{multiple_near(layers, pp)}, nearest pipeline_model_parallel: {divisor_near(layers, pp)}"
        )
    if args.hidden_size % heads:
        origin = "" if args.num_attention_heads is not None else " (not given, so one per layer)"
        yield RuleViolation(
            f"hidden_size {args.hidden_size} must be a multiple of num_attention_heads {heads}{origin}; nearest "
            f"num_attention_heads: {divisor_near(args.hidden_size, heads)}"
        )
    if args.ffn_size < 1:
        yield RuleViolation(
            f"swiglu makes the MLP width 0 for hidden_size {args.hidden_size} (8h/3 in steps of 64); "
            f"nearest hidden_size: {SWIGLU_LEAST_HIDDEN}, or give an ffn_hidden_size"
        )
    if not -1 <= args.pp_rank < pp:
        yield RuleViolation(
            f"pp_rank {args.pp_rank} must be -1 or one of the pipeline stages 0 to {pp - 1}; nearest: {pp - 1}"
        )


def _tensor_parallel(args: WorkloadArgs) -> Iterator[RuleViolation]:
    tp, heads = args.tensor_model_parallel_size, derived.heads(args)
    if heads % tp:
        yield RuleViolation(
            f"num_attention_heads {heads} must be a multiple of tensor_model_parallel_size {tp}; nearest "
            f"tensor_model_parallel_size: {divisor_near(heads, tp)}"
        )
    if args.seq_length % tp:
        yield RuleViolation(
            f"seq_length {args.seq_length} must be a multiple of tensor_model_parallel_size {tp}; nearest: "
            f"{multiple_near(args.seq_length, tp)}"
        )
    widths = {}
    if not args.moe_enable or args.frame == "DeepSeek":
        widths["the MLP width (ffn_hidden_size)"] = args.ffn_size
    if args.frame == "DeepSeek":
        widths["the query width (heads * (qk_nope_dim + qk_rope_dim))"] = heads * (args.qk_nope_dim + args.qk_rope_dim)
        widths["the key and value width (heads * (qk_nope_dim + v_head_dim))"] = heads * (
            args.qk_nope_dim + args.v_head_dim
        )
        widths["the value width (heads * v_head_dim)"] = heads * args.v_head_dim
    else:
        widths["the attention width (heads * (hidden_size // heads))"] = derived.attention_size(args)
    for what, width in widths.items():
        if width % tp:
            yield RuleViolation(
                f"{what} is {width}, no multiple of tensor_model_parallel_size {tp}; nearest width: "
                f"{multiple_near(width, tp)}, nearest tensor_model_parallel_size: {divisor_near(width, tp)}",
                breakable=False,
            )


def _experts(args: WorkloadArgs) -> Iterator[RuleViolation]:
    ep, experts, topk, dp = (
        args.expert_model_parallel_size,
        args.num_experts,
        args.moe_router_topk,
        args.data_parallel_size,
    )
    if args.frame == "DeepSeek":
        if not args.moe_enable:
            yield RuleViolation("frame DeepSeek is a mixture of experts and needs --moe_enable")
    elif not args.moe_enable:
        if ep > 1 or experts > 1:
            yield RuleViolation(
                f"expert_model_parallel_size {ep} and num_experts {experts} need --moe_enable",
                breakable=experts % ep == 0,
            )
        return
    if args.moe_enable and not args.enable_sequence_parallel:
        yield RuleViolation("--moe_enable needs --enable_sequence_parallel", breakable=False)
    if experts < 1:
        yield RuleViolation(f"num_experts is {experts}; a mixture needs at least 1")
    elif experts % ep:
        yield RuleViolation(
            f"num_experts {experts} must be a multiple of expert_model_parallel_size {ep}; nearest num_experts: "
            f"{multiple_near(experts, ep)}, nearest expert_model_parallel_size: {divisor_near(experts, ep)}",
            breakable=False,
        )
    if dp % ep:
        yield RuleViolation(
            f"expert_model_parallel_size {ep} must divide the {dp} data-parallel ranks; nearest: {divisor_near(dp, ep)}"
        )
    if not 1 <= topk <= max(1, experts):
        nearest = min(max(topk, 1), max(experts, 1))
        yield RuleViolation(f"moe_router_topk {topk} must be from 1 to num_experts {experts}; nearest: {nearest}")
    width = args.ffn_size * (experts // ep)
    if experts % ep == 0 and width % args.tensor_model_parallel_size:
        yield RuleViolation(
            f"the width of a rank's experts (ffn_hidden_size * num_experts / ep = {width}) must be a multiple of "
            f"tensor_model_parallel_size {args.tensor_model_parallel_size}",
            breakable=False,
        )


def _deepspeed(args: WorkloadArgs) -> Iterator[RuleViolation]:
    if args.tensor_model_parallel_size > 1:
        yield RuleViolation(
            f"tensor_model_parallel_size is {args.tensor_model_parallel_size}, but ZeRO splits nothing over tensor "
            "ranks; nearest: 1"
        )
    if args.pipeline_model_parallel > 1:
        yield RuleViolation(
            f"pipeline_model_parallel is {args.pipeline_model_parallel}, but there are no pipeline stages with ZeRO; "
            "nearest: 1"
        )
    for name, least in ZERO_LEAST.items():
        value = getattr(args, name)
        if value < least:
            impossible = name == "allgather_bucket_size" and value == 0
            yield RuleViolation(
                f"{name} is {value}; it must be at least {least}, nearest: {least}", breakable=not impossible
            )
    if args.moe_enable or args.expert_model_parallel_size > 1 or args.num_experts > 1:
        yield RuleViolation(
            "moe_enable, expert_model_parallel_size and num_experts have no meaning for frame DeepSpeed"
        )
