"""NVIDIA's own tests of its GPUs: how they are called, and what they print."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vendors.programs import Answer, Program, but, lines, measure, say, unreadable

_RUN = r"(?:-r|--run)[ =]?"


def matrices(text: str) -> Answer:
    """For each test of nvbandwidth the lowest figure of each GPU: of its column from or to the CPU, else of its row.

    Raises:
        UnreadableError: there is no matrix with a figure.
    """
    found: dict[str, float] = {}
    silent: dict[str, str] = {}
    for test, by_column, row, column, word in _cells(text):
        if by_column or column != row:
            measure(found, silent, f"{test} GPU {column if by_column else row}", word)
    if not found:
        raise unreadable(text)
    return Answer(figures=but(silent, found), silent=silent)


def _cells(text: str) -> Iterator[tuple[str, bool, str, str, str]]:
    """Of each cell of a matrix the test, whether its rows are the CPU's, its row and column, and what it holds."""
    test, by_column = "", False
    heads: list[str] = []
    for line in lines(text):
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

    Results that are neither good nor bad, as of a test that is skipped or warns, are in `told`.

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
                say(failed, f"{part}: {test}" if part else test, why or "failed")
            else:
                other.setdefault(f"{test}: {_unjudged(status)}", []).append(" ".join(filter(None, (part, why))))
    if not passed and not failed:
        raise unreadable(text)
    told: dict[str, str] = {}
    for verdict, said in other.items():
        say(told, verdict, "; ".join(filter(None, said)) or "it tells no more")
    return Answer(failed=failed, passed=passed, told=told)


def _unjudged(status: str) -> str:
    return "skipped" if status == "skip" else f"{status or 'no verdict'}: measured, not judged"


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


PROGRAMS: Mapping[str, Program] = {
    "nvbandwidth": Program(
        command=(
            "nvbandwidth",
            "-t",
            "host_to_device_memcpy_ce",
            "device_to_host_memcpy_ce",
            "device_to_device_memcpy_read_ce",
        ),
        read=matrices,
        unit="GB/s",
        usual={"": 60.0},
        seconds=300,
        source="https://github.com/NVIDIA/nvbandwidth, README",
    ),
    "dcgmi": Program(
        command=("dcgmi", "diag", "-r", "2", "-j"),
        read=diagnosis,
        usual={
            rf"{_RUN}(?:1|quick|short)\b": 10.0,
            rf"{_RUN}(?:2|medium)\b": 120.0,
            rf"{_RUN}(?:3|long)\b": 900.0,
            rf"{_RUN}(?:4|xlong)\b": 7200.0,
            "": 900.0,
        },
        seconds=1200,
        source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"
        " (levels: reference/command-line-reference/dcgmi/dcgmi-diag.html)",
    ),
}
