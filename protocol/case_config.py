"""Case configs: a plain Python file of assignments, checked against the pydantic model of the benchmark it is for."""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from common.errors import ABSENT, InputProblems, Problem
from protocol.config_file import OVERRIDE, SERVES
from protocol.config_layers import EXTENDS, Layer, Layers, base_file, read_layers
from protocol.schema_words import type_in_words

DEFAULT = "default"
# Of the case in test_conf.py, whose config does not repeat them.
KEYS_OF_THE_CASE = ("nnodes", "nproc", "repeat", "hosts")


class CaseConfig(BaseModel, extra="forbid", frozen=True, strict=True, validate_default=True):
    """Settings that all benchmarks share; a benchmark's `Config` adds its own fields.

    Types are strict (an int is no bool and no string), unknown keys are errors, and instances are immutable.
    """

    seed: int = Field(42, ge=0, lt=2**32, description="seed of every random generator")
    backend: str | None = Field(None, pattern=r"^[a-z0-9_]+$", description="process-group backend; None: the vendor's")
    timeout_s: float = Field(600.0, gt=0, description="seconds after which a collective that hangs fails")

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        """The reason why these settings cannot run on `nnodes` hosts with `nproc` ranks each; None if they can.

        The controller asks before any host is touched.
        """
        return None

    def data_refusal(self, *, has_folder: bool) -> str | None:
        """The reason why these settings cannot run with or without a data folder; None if they can. Asked likewise."""
        return None

    def uses_package(self, name: str) -> bool:
        """Whether ranks with these settings import the package, which the case's requirements.txt lists."""
        return True

    @classmethod
    def misplaced(cls, sources: Sequence[tuple[str, Mapping[str, object]]]) -> list[Problem]:
        """Mistakes in the places where values are set: each source and its values, in the order in which they apply."""
        return []

    def memory_need(self, *, nnodes: int, nproc: int) -> "MemoryNeed | None":
        """The least memory of a rank, on its device or of its host; None where that is not known. On `nnodes` hosts
        with `nproc` ranks each.
        """
        return None


class MemoryNeed(BaseModel, extra="forbid", frozen=True):
    """Bytes that one rank needs at least, for what, and how to need less; the check of the hosts asks for them."""

    bytes_per_rank: int
    purpose: str
    remedy: str


ConfigT = TypeVar("ConfigT", bound=CaseConfig)


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedConfig(Generic[ConfigT]):
    """The settings of a case, and of each where its value comes from: DEFAULT, OVERRIDE or a file's path."""

    config: ConfigT
    origins: dict[str, str]


def load_case_config(model_class: type[ConfigT], path: Path | None, overrides: Mapping[str, object]) -> ConfigT:
    """The settings of one case; see `trace_case_config`.

    Raises:
        InputProblems: a file or an override is wrong; all mistakes at once.
    """
    return trace_case_config(model_class, path, overrides).config


def trace_case_config(
    model_class: type[ConfigT], path: Path | None, overrides: Mapping[str, object]
) -> LoadedConfig[ConfigT]:
    """The settings of one case, each from the last of these that sets it, and from which.

    1. defaults of `model_class`
    2. base.py beside the module of `model_class`, if there is one
    3. the files that the case config `path` extends (see config_layers), then `path` itself
    4. `overrides`, also where they are None

    Without `path`, 2 and 3 are left out. The files are executed; their module-level assignments to lower-case names are
    the settings, so a later one may be computed from earlier ones. Names that are imported, defined by def or class,
    written in upper case, or start with an underscore are helpers.

    Raises:
        InputProblems: a file or an override is wrong; all mistakes at once.
    """
    layers = Layers(files=(), problems=()) if path is None else read_layers(path, base_file(model_class))
    problems = list(layers.problems)
    values: dict[str, object] = {}
    origins = dict.fromkeys(model_class.model_fields, DEFAULT)
    sources = [(str(layer.path), _without_constants(model_class, layer.values)) for layer in layers.files]
    for source, given in [*sources, (OVERRIDE, overrides)]:
        for key, value in given.items():
            if key in model_class.model_fields:
                values[key], origins[key] = value, source
            else:
                problems.append(_unknown_key(model_class, source, key, value))
    place = _Places(path=path, files=layers.files, origins=origins)
    try:
        config = model_class.model_validate(values)
    except ValidationError as error:
        details = [detail for detail in error.errors() if not layers.problems or _is_of_one_value(detail)]
        broken_by = overrides if _is_valid(model_class, [given for _, given in sources]) else {}
        problems += [_mistake(model_class, place, values, broken_by, detail) for detail in details]
        raise InputProblems(problems) from error
    problems += model_class.misplaced([*sources, (OVERRIDE, overrides)])
    if problems:
        raise InputProblems(problems)
    return LoadedConfig(config=config, origins=origins)


def override_problems(model_class: type[CaseConfig], overrides: Mapping[str, object]) -> list[Problem]:
    """The mistakes in overrides that are mistakes whatever the case config says, which cannot be read."""
    known = {key: value for key, value in overrides.items() if key in model_class.model_fields}
    problems = [_unknown_key(model_class, OVERRIDE, key, value) for key, value in overrides.items() if key not in known]
    try:
        model_class.model_validate(known)
    except ValidationError as error:
        own = [detail for detail in error.errors() if _is_of_one_value(detail) and detail["loc"][0] in known]
        problems += [_invalid_value(model_class, lambda _: OVERRIDE, known, detail) for detail in own]
    return problems


def _without_constants(model_class: type[CaseConfig], values: Mapping[str, object]) -> dict[str, object]:
    """The values without upper-case names, which are a file's constants, unless a setting has that name."""
    known = {*model_class.model_fields, EXTENDS, SERVES}
    return {key: value for key, value in values.items() if key == key.lower() or key.lower() in known}


def _is_of_one_value(detail: ErrorDetails) -> bool:
    """Whether a value is wrong by itself, whatever files that cannot be read set."""
    return bool(detail["loc"]) and detail["type"] not in ("missing", "value_error")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Places:
    """Where a value stands, in words for a message."""

    path: Path | None
    files: tuple[Layer, ...]
    origins: Mapping[str, str]

    def of(self, key: str) -> str:
        """Of the value of `key`; of all files together where it is empty: a rule over several settings."""
        origin = self.origins.get(key, DEFAULT)
        if self.path is None or origin == OVERRIDE:
            return OVERRIDE
        if key:
            return str(self.path) if origin in (DEFAULT, str(self.path)) else f"{origin} (below {self.path.name})"
        others = [layer.path.name for layer in reversed(self.files) if layer.path != self.path]
        return f"{self.path} with {' and '.join(others)}" if others else str(self.path)


def _is_valid(model_class: type[CaseConfig], sources: Sequence[Mapping[str, object]]) -> bool:
    """Whether the settings of the files alone keep every rule."""
    given = {key: value for values in sources for key, value in values.items() if key in model_class.model_fields}
    try:
        model_class.model_validate(given)
    except ValidationError:
        return False
    return True


def _mistake(
    model_class: type[CaseConfig],
    place: _Places,
    values: Mapping[str, object],
    broken_by: Mapping[str, object],
    detail: ErrorDetails,
) -> Problem:
    """The mistake in a value, or in `broken_by`, the overrides, where these are any and break a rule over several."""
    if detail["loc"] or not broken_by:
        return _invalid_value(model_class, place.of, values, detail)
    return _broken_rule(detail, broken_by)


def _broken_rule(detail: ErrorDetails, overrides: Mapping[str, object]) -> Problem:
    """The mistake of overrides that break a rule over several settings, which the files keep.

    It names the override that the rule speaks of, all together where these are none or several.
    """
    message = detail["msg"].removeprefix("Value error, ")
    named = [key for key in overrides if re.search(rf"\b{re.escape(key)}\b", message)]
    if not named and len(overrides) == 1:
        named = list(overrides)
    return (
        Problem(OVERRIDE, named[0], overrides[named[0]], message)
        if len(named) == 1
        else Problem(OVERRIDE, "", dict(overrides), message)
    )


def parse_override(text: str) -> tuple[str, object]:
    """Key and value of a `key=value` argument; the value is JSON or a Python literal, otherwise a string.

    Raises:
        ValueError: the text has no `=` or no key.
    """
    key, equals, raw = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r} is not of the form key=value")
    for parse in (json.loads, ast.literal_eval):
        try:
            return key.strip(), parse(raw)
        except (ValueError, SyntaxError):
            continue
    return key.strip(), raw


def _unknown_key(model_class: type[CaseConfig], source: str, key: str, value: object) -> Problem:
    if key in KEYS_OF_THE_CASE:
        return Problem(source, key, value, "a key of the case in test_conf.py, not of its config")
    message = "unknown setting" if key == key.lower() else "settings are written in lower case"
    if key in (EXTENDS, SERVES):
        message = f"only a config file {key} {'another' if key == EXTENDS else 'other names'}"
    elif key == key.lower() and source != OVERRIDE:
        message += f" (a name of your own begins with an underscore: _{key})"
    known = sorted([*model_class.model_fields, *([] if source == OVERRIDE else [EXTENDS, SERVES])])
    return Problem(source, key, value, message, tuple(known), f"settings of {_benchmark_of(model_class)}")


def _benchmark_of(model_class: type[CaseConfig]) -> str:
    """The benchmark's name, from where its settings are defined: training.benchmarks.<model>.<framework>.config."""
    parts = model_class.__module__.split(".")
    return ":".join(parts[2:4]) if parts[:2] == ["training", "benchmarks"] else "this benchmark"


def _invalid_value(
    model_class: type[CaseConfig], source_of: Callable[[str], str], values: Mapping[str, object], detail: ErrorDetails
) -> Problem:
    key = str(detail["loc"][0]) if detail["loc"] else ""
    inner = ".".join(str(part) for part in detail["loc"][1:] if isinstance(part, int))
    own = detail["msg"].removeprefix("Value error, ") if detail["type"] == "value_error" else ""
    message = f"at {inner}: {own or detail['msg']}" if inner else own
    allowed = _allowed(model_class, key)
    if allowed:
        message = f"{message}; allowed: {allowed}" if message else f"expected {allowed}"
    return Problem(source_of(key), key, values.get(key) if key else ABSENT, message)


def _allowed(model_class: type[CaseConfig], key: str) -> str:
    properties = model_class.model_json_schema()["properties"].get(key)
    if properties is None:
        return ""
    description = properties.get("description", "")
    return f"{type_in_words(properties)} ({description})" if description else type_in_words(properties)
