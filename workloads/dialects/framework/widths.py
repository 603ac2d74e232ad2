"""Refuses widths that Megatron-core cannot divide over tensor and expert ranks, with the nearest that it can."""

from collections.abc import Iterator

from workloads.dialects.framework.context import of_one_rank
from workloads.dialects.framework.experts import routed
from workloads.dialects.framework.placement import RankPlacement
from workloads.job import refusals, rules
from workloads.job.parameters import TRAINING, WorkloadArgs


def widths(args: WorkloadArgs) -> Iterator[str]:
    """Broken rules of a model with grouped queries."""
    tp, heads = args.tensor_model_parallel_size, args.framework_heads
    groups = args.num_query_groups or heads
    if args.hidden_size % heads and args.kv_channels is None:
        yield (
            f"hidden_size {args.hidden_size} must be a multiple of num_attention_heads {heads}; nearest "
            f"num_attention_heads: {rules.divisor_near(args.hidden_size, heads)}"
        )
    if heads % tp:
        yield (
            f"num_attention_heads {heads} must be a multiple of tensor_model_parallel_size {tp}; nearest "
            f"tensor_model_parallel_size: {rules.divisor_near(heads, tp)}"
        )
    if heads % groups:
        yield f"num_attention_heads {heads} must be a multiple of num_query_groups {groups}"
    if groups % tp and tp % groups:
        yield (
            f"num_query_groups {groups} must be a multiple or a divisor of tensor_model_parallel_size {tp}; nearest: "
            f"{rules.divisor_near(tp, groups)}"
        )
    yield from _common(args)


def latent(args: WorkloadArgs) -> Iterator[str]:
    """A sentence for each rule of multi-head latent attention that the parameters break."""
    tp = args.tensor_model_parallel_size
    for name in ("kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_head_dim"):
        if getattr(args, name) < 1:
            yield f"{name} is {getattr(args, name)}; it must be at least 1"
    if args.q_lora_rank < 0:
        yield f"q_lora_rank is {args.q_lora_rank}; it must be at least 0, which is none"
    if args.framework_heads % tp:
        yield f"num_attention_heads {args.framework_heads} must be a multiple of tensor_model_parallel_size {tp}"
    narrow = {"q_lora_rank": args.q_lora_rank, "kv_lora_rank + qk_rope_dim": args.kv_lora_rank + args.qk_rope_dim}
    for what, width in narrow.items():
        if width % tp:
            yield f"{what} {width} must be a multiple of tensor_model_parallel_size {tp}"
    yield from _common(args)


def experts(args: WorkloadArgs) -> Iterator[str]:
    """A sentence for each rule of experts that the parameters break."""
    tp, ep, count = args.tensor_model_parallel_size, args.expert_model_parallel_size, args.num_experts
    etp = args.expert_tensor_parallel_size or tp
    if args.world_size // args.pipeline_model_parallel % (etp * ep):
        return
    if count < 1 or count % ep:
        yield (
            f"num_experts {count} must be a multiple of expert_model_parallel_size {ep}; nearest: "
            f"{rules.multiple_near(count, ep)}"
        )
        return
    if not 0 <= args.moe_first_dense_layers <= args.num_layers:
        yield f"moe_first_dense_layers {args.moe_first_dense_layers} must be from 0 to num_layers {args.num_layers}"
    if tp > 1 and not args.enable_sequence_parallel and args.phase == TRAINING:
        yield "--moe_enable with tensor_model_parallel_size > 1 needs --enable_sequence_parallel: Megatron demands it"
    if args.add_bias_linear:
        yield from _biases(args, etp)
    if args.moe_token_dispatcher == refusals.DEEPEP:
        yield from _deepep(args, etp)
    if args.expert_size % etp:
        yield f"the width of an expert {args.expert_size} must be a multiple of its tensor-parallel size {etp}"
    if (args.moe_shared_expert_size or 0) % tp:
        yield f"moe_shared_expert_size {args.moe_shared_expert_size} must be a multiple of {tp}"
    try:
        routed(of_one_rank(args), RankPlacement(args, 0))
    except ValueError as error:
        yield str(error)


def _deepep(args: WorkloadArgs, etp: int) -> Iterator[str]:
    if etp > 1:
        yield f"moe_token_dispatcher deepep: experts over {etp} tensor ranks; nearest: --expert_tensor_parallel_size 1"
    if args.routing != "balanced":
        yield f"routing {args.routing} counts tokens by expert, not by rank as deepep sends them; nearest: balanced"


def _biases(args: WorkloadArgs, etp: int) -> Iterator[str]:
    nearest = "nearest: without --add_bias_linear"
    if etp > 1:
        yield (
            f"add_bias_linear with experts over {etp} tensor ranks: Megatron-core refuses it; nearest: "
            "--expert_tensor_parallel_size 1"
        )
    elif args.expert_model_parallel_size == 1 and args.phase == TRAINING:
        yield f"add_bias_linear with expert_model_parallel_size 1: Megatron-core fails in the experts' MLP; {nearest}"
    if args.moe_shared_expert_size:
        yield f"add_bias_linear with moe_shared_expert_size: Megatron-core has no biases in shared experts; {nearest}"


def _common(args: WorkloadArgs) -> Iterator[str]:
    tp = args.tensor_model_parallel_size
    if args.ffn_size < 1 or args.ffn_size % tp:
        yield (
            f"the MLP width (ffn_hidden_size) {args.ffn_size} must be a multiple of tensor_model_parallel_size {tp}; "
            f"nearest: {rules.multiple_near(args.ffn_size, tp)}"
        )
    if args.enable_sequence_parallel and args.seq_length % tp:
        yield (
            f"seq_length {args.seq_length} must be a multiple of tensor_model_parallel_size {tp}; nearest: "
            f"{rules.multiple_near(args.seq_length, tp)}"
        )
