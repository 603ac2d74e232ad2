"""Says in words which values the JSON schema of a setting allows."""

from collections.abc import Mapping
from typing import Any


def type_in_words(schema: Mapping[str, Any]) -> str:
    """Allowed values in words, from their JSON schema: its `words`, else its type and bounds."""
    if "words" in schema:
        return str(schema["words"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(type_in_words(option) for option in schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(repr(value) for value in schema["enum"])
    if "const" in schema:
        return repr(schema["const"])
    if schema.get("format") == "path":
        return "a path"
    kind = _KINDS.get(str(schema.get("type")), "a value")
    if schema.get("minItems"):
        return f"{kind} of {schema['minItems']} or more"
    return kind + _bounds_in_words(schema)


_KINDS = {
    "integer": "a whole number", "number": "a number", "string": "text", "boolean": "True or False", "array": "a list",
    "object": "a dict", "null": "None",
}  # fmt: skip


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else str(value)


def _bounds_in_words(schema: Mapping[str, Any]) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    words = [
        f"{sign} {_number(bound)}"
        for sign, bound in (("of at least", low), ("above", above), ("of at most", high), ("below", below))
        if bound is not None
    ]
    return f" {' and '.join(words)}" if words else ""
