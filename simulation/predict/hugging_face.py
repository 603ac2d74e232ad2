"""Reads the model of a Hugging Face config.json into the columns of a job."""

from collections.abc import Mapping

from common.errors import MistakeList

MARK = "num_hidden_layers"
"""A key that no job file of ours has."""
_NAMES = {
    "hidden": "hidden_size", "ffn": "intermediate_size", "layers": MARK, "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "vocab": "vocab_size",
}  # fmt: skip
_LATENT = {
    "q_lora": "q_lora_rank", "kv_lora": "kv_lora_rank", "qk_nope": "qk_nope_head_dim", "qk_rope": "qk_rope_head_dim",
    "v_dim": "v_head_dim",
}  # fmt: skip
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
TIED = {
    "llama": False, "mistral": False, "mixtral": False, "qwen2": False, "qwen2_moe": False, "qwen3": False,
    "qwen3_moe": False, "deepseek_v2": False, "deepseek_v3": False, "gemma": True,
}  # fmt: skip
"""Types of models that are read, decoders whose MLPs have a gate, and whether the head has the word vectors' weights
where a config leaves that out, as their classes in transformers have it.
"""


def is_config(found: Mapping[str, object]) -> bool:
    """Whether a mapping is a model's config.json."""
    return MARK in found or "text_config" in found


def columns(found: Mapping[str, object], where: str, mistakes: MistakeList) -> dict[str, object]:
    """The columns of a model; what of it is not predicted is a mistake, with the file `where` it stands."""
    kind = str(found.get("model_type"))
    if "text_config" in found:
        mistakes.add(f"{where} text_config", None, "a model with images is not predicted: give its text_config alone")
        return {}
    if kind not in TIED:
        otherwise = "its sizes may be given as hidden, ffn, layers, ..."
        mistakes.add(f"{where} model_type", kind, f"is none of {', '.join(TIED)}; {otherwise}")
    row = {ours: found[name] for ours, name in _NAMES.items() if found.get(name) is not None}
    tied = found.get("tie_word_embeddings", TIED.get(kind))
    row |= {"name": kind, "tied_embeddings": int(bool(tied)), "swiglu": 1}
    if found.get("kv_lora_rank"):
        row |= {"mla": 1} | {ours: found.get(name) or 0 for ours, name in _LATENT.items()}
        # There each head has keys of its own, whose widths these are.
        row.pop("head_dim", None)
        row["kv_heads"] = found.get("num_attention_heads")
    experts = next((found[name] for name in _EXPERTS if found.get(name)), 0)
    if experts:
        width = found.get("moe_intermediate_size") or found.get("intermediate_size")
        shared = found.get("n_shared_experts")
        row |= {
            "experts": experts, "topk": found.get("num_experts_per_tok", 0), "moe_ffn": width,
            "shared_ffn": found.get("shared_expert_intermediate_size") or _times(shared, width),
            "first_dense_layers": found.get("first_k_dense_replace") or 0,
        }  # fmt: skip
    _refuse(found, where, mistakes)
    return row


def _refuse(found: Mapping[str, object], where: str, mistakes: MistakeList) -> None:
    """Tell what of the model is not predicted."""
    window = found.get("sliding_window")
    if window and found.get("use_sliding_window", True):
        mistakes.add(f"{where} sliding_window", window, "attention to all tokens alone is predicted: null says that")
    if (step := found.get("decoder_sparse_step", 1)) != 1 or found.get("mlp_only_layers"):
        mistakes.add(f"{where} decoder_sparse_step", step, "dense layers are predicted before those with experts alone")


def _times(count: object, width: object) -> int:
    return count * width if isinstance(count, int) and isinstance(width, int) else 0
