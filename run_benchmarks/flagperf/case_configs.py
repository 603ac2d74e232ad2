"""Translates one case config of FlagPerf: its base's values, then the vendor's, key by key.

`computed` gives the values that FlagPerf's code derives from others and from the number of ranks.
"""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

from common.errors import InputProblems, Problem
from protocol.case_config import CaseConfig, load_case_config
from protocol.config_file import read_config_file
from protocol.config_layers import BASE_FILE, base_file
from run_benchmarks.flagperf.keys import COMMON, OF_MODEL, fate_of
from run_benchmarks.flagperf.reading import Conf, read_conf

Outcome = Literal["kept", "renamed", "added", "meaningless", "unknown", "left out", "by hand"]


@dataclass(frozen=True)
class Line:
    """A key of a file, its outcome, and the new name or the reason."""

    file: Path
    key: str
    outcome: Outcome
    note: str = ""


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


NEEDED = {key for fates in (COMMON, *OF_MODEL.values()) for key, fate in fates.items() if fate.to is not None}


@dataclass
class CaseConfigText:
    """The translated settings, and the outcome of each key; `problems` if it cannot be translated.

    `raw` has FlagPerf's own keys and values.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def text(self, origin: str) -> str:
        """The file's text."""
        lines = [f"# Translated from FlagPerf's {origin}, whose base's values it has, too."]
        return "\n".join([*lines, *(f"{key} = {value!r}" for key, value in self.settings.items())]) + "\n"


def translate_config(
    benchmark: str, file: Path, base: Path, config_class: type[CaseConfig], ranks: int
) -> CaseConfigText:
    """Translate FlagPerf's config `file`, and the benchmark's `base` if there is one, for our model:framework."""
    found = CaseConfigText()
    for path in (base, file):
        if not path.is_file():
            continue
        conf = read_conf(path, NEEDED, found.problems)
        if conf is None:  # of what is missing then, nothing is said
            return found
        _take(benchmark, conf, config_class, found)
    for key, its in computed(benchmark, found.raw, ranks).items():
        if its.wins or key not in found.settings:
            found.settings[key] = its.value
            found.lines.append(Line(file, key, "added", f"= {its.value!r}: {its.why}"))
    _without_effect(found)
    found.settings["data"] = "files"
    _stand_alone(found, file, config_class)
    found.problems += _refused(found, file, config_class)
    return found


def _take(benchmark: str, conf: Conf, config_class: type[CaseConfig], found: CaseConfigText) -> None:
    for key, value in {**conf.values, **dict.fromkeys(conf.computed)}.items():
        fate = None if key.startswith("_") else fate_of(benchmark, key)
        if value is not None:
            found.raw[key] = value
        if fate is None:
            note = "no key of FlagPerf's that is known: it is not translated"
            found.lines.append(Line(conf.path, key, "unknown", note))
        elif fate.to is None:
            found.lines.append(Line(conf.path, key, "meaningless", fate.why))
        elif fate.to not in config_class.model_fields:
            model = benchmark.partition(":")[0]
            found.lines.append(Line(conf.path, key, "meaningless", f"our {model} has no such setting"))
        elif fate.derived:
            found.lines.append(Line(conf.path, key, "renamed", f"{fate.to}: {fate.why}"))
        else:
            _translate(key, value, fate.to, fate.convert, conf.path, found)


def _translate(key: str, value: Any, to: str, convert: Any, path: Path, found: CaseConfigText) -> None:
    if value is None:
        found.lines.append(Line(path, key, "meaningless", "None: FlagPerf leaves such a key as it is"))
        return
    try:
        ours = value if convert is None else convert(value)
    except (TypeError, ValueError, OverflowError) as error:
        found.problems.append(Problem(str(path), key, value, f"cannot be made {to}: {error}"))
        return
    if ours is None:
        found.settings.pop(to, None)
        found.lines.append(Line(path, key, "meaningless", f"{value!r} means none here"))
        return
    found.settings[to] = float(ours) if isinstance(ours, int) and to in ("warmup", "max_grad_norm") else ours
    outcome = "kept" if to == key else "renamed"
    note = "" if outcome == "kept" else f"{to} = {ours!r}"
    found.lines.append(Line(path, key, outcome, note))  # type: ignore[arg-type]


def _without_effect(found: CaseConfigText) -> None:
    """Drop settings that have no effect beside the others."""
    if "eval_interval_samples" not in found.settings:
        found.settings.pop("eval_start_samples", None)
    if found.settings.get("precision", "fp32") != "fp16":
        found.settings.pop("init_loss_scale", None)


def _stand_alone(found: CaseConfigText, file: Path, config_class: type[CaseConfig]) -> None:
    """Write the default of each setting that FlagPerf's files leave out and that our base.py sets."""
    base = base_file(config_class)
    for key, value in read_config_file(base).items() if base is not None else ():
        default = config_class.model_fields[key].get_default(call_default_factory=True)
        if key not in found.settings:
            found.settings[key] = default
            note = f"= {default!r}: FlagPerf leaves it out, and {BASE_FILE} of this benchmark has {value!r}"
            found.lines.append(Line(file, key, "added", note))


def _refused(found: CaseConfigText, file: Path, config_class: type[CaseConfig]) -> list[Problem]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.py"
        path.write_text(found.text(file.name), encoding="utf-8")
        try:
            load_case_config(config_class, path, {})
        except InputProblems as error:
            return [problem._replace(file=str(file), known=()) for problem in error.problems]
    return []
