"""Translates one case config of FlagPerf: its base's values, then the vendor's, key by key."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import InputProblems, Problem
from protocol.case_config import CaseConfig, load_case_config
from protocol.config_file import read_config_file
from protocol.config_layers import BASE_FILE, base_file
from run_benchmarks.flagperf.in_code import computed
from run_benchmarks.flagperf.keys import COMMON, OF_MODEL, fate_of
from run_benchmarks.flagperf.lines import Line
from run_benchmarks.flagperf.reading import Conf, read_conf

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
