"""What a host sends as JSON is a plain value or one kind of error."""

import json
import math
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from protocol import safe_json
from protocol.safe_json import MAX_DEPTH, MAX_INTEGER, MIN_INTEGER, UnsafeJsonError, load, plain, read

DEEP = 200_000


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (nested(MAX_DEPTH + 1), "more than 64 within one another"),
        (nested(DEEP), "more than 64 within one another"),
        ('{"a":' * DEEP + "1" + "}" * DEEP, "more than 64 within one another"),
        ("[" * DEEP, "within one another|no JSON"),
        ("9" * 5000, "a number of 5000 digits"),
        ("-" + "9" * 4_000_000, "digits"),
        ("1." + "9" * 4_000_000, "digits"),
        (str(10**400), "beyond 64 bits"),
        (str(MAX_INTEGER + 1), "beyond 64 bits"),
        (str(MIN_INTEGER - 1), "beyond 64 bits"),
        ('{"a": 1, "b": 2, "a": 3}', "the key 'a' stands twice"),
        ('{"\\ud800": 1, "\\ud801": 2}', "the key '\ufffd' stands twice"),
        ("", "no JSON"),
        ('{"a": 1', "no JSON"),
        ("\ufeff1", "no JSON"),
        ("[1] [2]", "no JSON"),
        ("'a'", "no JSON"),
        (" " * (safe_json.MAX_BYTES + 1), "bytes; allowed: 4194304"),
    ],
)
def test_what_is_outside_the_bounds_is_refused_with_the_bound(text: str, expected: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(UnsafeJsonError, match=expected):
            load(form)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (nested(MAX_DEPTH), json.loads(nested(MAX_DEPTH))),
        (str(MAX_INTEGER), MAX_INTEGER),
        (str(MIN_INTEGER), MIN_INTEGER),
        (
            "[NaN, Infinity, -Infinity, 1e999, -1e999, 1e308]",
            ["NaN", "Infinity", "-Infinity", "Infinity", "-Infinity", 1e308],
        ),
        ('"\\ud800"', "\ufffd"),
        ('{"a\\udc00": ["\\ud83d", "\\ud83d\\ude00", "\\u00e9"]}', {"a\ufffd": ["\ufffd", "\U0001f600", "é"]}),
        ('"\\\\ud800"', "\\ud800"),
        ("[true, false, null, 1.5, {}]", [True, False, None, 1.5, {}]),
    ],
)
def test_what_is_within_them_is_read(text: str, value: JsonValue) -> None:
    assert load(text) == value
    assert load(text.encode()) == value


def test_bytes_that_are_no_utf_8_are_replaced() -> None:
    assert load(b'"\xff\xed\xa0\x80"') == "\ufffd" * 4
    assert load('"\ud800"') == "\ufffd"


def test_a_deep_stack_of_the_caller_changes_nothing() -> None:
    def descend(levels: int) -> JsonValue:
        return descend(levels - 1) if levels else load(nested(DEEP))

    with pytest.raises(UnsafeJsonError):
        descend(sys.getrecursionlimit() // 2)


def test_a_file_is_read_no_further_than_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"a": 1}')
    assert read(path) == {"a": 1}
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnsafeJsonError, match="allowed: 4194304"):
        read(path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(UnsafeJsonError, match="no JSON"):
        read(tmp_path / "fifo")
    before = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(IsADirectoryError):
        read(tmp_path)
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_what_is_no_json_value_is_refused() -> None:
    with pytest.raises(UnsafeJsonError, match="a set, which JSON cannot hold"):
        plain([{1, 2}])


LITERALS = [
    "NaN",
    "Infinity",
    "1e999",
    "-1e999",
    '"\\ud800"',
    '"\\udc00x"',
    "9" * 30,
    "1",
    '"é"',
    "null",
    "true",
    "{",
    "]",
]
TEXTS = st.recursive(
    st.sampled_from(LITERALS) | st.text(st.characters(), max_size=5).map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{','.join(items)}]")
        | st.lists(st.tuples(st.text(st.characters(), max_size=2).map(json.dumps), inner), max_size=4).map(
            lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}"
        )
    ),
    max_leaves=30,
)


def finite(value: JsonValue) -> bool:
    if isinstance(value, list):
        return all(map(finite, value))
    if isinstance(value, dict):
        return all(map(finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


@given(TEXTS | st.binary(max_size=40))
def test_whatever_is_read_can_be_written(text: str | bytes) -> None:
    try:
        value = load(text)
    except UnsafeJsonError:
        return
    written = json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    assert finite(value) and load(written) == value == plain(value)
