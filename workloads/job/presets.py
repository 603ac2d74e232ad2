"""Ready-made models: `-m 7` and the like, with the values that AICB's scripts set for them.

The unusual choices of the scripts are kept because the dialect reproduces them (36 layers for 7B, the dense FFN width
as hidden size of the DeepSeek models). A parameter given on the command line overrides the preset.
"""

from typing import Any

Values = dict[str, Any]

_ALWAYS: Values = {
    "world_size": 32,
    "tensor_model_parallel_size": 8,
    "vocab_size": 50257,
    "use_distributed_optimizer": True,
}
_GPT: dict[str, Values] = {
    "7": {"model_name": "gpt_7B", "num_layers": 36, "hidden_size": 4096, "num_attention_heads": 32},
    "13": {"model_name": "gpt_13B", "num_layers": 40, "hidden_size": 5120, "num_attention_heads": 40},
    "22": {"model_name": "gpt_22B", "num_layers": 48, "hidden_size": 6144, "num_attention_heads": 64},
    "175": {"model_name": "gpt_175B", "num_layers": 96, "hidden_size": 12288, "num_attention_heads": 96},
    "405": {
        "model_name": "llama_405B", "num_layers": 128, "hidden_size": 16384, "num_attention_heads": 128,
        "ffn_hidden_size": 53248,
    },
    "moe": {
        "model_name": "Mixtral_8*7B", "num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
        "ffn_hidden_size": 14336, "moe_enable": True, "moe_grouped_gemm": True,
    },
}  # fmt: skip
_LATENT: Values = {
    "frame": "DeepSeek", "moe_enable": True, "kv_lora_rank": 512, "qk_nope_dim": 128, "qk_rope_dim": 64,
    "v_head_dim": 128, "tensor_model_parallel_size": 1,
}  # fmt: skip
_DEEPSEEK: dict[str, Values] = {
    "deepseek671": {
        "model_name": "DeepSeek_671B", "num_layers": 61, "hidden_size": 18432, "num_attention_heads": 128,
        "ffn_hidden_size": 2048, "num_experts": 256, "moe_router_topk": 8, "q_lora_rank": 1536, "n_dense_layers": 3,
        "n_shared_expert": 1,
    },
    "deepseek236": {
        "model_name": "DeepSeek_236B", "num_layers": 60, "hidden_size": 12288, "num_attention_heads": 128,
        "ffn_hidden_size": 1536, "num_experts": 160, "moe_router_topk": 6, "q_lora_rank": 1536, "n_dense_layers": 1,
        "n_shared_expert": 2,
    },
    "deepseek16": {
        "model_name": "DeepSeek_16B", "num_layers": 27, "hidden_size": 10944, "num_attention_heads": 16,
        "ffn_hidden_size": 1408, "num_experts": 64, "moe_router_topk": 6, "q_lora_rank": 0, "n_dense_layers": 1,
        "n_shared_expert": 2,
    },
}  # fmt: skip
_ZERO: dict[str, Values] = {
    "7": {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "ffn_hidden_size": 11008},
    "13": {"num_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "ffn_hidden_size": 13824},
    "30": {"num_layers": 60, "hidden_size": 6656, "num_attention_heads": 52, "ffn_hidden_size": 17920},
    "65": {"num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "ffn_hidden_size": 22016},
}
_SIMAI_TP = {"7": 4, "22": 8, "175": 8, "moe": 4}
_CSV_FORCED: dict[str, Values] = {
    "7": {"tensor_model_parallel_size": 4},
    "22": {"tensor_model_parallel_size": 8},
    "175": {"tensor_model_parallel_size": 8},
    "65": {"tensor_model_parallel_size": 8, "pipeline_model_parallel": 2},
    "405": {"tensor_model_parallel_size": 8, "pipeline_model_parallel": 16},
    "moe": {"tensor_model_parallel_size": 2},
}
_GPT_65: Values = {
    "model_name": "llama_65B", "num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "ffn_hidden_size": 28672,
}  # fmt: skip

NAMES = (*_GPT, "30", "65", *_DEEPSEEK)
"""Every preset name; which of them exist depends on frame and target, see `values`."""


def values(name: str, *, target: str, frame: str | None) -> Values:
    """The values of a preset. target: "csv" or "simai". Without a global_batch, see `options.resolve`.

    Raises:
        ValueError: no such preset; the message lists those of this target and frame.
    """
    if frame == "DeepSpeed":
        found = _of(_ZERO, name, "--frame DeepSpeed")
        sizes: Values = {"world_size": 8, "micro_batch": 4, "vocab_size": 32000, "seq_length": 2048}
        return {"frame": frame, "model_name": f"llama_{name}B", **sizes, **found}
    latent = _LATENT if name in _DEEPSEEK else {}
    if target == "simai":
        found = _of({**_GPT, **_DEEPSEEK}, name, "simai")
        tp = {"tensor_model_parallel_size": _SIMAI_TP[name]} if name in _SIMAI_TP else {}
        return {**_ALWAYS, "global_batch": 1024, "seq_length": 4096, **found, **latent, **tp}
    found = _of({**_GPT, "65": _GPT_65, **_DEEPSEEK}, name, "generate")
    sizes = {**_ALWAYS, "tensor_model_parallel_size": 1, "seq_length": 2048, **found, **latent}
    return {**sizes, **_CSV_FORCED.get(name, {})}


def _of(presets: dict[str, Values], name: str, what: str) -> Values:
    if name not in presets:
        raise ValueError(f"there is no model_size {name!r} for {what}; there is {', '.join(presets)}")
    return presets[name]
