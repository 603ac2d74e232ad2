"""Reads JSON from a host: bounded in size, depth and numbers, and without text that no file can hold.

All JSON from hosts is read here. The result can be compared, validated, written as JSON and UTF-8, stored in a database
and displayed; everything else is refused with one kind of error. Needs the standard library and pydantic's type alone.
"""

import json
import math
import os
from collections import Counter
from pathlib import Path

from pydantic import JsonValue

MAX_BYTES = 4 << 20
MAX_DEPTH = 64
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
# More digits than any written float has; int() and float() of millions of digits take long.
_MAX_DIGITS = 1000


class UnsafeJsonError(ValueError):
    """Text that is no JSON, or JSON outside the bounds; the message names the bound."""


def load(data: bytes | str, *, max_bytes: int = MAX_BYTES) -> JsonValue:
    """The JSON value of `data` (UTF-8; invalid bytes become U+FFFD).

    NaN, Infinity, -Infinity and numbers beyond a float become these strings; an unpaired surrogate becomes U+FFFD.

    Raises:
        UnsafeJsonError: no JSON, more than `max_bytes`, more than MAX_DEPTH lists and objects within one another, an
            integer beyond 64 bits, or an object that has a key twice.
    """
    if len(data) > max_bytes:
        raise UnsafeJsonError(f"{len(data)} bytes; allowed: {max_bytes}")
    text = data.decode("utf-8", errors="replace") if isinstance(data, bytes) else _without_surrogates(data)
    try:
        value: JsonValue = _DECODER.decode(text)
    except RecursionError:
        raise UnsafeJsonError(_TOO_DEEP) from None
    except UnsafeJsonError:
        raise
    except ValueError as error:
        raise UnsafeJsonError(f"no JSON: {error}") from error
    # Most lines can hold neither, and the walk costs as much as the parsing.
    if "\\u" not in text and text.count("[") + text.count("{") <= MAX_DEPTH:
        return value
    return plain(value)


def read(path: Path, *, max_bytes: int = MAX_BYTES) -> JsonValue:
    """The value in a file.

    Raises:
        OSError: the file cannot be read.
        UnsafeJsonError: as for `load`; at most `max_bytes` are read.
    """
    # Opening a FIFO in place of the file would block; `open` closes the descriptor of a folder.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        return load(file.read(max_bytes + 1), max_bytes=max_bytes)


def plain(value: object, depth: int = 0) -> JsonValue:
    """`value`, made of dicts, lists and scalars, as `load` would return it.

    Raises:
        UnsafeJsonError: the value is outside the bounds.
    """
    if isinstance(value, str):
        return _without_surrogates(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _bounded(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else non_finite_name(value)
    if isinstance(value, list | dict) and depth >= MAX_DEPTH:
        raise UnsafeJsonError(_TOO_DEEP)
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return _object([(_without_surrogates(str(key)), plain(item, depth + 1)) for key, item in value.items()])
    raise UnsafeJsonError(f"a {type(value).__name__}, which JSON cannot hold")


def _without_surrogates(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _object(pairs: list[tuple[str, JsonValue]]) -> JsonValue:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(key for key, _ in pairs).most_common(1)[0]
        raise UnsafeJsonError(f"the key {twice[:100]!r} stands twice in one object")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise UnsafeJsonError(f"a number of {len(digits)} digits; allowed: {_MAX_DIGITS}")
    return _bounded(int(digits))


def _bounded(value: int) -> int:
    if not MIN_INTEGER <= value <= MAX_INTEGER:
        raise UnsafeJsonError("an integer beyond 64 bits; allowed: -2^63 to 2^63 - 1")
    return value


def _number(digits: str) -> float | str:
    if len(digits) > _MAX_DIGITS:
        raise UnsafeJsonError(f"a number of {len(digits)} digits; allowed: {_MAX_DIGITS}")
    value = float(digits)
    return value if math.isfinite(value) else non_finite_name(value)


def non_finite_name(value: float) -> str:
    """The JSON string that stands for a number without a value: NaN, Infinity or -Infinity (of any unit)."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


_TOO_DEEP = f"lists and objects more than {MAX_DEPTH} within one another"
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=str, parse_int=_integer, parse_float=_number)
