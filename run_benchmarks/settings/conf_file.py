"""Checks the names and values in the Python files that a user edits."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from common.errors import ABSENT, Problem, closest
from protocol.schema_words import type_in_words

ModelT = TypeVar("ModelT", bound=BaseModel)
ITEM_WORDS = {"string": "text", "int": "a whole number", "float": "a number", "bool": "True or False", "dict": "a dict"}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names and the nearest one, for an error message."""
    names = sorted(known)
    match = closest(name, names)
    hint = f"did you mean {match!r}? " if match else ""
    return f"{hint}known: {', '.join(names) or 'none'}"


def helper_hint(name: str) -> str:
    """How to write a name that is no setting but a helper of the file."""
    return f"unknown key (a name of your own begins with an underscore: _{name})"


def validate(
    model: type[ModelT], values: Mapping[str, Any], *, file: Path, prefix: str = "", known_as: str = ""
) -> tuple[ModelT | None, list[Problem]]:
    """Validate `values` against a model that forbids unknown keys.

    Args:
        prefix: the beginning of a key's name in a Problem, e.g. "ONE." for a case.
        known_as: the kind of the model's keys, e.g. "keys of a case".

    Returns:
        the model instance, or None with one Problem per mistake.
    """
    try:
        return model.model_validate(values), []
    except ValidationError as error:
        items = error.errors(include_url=False)
        inner = {item["loc"][:-1] for item in items if item["loc"]}
        # A list whose items are wrong counts as too short, too.
        return None, [
            _problem(model, item, file, prefix, known_as)
            for item in items
            if item["type"] != "too_short" or item["loc"] not in inner
        ]


def sound_part(model: type[ModelT], values: Mapping[str, Any], stand_ins: Mapping[str, Any]) -> tuple[ModelT, set[str]]:
    """An instance of those values that are right by themselves.

    Args:
        stand_ins: values for the required keys, where they are missing or wrong.

    Returns:
        the instance, and the keys whose values are in it.
    """
    kept = {key: value for key, value in values.items() if key in model.model_fields}
    while True:
        try:
            return model.model_validate({**stand_ins, **kept}), set(kept)
        except ValidationError as error:
            wrong = {item["loc"][0] for item in error.errors(include_url=False) if item["loc"]}
            # No single key breaks a rule over several: what is required is all that is left then.
            right = {key: value for key, value in kept.items() if (key not in wrong if wrong else key in stand_ins)}
            if right == kept:
                raise
            kept = right


def _problem(model: type[BaseModel], item: Any, file: Path, prefix: str, known_as: str) -> Problem:
    location = [str(part) for part in item["loc"]]
    key = prefix + re.sub(r"\.(\d+)(?=\.|$)", r"[\1]", ".".join(location))
    if item["type"] == "extra_forbidden":
        allowed = "unknown key" if prefix else helper_hint(location[-1])
        return Problem(str(file), key, item["input"], allowed, tuple(sorted(model.model_fields)), known_as)
    if item["type"] == "missing":
        return Problem(str(file), key, ABSENT, f"required: {described(model, location[0])}")
    if not location:  # a rule over several keys
        return Problem(str(file), prefix.removesuffix("."), ABSENT, _own_words(item))
    return Problem(str(file), key, item["input"], _allowed(model, item, location))


def _own_words(item: Any) -> str:
    return str(item["msg"]).removeprefix("Value error, ")


def _allowed(model: type[BaseModel], item: Any, location: list[str]) -> str:
    if item["type"] == "value_error":
        return _own_words(item)
    if len(location) == 1:
        return f"expected {described(model, location[0])}"
    words = ITEM_WORDS.get(item["type"].partition("_")[0])
    return f"expected {words}" if words else _own_words(item)


def described(model: type[BaseModel], key: str) -> str:
    """Allowed values and meaning of a setting, in words."""
    schema = model.model_json_schema()["properties"][key]
    meaning = schema.get("description", "")
    return f"{type_in_words(schema)} ({meaning})" if meaning else type_in_words(schema)
