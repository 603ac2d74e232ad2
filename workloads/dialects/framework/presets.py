"""Ready-made models of the dialect `framework`: the real ones, each with the source of its numbers, and a cluster.

Sizes of the model are those of the published config.json or paper; those of LLaMA, Mixtral and DeepSeek are also in
NVIDIA NeMo's nemo/collections/llm/gpt/model/{llama,mixtral,deepseek}.py, Qwen3's in THUDM/slime's scripts/models, and
agree. World size and the division over ranks are ours where a source does not name them, and any may be
overridden. DeepSeek-V3 is without its multi-token prediction.
"""

from typing import Any

Values = dict[str, Any]

_LLAMA: Values = {"swiglu": True, "untie_embeddings": True, "use_distributed_optimizer": True}
_GPT: Values = {
    "normalization": "LayerNorm", "position_embedding": "learned_absolute", "add_bias_linear": True,
    "use_distributed_optimizer": True, "seq_length": 2048, "max_position_embeddings": 2048, "vocab_size": 50257,
}  # fmt: skip
_SPLIT: Values = {"enable_sequence_parallel": True}
_LATENT: Values = {
    "multi_latent_attention": True, "qk_layernorm": True, "kv_lora_rank": 512, "qk_nope_dim": 128, "qk_rope_dim": 64,
    "v_head_dim": 128, "moe_enable": True, "seq_length": 4096, "max_position_embeddings": 163840,
}  # fmt: skip

# max_position_embeddings of DeepSeek's and Llama-3.1's config.json has their scaling in it.
MODELS: dict[str, Values] = {
    # Brown et al. 2020, table 2.1 (its 5140 for 13B is 40 heads of 128, here 5120).
    "gpt3_13b": {
        **_GPT, **_SPLIT, "num_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "world_size": 32,
        "tensor_model_parallel_size": 2,
    },
    # Korthikanti et al. 2022, table 3.
    "gpt_22b": {
        **_GPT, **_SPLIT, "num_layers": 48, "hidden_size": 6144, "num_attention_heads": 64, "world_size": 32,
        "tensor_model_parallel_size": 8,
    },
    # Brown et al. 2020, table 2.1; tp and pp of Korthikanti et al. 2022, table 3.
    "gpt3_175b": {
        **_GPT, **_SPLIT, "num_layers": 96, "hidden_size": 12288, "num_attention_heads": 96, "world_size": 512,
        "tensor_model_parallel_size": 8, "pipeline_model_parallel": 8,
    },
    # Touvron et al. 2023 (LLaMA), table 2; widths of the MLP: huggyllama/llama-30b and llama-65b, config.json.
    "llama_30b": {
        **_LLAMA, **_SPLIT, "num_layers": 60, "hidden_size": 6656, "num_attention_heads": 52, "ffn_hidden_size": 17920,
        "vocab_size": 32000, "seq_length": 2048, "world_size": 32, "max_position_embeddings": 2048,
        "tensor_model_parallel_size": 4,
    },
    "llama_65b": {
        **_LLAMA, **_SPLIT, "num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "ffn_hidden_size": 22016,
        "vocab_size": 32000, "seq_length": 2048, "world_size": 64, "max_position_embeddings": 2048,
        "tensor_model_parallel_size": 8,
        "pipeline_model_parallel": 2,
    },
    # meta-llama/Llama-2-7b-hf, config.json.
    "llama2_7b": {
        **_LLAMA, "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 11008,
        "vocab_size": 32000, "seq_length": 4096, "world_size": 8, "max_position_embeddings": 4096,
    },
    # meta-llama/Meta-Llama-3-8B, config.json.
    "llama3_8b": {
        **_LLAMA, "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
        "ffn_hidden_size": 14336, "vocab_size": 128256, "seq_length": 8192, "world_size": 8,
        "max_position_embeddings": 8192,
    },
    # meta-llama/Meta-Llama-3-70B, config.json.
    "llama3_70b": {
        **_LLAMA, **_SPLIT, "num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_query_groups": 8,
        "ffn_hidden_size": 28672, "vocab_size": 128256, "seq_length": 8192, "world_size": 64,
        "max_position_embeddings": 8192,
        "tensor_model_parallel_size": 8, "pipeline_model_parallel": 4,
    },
    # meta-llama/Llama-3.1-405B, config.json; 16 stages with a layer less in the first and last: Llama 3, section 3.3.2.
    "llama3_405b": {
        **_LLAMA, **_SPLIT, "num_layers": 126, "hidden_size": 16384, "num_attention_heads": 128, "num_query_groups": 8,
        "ffn_hidden_size": 53248, "vocab_size": 128256, "seq_length": 8192, "world_size": 1024,
        "max_position_embeddings": 131072,
        "tensor_model_parallel_size": 8, "pipeline_model_parallel": 16, "num_layers_first_stage": 7,
        "num_layers_last_stage": 7,
    },
    # mistralai/Mixtral-8x7B-v0.1, config.json.
    "mixtral_8x7b": {
        **_LLAMA, **_SPLIT, "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8,
        "ffn_hidden_size": 14336, "vocab_size": 32000, "seq_length": 4096, "moe_enable": True, "num_experts": 8,
        "moe_router_topk": 2, "moe_aux_loss": True, "world_size": 32, "max_position_embeddings": 32768,
        "tensor_model_parallel_size": 2,
        "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
    },
    # mistralai/Mixtral-8x22B-v0.1, config.json.
    "mixtral_8x22b": {
        **_LLAMA, **_SPLIT, "num_layers": 56, "hidden_size": 6144, "num_attention_heads": 48, "num_query_groups": 8,
        "ffn_hidden_size": 16384, "vocab_size": 32000, "seq_length": 4096, "moe_enable": True, "num_experts": 8,
        "moe_router_topk": 2, "moe_aux_loss": True, "world_size": 128, "max_position_embeddings": 65536,
        "tensor_model_parallel_size": 4,
        "pipeline_model_parallel": 4, "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
    },
    # deepseek-ai/DeepSeek-V2-Lite, config.json; queries have one projection.
    "deepseek_v2_lite": {
        **_LLAMA, **_LATENT, "num_layers": 27, "hidden_size": 2048, "num_attention_heads": 16, "q_lora_rank": 0,
        "ffn_hidden_size": 10944, "vocab_size": 102400, "num_experts": 64, "moe_router_topk": 6,
        "moe_ffn_hidden_size": 1408, "moe_shared_expert_size": 2816, "moe_first_dense_layers": 1, "moe_aux_loss": True,
        "world_size": 32, "expert_model_parallel_size": 8,
    },
    # deepseek-ai/DeepSeek-V2, config.json; ep 8 and pp 16: DeepSeek-V2 technical report, section 3.1.3.
    "deepseek_v2": {
        **_LLAMA, **_LATENT, "num_layers": 60, "hidden_size": 5120, "num_attention_heads": 128, "q_lora_rank": 1536,
        "ffn_hidden_size": 12288, "vocab_size": 102400, "num_experts": 160, "moe_router_topk": 6,
        "moe_ffn_hidden_size": 1536, "moe_shared_expert_size": 3072, "moe_first_dense_layers": 1, "moe_aux_loss": True,
        "world_size": 512, "pipeline_model_parallel": 16, "expert_model_parallel_size": 8, "num_layers_first_stage": 2,
        "num_layers_last_stage": 2,
    },
    # deepseek-ai/DeepSeek-V3, config.json; ep 64, pp 16 and 2048 GPUs: DeepSeek-V3 technical report, section 3.2.
    "deepseek_v3": {
        **_LLAMA, **_LATENT, "num_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "q_lora_rank": 1536,
        "ffn_hidden_size": 18432, "vocab_size": 129280, "num_experts": 256, "moe_router_topk": 8,
        "moe_ffn_hidden_size": 2048, "moe_shared_expert_size": 2048, "moe_first_dense_layers": 3,
        "moe_expert_bias": True, "world_size": 2048, "pipeline_model_parallel": 16, "expert_model_parallel_size": 64,
        "num_layers_first_stage": 3, "num_layers_last_stage": 2,
    },
    # Qwen/Qwen3-235B-A22B, config.json.
    "qwen3_235b": {
        **_LLAMA, **_SPLIT, "num_layers": 94, "hidden_size": 4096, "num_attention_heads": 64, "num_query_groups": 4,
        "kv_channels": 128, "ffn_hidden_size": 12288, "vocab_size": 151936, "seq_length": 4096, "qk_layernorm": True,
        "moe_enable": True, "num_experts": 128, "moe_router_topk": 8, "moe_ffn_hidden_size": 1536,
        "moe_aux_loss": True, "world_size": 64, "max_position_embeddings": 40960, "tensor_model_parallel_size": 4,
        "pipeline_model_parallel": 2,
        "expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1,
    },
}  # fmt: skip
SAME = {
    "7": "llama2_7b", "13": "gpt3_13b", "22": "gpt_22b", "175": "gpt3_175b", "405": "llama3_405b",
    "30": "llama_30b", "65": "llama_65b", "moe": "mixtral_8x7b", "deepseek16": "deepseek_v2_lite",
    "deepseek236": "deepseek_v2", "deepseek671": "deepseek_v3",
}  # fmt: skip
"""AICB's names for what is the same model here, with its real sizes."""
NAMES = tuple(MODELS)
DIVISION = {
    "tensor_model_parallel_size", "pipeline_model_parallel", "enable_sequence_parallel", "use_distributed_optimizer",
    "num_layers_first_stage", "num_layers_last_stage", "expert_model_parallel_size", "expert_tensor_parallel_size",
}  # fmt: skip
"""Parameters that divide a model over ranks."""


def values(name: str, target: str = "csv", frame: str | None = None) -> Values:
    """The values of a model, by our name or AICB's. For SimAI text experts are divided as all else: it has one tp. A
    frame with data-parallel ranks alone divides nothing.

    Raises:
        ValueError: there is no such model here; the message lists those that there are.
    """
    chosen = SAME.get(name, name)
    if chosen not in MODELS:
        raise ValueError(f"there is no model_size {name!r} in the dialect framework; there is {', '.join(MODELS)}")
    found = {"model_name": chosen, **MODELS[chosen]}
    dropped: set[str] = {"expert_tensor_parallel_size"} if target == "simai" else set()
    if frame in ("FSDP2", "DeepSpeed"):
        dropped |= DIVISION
    return {key: value for key, value in found.items() if key not in dropped}
