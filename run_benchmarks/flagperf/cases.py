"""Translates FlagPerf's cases: a dict with data paths, a list of keys, or a list of named dicts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.errors import Problem, closest
from run_benchmarks.flagperf.keys import CASE_KEYS, FRAMEWORKS, MODELS
from run_benchmarks.flagperf.lines import Line
from run_benchmarks.settings.case import parse_case_key
from training.benchmarks.catalog import available, without_version


@dataclass(frozen=True)
class Case:
    """A case: our name for it, FlagPerf's own model and framework folder, and our settings except `config`."""

    name: str
    model: str
    framework: str
    config: str
    settings: dict[str, Any]

    @property
    def ranks(self) -> int:
        """How many processes it runs on all hosts; 1 where a count is wrong, which the settings' check tells."""
        counts = (self.settings.get("nnodes", 1), self.settings.get("nproc", 1))
        return counts[0] * counts[1] if all(isinstance(count, int) and count > 0 for count in counts) else 1


def read_cases(values: dict[str, Any], file: Path, lines: list[Line], problems: list[Problem]) -> list[Case]:
    """The cases of a test_conf.py that have a benchmark here; the others are reported as left out."""
    listed = values.get("CASES")
    if not isinstance(listed, dict | list):
        problems.append(Problem(str(file), "CASES", listed, "expected a dict of case keys, or a list of keys or names"))
        return []
    cases: list[Case] = []
    for key in listed:
        definition = values.get(str(key))
        try:
            if isinstance(definition, dict):
                lines += [
                    Line(file, f"{key}.{each}", "unknown", "no key of a case of FlagPerf's")
                    for each in definition.keys() - set(CASE_KEYS)
                ]
                fields = {each: definition[each] for each in CASE_KEYS if each in definition}
            else:
                fields = parse_case_key(str(key), listed[key] if isinstance(listed, dict) else None)
        except ValueError as error:
            problems.append(Problem(str(file), "CASES", key, str(error)))
            continue
        missing = [each for each in ("model", "framework", "config", "nproc") if each not in fields]
        if missing:
            problems.append(Problem(str(file), str(key), definition, f"lacks {', '.join(missing)}"))
            continue
        case = _case(str(key), fields, file, lines)
        if case is not None:
            cases.append(case)
    if not cases and not problems:
        allowed = f"no case has a benchmark here; there are {', '.join(sorted(MODELS))} with {', '.join(FRAMEWORKS)}"
        problems.append(Problem(str(file), "CASES", list(listed), allowed))
    return cases


def _case(key: str, fields: dict[str, Any], file: Path, lines: list[Line]) -> Case | None:
    model, framework = str(fields["model"]), str(fields["framework"])
    package = without_version(framework)
    ours = MODELS.get(model.lower())
    if ours is None or (ours, FRAMEWORKS.get(package)) not in available():
        what = f"model {model!r}" if ours is None else f"{ours} in framework {framework!r}"
        near = closest(model, MODELS) if ours is None else None
        hint = f"; the nearest is {near!r}" if near else ""
        lines.append(Line(file, key, "left out", f"there is no {what} here{hint}"))
        return None
    name = key if key.isidentifier() else re.sub(r"\W", "_", key).upper()
    note = f"{name} = {{'model': {ours!r}, 'framework': {FRAMEWORKS[package]!r}, ...}}"
    lines.append(Line(file, key, "renamed" if name != key or ours != model else "kept", note if name != key else ""))
    settings = {each: fields[each] for each in CASE_KEYS[3:] if fields.get(each) not in (None, "")}
    if "data_dir_host" not in settings:
        lines.append(Line(file, f"{key}: data path", "by hand", "none is given; write data_dir_host and _container"))
    return Case(
        name=name,
        model=model,
        framework=package,
        config=str(fields["config"]),
        settings={"model": ours, "framework": FRAMEWORKS[package], **settings},
    )
