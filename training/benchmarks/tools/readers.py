"""Reads what the tools print: figures, and verdicts, by part of the host. A tool's output may be anything.

The forms are those of the tools' manuals and recorded outputs; table.py names them tool by tool.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_PARTS, MAX_NAME, MAX_WHY, MAX_LINE = 512, 80, 300, 2000
MIB_GB, GBIT_GB = (1 << 20) / 1e9, 1 / 8
UNITS: Mapping[str, float] = {"Gb/sec": GBIT_GB, "MB/sec": MIB_GB, "MiB/sec": MIB_GB, "usec": 1.0}
"""perftest's units in GB/s and us; what it calls MB are MiB (its manual on --report_gbits)."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class UnreadableError(ValueError):
    """An output without any result; the message quotes its last line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The results of a tool on one host. figures: by part of the host, in the tool's unit. failed: why, by part.
    passed: how many verdicts were good. silent: why there is no figure, by part that others may have one of.
    """

    figures: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    silent: dict[str, str] = field(default_factory=dict)


def perftest(text: str, column: str) -> Answer:
    """The figure of the last row in a column of perftest's table, in GB/s or us.

    Raises:
        UnreadableError: there is no such table, or no row in it.
    """
    place, factor, found = 0, 0.0, None
    for line in _lines(text):
        words = line.split()
        if "#bytes" in line and (match := re.search(rf"{re.escape(column)}\s*\[([^\]]+)\]", line)):
            place, factor = 2 + line[: match.start()].count("["), UNITS.get(match[1], 0.0)
        elif factor and len(words) > place and words[0].isdecimal() and words[1].isdecimal():
            found = _number(words[place])
    if found is None:
        raise _unreadable(text)
    return Answer(figures={"": found * factor})


def matrices(text: str) -> Answer:
    """For each test of nvbandwidth the lowest figure of each GPU: of its column from or to the CPU, else of its row.

    Raises:
        UnreadableError: there is no matrix with a figure.
    """
    found: dict[str, float] = {}
    for test, by_column, row, column, word in _cells(text):
        value = _number(word)
        if value is not None and (by_column or column != row):
            _keep(found, f"{test} GPU {column if by_column else row}", value)
    if not found:
        raise _unreadable(text)
    return Answer(figures=found)


def _cells(text: str) -> Iterator[tuple[str, bool, str, str, str]]:
    """Of each cell of a matrix the test, whether its rows are the CPU's, its row and column, and what it holds."""
    test, by_column = "", False
    heads: list[str] = []
    for line in _lines(text):
        words = line.split()
        if match := re.match(r"Running (\w+)\.?$", line.strip()):
            test, heads = match[1], []
        elif "(row)" in line and "(column)" in line:
            by_column, heads = "CPU(row)" in line, []
        elif test and not heads and words and all(word.isdecimal() for word in words):
            heads = words
        elif test and heads and len(words) == len(heads) + 1 and words[0].isdecimal():
            yield from ((test, by_column, words[0], head, word) for head, word in zip(heads, words[1:], strict=True))
        else:
            heads = []


def diagnosis(text: str) -> Answer:
    """The verdicts of DCGM's JSON, of version 3 (`gpu_id`, `gpu_ids`) or 4 (`entity_group`, `entity_id`).

    Results that are neither good nor bad, as of a test that is skipped, are in `silent` by test.

    Raises:
        UnreadableError: it holds no verdict.
    """
    start = text.find("{")
    try:
        tree, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else (None, 0)
    except (ValueError, RecursionError):
        tree = None
    failed: dict[str, str] = {}
    other: dict[str, list[str]] = {}
    passed = 0
    for test, result in _dcgm_results(tree):
        status, entity = str(result.get("status", "")).lower(), result.get("entity_id")
        numbers = str(result.get("gpu_id", result.get("gpu_ids", "" if entity is None else entity)))
        passed += status == "pass"
        if status != "pass":
            part = f"{result.get('entity_group', 'GPU')} {numbers}" if numbers else ""
            why = _words(result.get("warnings")) or _words(result.get("info"))
            if status == "fail":
                _say(failed, f"{part}: {test}" if part else test, why or "failed")
            else:
                other.setdefault(test, []).append(" ".join(filter(None, (status or "no verdict", part, why))))
    if not passed and not failed:
        raise _unreadable(text)
    silent: dict[str, str] = {}
    for test, said in other.items():
        _say(silent, test, "; ".join(said))
    return Answer(failed=failed, passed=passed, silent=silent)


def _dcgm_results(tree: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The name of the test, and each result, wherever `tests` stand."""
    if isinstance(tree, list):
        for each in tree:
            yield from _dcgm_results(each)
    elif isinstance(tree, dict):
        results = tree.get("results")
        for result in results if isinstance(results, list) else ():
            if isinstance(result, dict):
                yield str(tree.get("name")), result
        for each in tree.values():
            if isinstance(each, dict | list) and each is not results:
                yield from _dcgm_results(each)


def _words(found: object) -> str:
    """Texts of DCGM's `warnings` and `info`: a text, an object with one, or a list of these."""
    if isinstance(found, list):
        return "; ".join(filter(None, map(_words, found)))
    if isinstance(found, dict):
        return str(found.get("warning", ""))
    return "" if found is None else str(found)


def patterns(text: str, pattern: re.Pattern[str], good: str = "", idle: str = "") -> Answer:
    """The results of a tool that prints text, one for each match.

    The groups of `pattern`: `part`, and `value` (the lowest of a part counts) or `verdict` with `why`. Verdicts that
    `good` has (blank-separated) are passed, those of `idle` tell nothing, all others are failures.

    Raises:
        UnreadableError: nothing matches, or all tells nothing.
    """
    figures: dict[str, float] = {}
    failed: dict[str, str] = {}
    passed = 0
    for match in pattern.finditer("\n".join(_lines(text))):
        groups = match.groupdict()
        part, verdict = (groups.get("part") or "").strip(" |:-"), groups.get("verdict")
        value = _number(groups.get("value") or "")
        if value is not None:
            _keep(figures, part, value)
        passed += verdict in good.split()
        if verdict is not None and verdict not in (*good.split(), *idle.split()):
            _say(failed, part, " ".join((groups.get("why") or "").split()) or verdict)
    if not figures and not failed and not passed:
        raise _unreadable(text)
    return Answer(figures=figures, failed=failed, passed=passed)


def _lines(text: str) -> Iterator[str]:
    """The lines without colours, each up to a length that a pattern is soon done with."""
    for line in COLOURS.sub("", text).splitlines():
        yield line[:MAX_LINE]


def _number(word: str) -> float | None:
    """A figure above 0; None for anything else, such as N/A."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e15 else None


def _keep(found: dict[str, float], part: str, value: float) -> None:
    name = part[:MAX_NAME]
    if name in found or len(found) < MAX_PARTS:
        found[name] = min(value, found.get(name, value))


def _say(found: dict[str, str], part: str, why: str) -> None:
    name = part[:MAX_NAME]
    if name not in found and len(found) < MAX_PARTS:
        found[name] = why[:MAX_WHY]


def _unreadable(text: str) -> UnreadableError:
    said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")
    return UnreadableError(f"printed no result: {said[:MAX_WHY]}")
