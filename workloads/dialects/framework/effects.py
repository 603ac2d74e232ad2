"""Says which parameters change nothing in a workload of this dialect."""

from workloads.dialects.framework.sharding import EFFECTIVE
from workloads.job.parameters import COLLECTIVE, DECODE, DEEPSPEED, TRAINING, WorkloadArgs, of_section

TRAINING_ONLY = frozenset({
    "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather", "overlap_p2p", "grad_reduce_in_fp32",
    "bucket_size", "activation_recompute", "moe_aux_loss", "moe_expert_bias", "hidden_dropout",
    "fp8_recipe",
})  # fmt: skip
"""Parameters that change no call of inference."""
_COLLECTIVE = of_section(COLLECTIVE)
_ZERO = of_section(DEEPSPEED) | {"overlap_comm", "max_reuse_distance", "sub_group_size"}
_KERNELS = {"gpu_type", "use_flash_attn", "gated_linear_unit", "bias_gelu_fusion", "openai_gelu", "onnx_safe",
            "squared_relu", "activation_func", "enable_visual", "moe_grouped_gemm", "overlap_version",
            "recompute_activations", "n_dense_layers", "n_shared_expert"}  # fmt: skip

_LATENT = {"q_lora_rank", "kv_lora_rank", "qk_nope_dim", "qk_rope_dim", "v_head_dim"}
_MEGATRON = {
    "phase", "virtual_pipeline",
    "num_layers_first_stage", "num_layers_last_stage", "position_embedding", "normalization",
    "qk_layernorm", "overlap_param_gather", "overlap_grad_reduce", "overlap_p2p", "bucket_size", "kv_channels",
    "use_distributed_optimizer", "activation_recompute", "pp_rank", "make_vocab_size_divisible_by", "cp_comm_type",
}  # fmt: skip
_FSDP2 = {"reshard_after_forward", "replicate", "grad_reduce_in_fp32", "fsdp_units", "clip_grad"}
_EXPERTS = {"moe_router_topk", "moe_token_dispatcher", "moe_first_dense_layers", "moe_aux_loss", "moe_expert_bias",
            "routing", "moe_ffn_hidden_size", "moe_shared_expert_size", "expert_tensor_parallel_size"}  # fmt: skip
_WINDOW = {"sliding_window", "full_attention_every"}
_COMPUTED = {
    "Megatron": {"hidden_dropout", "fp8_recipe", *_WINDOW},
    "FSDP2": {"fp8_recipe", *_WINDOW},
    "DeepSpeed": _WINDOW,
}
"""By frame, parameters that change what is computed alone."""


def without_effect(args: WorkloadArgs) -> set[str]:
    """Parameters that change no row. Kernels send what the plain ones send; selective recomputation computes alone."""
    idle = (_KERNELS | _COLLECTIVE | _ZERO).union(*_COMPUTED.values())
    if not args.computes:
        return _idle(args, idle)
    computed = {"moe_grouped_gemm", "activation_recompute", "seq_length", *_COMPUTED.get(args.frame, ())}
    if args.frame == "DeepSpeed" and args.stage != 3:
        computed.add("clip_grad")  # the shard's gradients are scaled
    return _idle(args, idle) - (computed - TRAINING_ONLY if args.phase != TRAINING else computed)


def _idle(args: WorkloadArgs, idle: set[str]) -> set[str]:
    """`idle`, and what the job's frame, parallel sizes and phase leave without effect."""
    if args.frame == "FSDP2":
        again = {"activation_recompute"} if args.tensor_model_parallel_size > 1 else set()
        return (idle | _MEGATRON | _EXPERTS | _LATENT) - again
    if args.frame == "DeepSpeed":
        return (idle | _MEGATRON | _EXPERTS | _LATENT | _FSDP2) - EFFECTIVE[args.stage]
    idle |= _FSDP2 - {"grad_reduce_in_fp32"}
    if args.enable_sequence_parallel and args.phase == TRAINING:
        idle = idle - {"fp8_recipe"}  # what is gathered is smaller
    if args.virtual_pipeline == 1:
        idle = idle | {"overlap_p2p"}
    if args.context_parallel_size == 1:
        idle = idle | {"cp_comm_type"}
    if args.phase != TRAINING:
        idle = idle | TRAINING_ONLY
    if args.phase == DECODE:
        idle = idle | {"seq_length"}
    if not args.overlap_grad_reduce:
        idle = idle | {"bucket_size"}
    if not args.moe_enable:
        idle = idle | _EXPERTS
    idle |= {"num_query_groups", "kv_channels"} if args.multi_latent_attention else _LATENT
    return idle
