"""Reads the model of a Hugging Face config.json into the columns of a job."""

from collections.abc import Mapping

from common.errors import MistakeList

MARK = "num_hidden_layers"
"""A key that no job file of ours has."""
_NAMES = {
    "hidden": "hidden_size", "ffn": "intermediate_size", "layers": MARK, "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "vocab": "vocab_size",
}  # fmt: skip
_NEEDED = ("hidden", "heads", "vocab")
_LATENT = {
    "q_lora": "q_lora_rank", "kv_lora": "kv_lora_rank", "qk_nope": "qk_nope_head_dim", "qk_rope": "qk_rope_head_dim",
    "v_dim": "v_head_dim",
}  # fmt: skip
IN_THE_LIMIT = (None, "default", "su", "longrope", "llama3")
"""Scalings of rotary positions whose reach max_position_embeddings says; gemma3_text's linear one, too."""
LARGEST = 1 << 20
"""Of a scaling's factor."""
FARTHEST = 1 << 31
"""Of positions: a limit from here on says nothing."""
_EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts")
TIED = {
    "llama": False, "mistral": False, "mixtral": False, "qwen2": False, "qwen2_moe": False, "qwen3": False,
    "qwen3_moe": False, "deepseek_v2": False, "deepseek_v3": False, "gemma": True, "gemma2": True, "gemma3_text": True,
    "gpt_oss": False, "granite": False, "olmo2": False, "phi3": False,
}  # fmt: skip
"""Types of models that are read, decoders whose MLPs have a gate, and whether the head has the word vectors' weights
where a config leaves that out, as their classes in transformers have it.
"""
WINDOWS = {"mistral": 4096, "mixtral": None, "phi3": None, "gemma2": 4096, "gemma3_text": 4096, "gpt_oss": 128}
"""Types whose attention may have a window in every layer, or but every EVERY of them, and the window where a config
leaves it out.
"""
EVERY = {"gemma2": 2, "gemma3_text": 6, "gpt_oss": 2}
_QWEN = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
"""Types whose attention has a window in layers from max_window_layers on, if use_sliding_window says so."""
_QWEN_WINDOW = 4096
_FULL, _SLIDING = "full_attention", "sliding_attention"


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
    if experts := next((found[name] for name in _EXPERTS if found.get(name)), 0):
        row |= {"experts": experts, **_experts(found), "first_dense_layers": _leading(found, where, mistakes)}
    if positions := _positions(found, kind):
        row["max_position_embeddings"] = positions
    if window := _window(found, kind, where, mistakes):
        row |= {"sliding_window": window[0], "full_attention_every": window[1]}
    return row


def _positions(found: Mapping[str, object], kind: str) -> int:
    """Tokens that positions reach, 0: unknown; what a scaling makes of them, where the limit has it not in it, as vLLM
    takes it (vllm/config, _get_and_verify_max_len).
    """
    limit, scaling = found.get("max_position_embeddings"), found.get("rope_scaling") or found.get("rope_parameters")
    if not isinstance(limit, int) or not 0 < limit < FARTHEST:
        return 0
    how = scaling if isinstance(scaling, Mapping) else {}
    name, factor = how.get("rope_type", how.get("type")), how.get("factor")
    if name in IN_THE_LIMIT or kind == "gemma3_text" or not isinstance(factor, int | float) or not 0 < factor < LARGEST:
        return limit
    first = how.get("original_max_position_embeddings") if name == "yarn" else limit
    return min(FARTHEST, int((first if isinstance(first, int) and 0 < first < FARTHEST else limit) * factor))


def check_whole(found: Mapping[str, object], where: str, mistakes: MistakeList) -> None:
    """Sizes that no configuration can leave out are mistakes by their own names."""
    for name in (_NAMES[ours] for ours in _NEEDED if found.get(_NAMES[ours]) is None and "text_config" not in found):
        mistakes.add(f"{where}: {name}", None, "is missing")


def _experts(found: Mapping[str, object]) -> dict[str, object]:
    """The widths of experts and shared ones, and how many each token has."""
    width = found.get("moe_intermediate_size") or found.get("intermediate_size")
    return {
        "moe_ffn": width,
        "topk": found.get("num_experts_per_tok") or found.get("experts_per_token") or 0,
        "shared_ffn": found.get("shared_expert_intermediate_size") or _times(found.get("n_shared_experts"), width),
    }


def _leading(found: Mapping[str, object], where: str, mistakes: MistakeList) -> object:
    """The layers before those with experts; dense ones that stand elsewhere are a mistake."""
    why = "dense layers are predicted before those with experts alone"
    step, alone, pattern = (found.get(key) for key in ("decoder_sparse_step", "mlp_only_layers", "moe_layer_freq"))
    if step not in (None, 1):
        mistakes.add(f"{where} decoder_sparse_step", step, why)
    if isinstance(pattern, list):
        dense = pattern.index(1) if 1 in pattern else len(pattern)
        if pattern != [0] * dense + [1] * (len(pattern) - dense):
            mistakes.add(f"{where} moe_layer_freq", str(pattern)[:40], why)
        return dense
    if pattern not in (None, 1):
        mistakes.add(f"{where} moe_layer_freq", str(pattern)[:40], why)
    if alone and alone != [*range(len(alone) if isinstance(alone, list) else 0)]:
        mistakes.add(f"{where} mlp_only_layers", str(alone)[:40], why)
    return len(alone) if isinstance(alone, list) and alone else found.get("first_k_dense_replace") or 0


def _window(found: Mapping[str, object], kind: str, where: str, mistakes: MistakeList) -> tuple[object, int] | None:
    """The window, and every how many layers one attends to all tokens (0: none); None: all do."""
    window = found.get("sliding_window", WINDOWS.get(kind, _QWEN_WINDOW))
    if not window or (kind not in WINDOWS and kind not in _QWEN):
        return None
    if kind in _QWEN and not found.get("use_sliding_window"):
        return None
    if (layers := found.get("layer_types")) is not None:
        every = _period(layers)
        if every is None:
            told = "windows are predicted in all layers, or in all but every n-th"
            mistakes.add(f"{where} layer_types", str(layers)[:40], told)
        return None if every in (None, 1) else (window, every)
    if kind in _QWEN and not _has_window(found, where, mistakes):
        return None
    pattern = found.get("sliding_window_pattern") if kind == "gemma3_text" else None
    return window, pattern if isinstance(pattern, int) else EVERY.get(kind, 0)


def _has_window(found: Mapping[str, object], where: str, mistakes: MistakeList) -> bool:
    """Whether a layer has the window; that the first ones have none is a mistake."""
    first, layers = found.get("max_window_layers", 28), found.get(MARK)
    if isinstance(first, int) and isinstance(layers, int) and first >= layers:
        return False
    if first != 0:
        mistakes.add(f"{where} max_window_layers", str(first)[:40], "windows are predicted in all layers: 0")
    return True


def _period(layers: object) -> int | None:
    """Every how many layers one attends to all tokens, 0: none does; None: they have no such period."""
    if not isinstance(layers, list) or not all(each in (_FULL, _SLIDING) for each in layers):
        return None
    every = layers.index(_FULL) + 1 if _FULL in layers else 0
    expected = [_FULL if every and (at + 1) % every == 0 else _SLIDING for at in range(len(layers))]
    return every if layers == expected else None


def _times(count: object, width: object) -> int:
    return count * width if isinstance(count, int) and isinstance(width, int) else 0
