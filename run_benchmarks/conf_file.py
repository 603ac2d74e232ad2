"""Reads the Python files a user edits: executes them (by design, docs/security.md) and checks their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from run_benchmarks.errors import ConfigError, Problem
from training.benchmarks.driver.config import CaseConfigError, read_config_file

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_names(path: Path) -> dict[str, object]:
    """Execute the file and return the names it assigns at module level (no imports, functions, or leading underscores).

    Raises:
        ConfigError: the file is missing or its code fails; the line is named.
    """
    try:
        return read_config_file(path)
    except CaseConfigError as error:
        raise ConfigError(problems_of(error)) from error


def problems_of(error: CaseConfigError) -> list[Problem]:
    """A case config's mistakes in the controller's form."""
    return [
        Problem(item.source, item.key or "(file)", item.value, str(item).split(": ", 2 if item.key else 1)[-1])
        for item in error.problems
    ]


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which names are known and which is nearest, for an error message."""
    names = sorted(known)
    folded = {candidate.lower(): candidate for candidate in names}
    match = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    hint = f"did you mean {folded[match[0]]!r}? " if match else ""
    return f"{hint}known: {', '.join(names) or 'none'}"


def validate(
    model: type[ModelT], values: Mapping[str, Any], *, file: Path, prefix: str = ""
) -> tuple[ModelT | None, list[Problem]]:
    """Validate `values` against a model that forbids unknown keys.

    Returns the model instance, or None with one Problem a mistake; a key's name in a Problem starts with `prefix`.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        items = error.errors(include_url=False)
        inner = {item["loc"][:-1] for item in items if item["loc"]}
        # A list whose items are wrong counts as too short, too.
        return None, [
            _problem(model, item, file, prefix)
            for item in items
            if item["type"] != "too_short" or item["loc"] not in inner
        ]


def _problem(model: type[BaseModel], item: Any, file: Path, prefix: str) -> Problem:
    location = [str(part) for part in item["loc"]]
    key = prefix + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(location))
    if item["type"] == "extra_forbidden":
        return Problem(str(file), key, item["input"], f"unknown key; {nearest(location[-1], model.model_fields)}")
    if item["type"] == "missing":
        return Problem(str(file), key, None, f"required; {_describe(model, location)}")
    if not location:  # a rule over several keys
        return Problem(str(file), prefix.removesuffix(".") or "(file)", "", _allowed(item))
    return Problem(str(file), key, item["input"], _allowed(item))


def _allowed(item: Any) -> str:
    message = str(item["msg"]).removeprefix("Value error, ").replace("Input should be", "expected")
    return message.replace("a valid tuple", "a list").replace("Tuple should have", "expected")


def _describe(model: type[BaseModel], location: list[str]) -> str:
    field = model.model_fields.get(location[0]) if location else None
    return field.description if field is not None and field.description else "no default"
