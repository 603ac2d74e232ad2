"""Reads the rules of `compare` from a TOML file: when two runs are the same, and what fails.

confidence = 0.95
same_percent = 1.0           # a difference that surely lies within this is none
fail_on = ["worse"]          # words of the key figure that give exit code 1

[cases."BERT*"]              # of these cases alone; the first pattern that fits
same_percent = 3.0
"""

import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, ValidationError

from common.errors import InputProblems, Problem
from common.reading import read_bounded

Word = Literal["better", "same", "worse", "cannot tell", "not comparable"]
MAX_BYTES = 1 << 20
_Percent = Annotated[float, Field(gt=0, lt=100, allow_inf_nan=False)]


class CaseRules(BaseModel, extra="forbid", frozen=True):
    """The rules of some cases; None: as for all others."""

    same_percent: _Percent | None = None
    fail_on: tuple[Word, ...] | None = None


class Rules(BaseModel, extra="forbid", frozen=True):
    """The rules of a comparison. `confidence` is that of intervals; 1 - confidence the share of false alarms."""

    confidence: Annotated[float, Field(ge=0.5, le=0.9999)] = 0.95
    same_percent: _Percent = 1.0
    fail_on: tuple[Word, ...] = ("worse", "not comparable")
    cases: dict[str, CaseRules] = {}

    def of(self, case: str) -> tuple[float, tuple[Word, ...]]:
        """`same_percent` and `fail_on` of a case."""
        found = next((each for pattern, each in self.cases.items() if fnmatchcase(case, pattern)), CaseRules())
        percent = self.same_percent if found.same_percent is None else found.same_percent
        return percent, self.fail_on if found.fail_on is None else found.fail_on


def read_rules(file: Path) -> Rules:
    """The rules in a file.

    Raises:
        InputProblems: it cannot be read, or has mistakes: all at once.
    """
    try:
        values = tomllib.loads(read_bounded(file, MAX_BYTES).decode("utf-8"))
        return Rules.model_validate(values)
    except ValidationError as error:
        problems = [
            Problem(str(file), ".".join(map(str, each["loc"])), each["input"], each["msg"]) for each in error.errors()
        ]
    except (OSError, ValueError) as error:
        problems = [Problem(str(file), "", "rules", f"cannot be read as TOML: {error}")]
    raise InputProblems(problems)
