"""Computes what FlagPerf's code adds to a case config: values of its own, and those that it derives from keys."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

# Values that FlagPerf has in its code or in DeepSpeed's file, not in a config, by our model:framework.
IMPLIED: dict[str, dict[str, Any]] = {
    "bert:pytorch": {
        "optimizer": "lamb", "lr_schedule": "flagperf_bert", "max_grad_norm": 1.0,
        "init_checkpoint": "model.ckpt-28252.pt",
    },
    "bert:paddle": {
        "optimizer": "adamw", "lr_schedule": "flagperf_bert_paddle", "init_checkpoint": "model.ckpt-28252.safetensors",
    },
    "glm:pytorch": {
        "optimizer": "adamw", "lr_schedule": "flagperf_glm",
        "init_checkpoint": "blocklm-large-blank/200000/mp_rank_00_model_states.pt",
    },
    "cpm:pytorch": {"optimizer": "adamw", "lr_schedule": "flagperf_cpm", "target_loss": 3.2},
    "llama:pytorch": {
        "optimizer": "adamw", "learning_rate": 1e-5, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "eps": 1e-5,
        "max_grad_norm": 1.0, "precision": "bf16", "strategy": "fsdp", "lr_schedule": "constant", "eval_file": None,
        "nominal_parameters": 7_000_000_000,
    },
}  # fmt: skip
_FOR_0 = "FlagPerf computes it for 0"
_IN_CODE = "FlagPerf has it in its code, or in DeepSpeed's file"
_WHY = {
    ("cpm:pytorch", "target_loss"): "ours; target_embedding_average alone tells little of a model",
    ("bert:paddle", "init_checkpoint"): "FlagPerf's code reads model.ckpt-28252.pt; the way from it to"
    " this file is in docs/reference/training-benchmarks.md",
}


@dataclass(frozen=True)
class Computed:
    """A value of ours that a config's keys do not name, and its reason; `wins` over what they set."""

    value: Any
    why: str
    wins: bool = False


def computed(benchmark: str, raw: Mapping[str, Any], ranks: int) -> dict[str, Computed]:
    """The values that FlagPerf's code makes of a config with the keys `raw` on `ranks` ranks, by our names.

    Source: FlagPerf, training/benchmarks/<model>/<framework>: utils/check.py, train/trainer.py, trainer_adapter.py,
    schedulers/factory.py.
    """
    found = {
        key: Computed(value, _WHY.get((benchmark, key), _IN_CODE)) for key, value in IMPLIED.get(benchmark, {}).items()
    }
    steps, warmup = raw.get("max_steps"), raw.get("warmup_steps")
    falling = raw.get("lr_decay_iters") or steps
    if benchmark.startswith(("bert:", "cpm:")) and _is_count(falling) and _is_count(warmup):
        found["warmup"] = Computed(warmup / falling, f"warmup_steps = {warmup} of {falling}", wins=True)
    if benchmark == "glm:pytorch" and raw.get("eval_interval_samples") == 0 and _is_count(raw.get("train_batch_size")):
        found["eval_interval_samples"] = Computed(_default_interval(raw["train_batch_size"] * ranks), _FOR_0)
    if benchmark.startswith("bert:"):
        found |= _evaluation(raw, ranks)
        parts = raw.get("gradient_accumulation_steps")
        if _is_count(steps) and _is_count(parts) and parts > 1:
            why = f"FlagPerf ends after {steps} micro-steps, {parts} of which are a step here"
            found["max_steps"] = Computed(math.ceil(steps / parts), why, wins=True)
            if benchmark == "bert:pytorch":  # whose schedule counts updates
                found["lr_decay_steps"] = Computed(steps, "the rate falls over so many updates", wins=True)
    return found


def _evaluation(raw: Mapping[str, Any], ranks: int) -> dict[str, Computed]:
    """Samples from one evaluation of BERT to the next, and before the first; {} if it evaluates at the end alone.

    FlagPerf's steps are micro-steps. It counts the samples before a step, so that one step more is due than here.
    """
    size, asked, every = raw.get("train_batch_size"), raw.get("eval_interval_samples") or 0, raw.get("eval_step")
    start = raw.get("eval_iter_start_samples") or 0
    if not _is_count(size) or not all(isinstance(value, int | float) for value in (asked, start)) or asked < 0:
        return {}
    batch = size * ranks
    if _is_count(every):
        interval = Computed(every * batch, f"each {every} steps of {batch} samples on {ranks} ranks")
    elif asked:
        interval = Computed(int(asked), "eval_interval_samples")
    else:
        interval = Computed(_default_interval(batch), _FOR_0)
    found = {"eval_interval_samples": interval}
    if start > 0:
        why = f"FlagPerf counts the samples before a step: {batch} more than eval_iter_start_samples"
        found["eval_start_samples"] = Computed(int(start) + batch, why)
    return found


def _default_interval(batch: int) -> int:
    """Samples from one evaluation to the next that FlagPerf computes for 0, `batch` of which are a step of all ranks.

    Source: MLPerf Training's rule for BERT: 0.05 * (230.23 * batch + 3,000,000), rounded down to 25,000.
    """
    return int(0.05 * (230.23 * batch + 3_000_000) / 25_000) * 25_000


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
