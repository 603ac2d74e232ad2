# The tiny GPT with experts over the data-parallel ranks: 4 ranks.
extends = "config_megatron"
moe_enable = True
num_experts = 4
expert_model_parallel_size = 2
moe_router_topk = 2
moe_grouped_gemm = True
