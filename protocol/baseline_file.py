"""Reads and writes baselines: what the cases of a good run measured, each with its device and conditions."""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, JsonValue, ValidationError

from common.errors import InputProblems, stated
from common.reading import read_bounded
from common.shortening import few
from common.whole_files import write_text
from protocol.outcome import Reference

SCHEMA_VERSION: Literal[3] = 3
SHOWN_PROBLEMS = 3
MAX_BYTES = 64 << 20


class BaselineError(InputProblems):
    """A run or a baseline file that cannot be used; the message names it and says what is expected."""

    def __init__(self, text: str) -> None:
        super().__init__(stated([text]))


class CaseBaseline(BaseModel, frozen=True, extra="forbid"):
    """One case on one type of device. `conditions`: what must be the same for a comparison; `run`: its source."""

    case: str
    model: str
    framework: str
    device: str
    run: str
    conditions: dict[str, JsonValue]
    entries: dict[str, Reference]

    def mismatch(self, device: str, conditions: Mapping[str, JsonValue]) -> str:
        """The differences that prevent a comparison of a measurement with this, in words; "" if there are none."""
        differences = [] if device == self.device else [f"device {device}, in the baseline {self.device}"]
        for name in dict.fromkeys((*conditions, *self.conditions)):
            mine, known = conditions.get(name), self.conditions.get(name)
            if mine != known:
                differences.append(f"{name} {mine!r}, in the baseline {known!r}")
        return few(differences, SHOWN_PROBLEMS, "; ")


class Baseline(BaseModel, frozen=True, extra="forbid"):
    """The whole file. `saved_ms`: epoch milliseconds. A case may occur once per type of device."""

    schema_version: Literal[3] = 3
    saved_ms: int
    cases: tuple[CaseBaseline, ...]

    def of_case(self, name: str, model: str, framework: str) -> tuple[CaseBaseline, ...]:
        """The entries of a case, by device."""
        wanted = (name, model, framework)
        return tuple(each for each in self.cases if (each.case, each.model, each.framework) == wanted)

    def counterpart(self, now: CaseBaseline) -> tuple[CaseBaseline | None, tuple[str, ...]]:
        """The entry that `now` can be compared with; without one, how each entry of the same case differs."""
        mismatches = []
        for each in self.of_case(now.case, now.model, now.framework):
            mismatch = each.mismatch(now.device, now.conditions)
            if not mismatch:
                return each, ()
            mismatches.append(mismatch)
        return None, tuple(mismatches)


def save(cases: Iterable[CaseBaseline], file: Path) -> None:
    """Write a baseline, whole or not at all.

    Raises:
        BaselineError: the file cannot be written.
    """
    text = Baseline(saved_ms=time.time_ns() // 1_000_000, cases=tuple(cases)).model_dump_json(indent=1)
    try:
        write_text(file, text + "\n")
    except OSError as error:
        raise BaselineError(f"{file}: cannot be written: {error}") from error


def load(file: Path) -> Baseline:
    """Read a baseline.

    Raises:
        BaselineError: the file is missing, of another version or of another form.
    """
    try:
        data = json.loads(read_bounded(file, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise BaselineError(f"{file}: is no baseline: {error}") from error
    version = data.get("schema_version") if isinstance(data, dict) else None
    if version != SCHEMA_VERSION:
        why = ": it has neither units nor devices nor settings; make a new one" if version in (1, 2) else ""
        raise BaselineError(f"{file}: is no baseline: schema_version {version!r}, expected {SCHEMA_VERSION}{why}")
    try:
        return Baseline.model_validate(data)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:SHOWN_PROBLEMS]]
        raise BaselineError(f"{file}: is no baseline: {'; '.join(problems)}") from error
