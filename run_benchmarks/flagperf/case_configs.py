"""Translates one case config of FlagPerf: its base's values, then the vendor's, key by key."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from protocol.case_config import CaseConfig, load_case_config
from protocol.config_file import read_config_file
from protocol.config_layers import BASE_FILE, base_file
from protocol.problems import ConfigError, Problem
from run_benchmarks.flagperf.keys import COMMON, IMPLIED, fate_of
from run_benchmarks.flagperf.lines import Line
from run_benchmarks.flagperf.reading import Conf, read_conf

IN_CODE = "FlagPerf has it in its code, or in DeepSpeed's file"
ADDED_WHY = {"target_loss": "ours; target_embedding_average alone tells little of a model"}
NEEDED = [key for key, fate in COMMON.items() if fate.to is not None]


@dataclass
class CaseConfigText:
    """The translated settings, and the outcome of each key; `problems` if it cannot be translated."""

    settings: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def text(self, origin: str) -> str:
        """The file's text."""
        lines = [f"# Translated from FlagPerf's {origin}, whose base's values it has, too."]
        return "\n".join([*lines, *(f"{key} = {value!r}" for key, value in self.settings.items())]) + "\n"


def translate_config(model: str, file: Path, base: Path, config_class: type[CaseConfig]) -> CaseConfigText:
    """Translate FlagPerf's config `file`, and the benchmark's `base` if there is one, for our `model`."""
    found = CaseConfigText()
    for path in (base, file):
        if not path.is_file():
            continue
        conf = read_conf(path, NEEDED, found.problems)
        if conf is None:  # of what is missing then, nothing is said
            return found
        _take(model, conf, config_class, found)
    for key, value in IMPLIED.get(model, {}).items():
        if key not in found.settings:
            found.settings[key] = value
            found.lines.append(Line(file, key, "added", f"= {value!r}: {ADDED_WHY.get(key, IN_CODE)}"))
    _adjust(model, found, file)
    found.settings["data"] = "files"
    _stand_alone(found, file, config_class)
    found.problems += _refused(found, file, config_class)
    return found


def _take(model: str, conf: Conf, config_class: type[CaseConfig], found: CaseConfigText) -> None:
    for key, value in {**conf.values, **dict.fromkeys(conf.computed)}.items():
        fate = None if key.startswith("_") else fate_of(model, key)
        if fate is None:
            note = "no key of FlagPerf's that is known: it is not translated"
            found.lines.append(Line(conf.path, key, "unknown", note))
        elif fate.to is None:
            found.lines.append(Line(conf.path, key, "meaningless", fate.why))
        elif fate.to not in config_class.model_fields:
            found.lines.append(Line(conf.path, key, "meaningless", f"our {model} has no such setting"))
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


def _adjust(model: str, found: CaseConfigText, file: Path) -> None:
    """Adjust settings with another unit here, and drop those without effect."""
    settings = found.settings
    if "eval_interval_samples" not in settings:
        settings.pop("eval_start_samples", None)
    if settings.get("precision", "fp32") != "fp16":
        settings.pop("init_loss_scale", None)
    steps, parts = settings.get("max_steps"), settings.get("gradient_accumulation_steps", 1)
    if model == "bert" and isinstance(steps, int) and isinstance(parts, int) and parts > 1:
        settings["max_steps"], settings["lr_decay_steps"] = math.ceil(steps / parts), steps
        note = f"max_steps = {settings['max_steps']}, lr_decay_steps = {steps}: FlagPerf ends by micro-steps"
        found.lines.append(Line(file, "max_steps", "renamed", note))


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
        except ConfigError as error:
            return [replace(problem, file=str(file), known=()) for problem in error.problems]
    return []
