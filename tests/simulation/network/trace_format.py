"""Reads a trace by the rules of Google's "Trace Event Format", independently of what writes it."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from numbers import Real
from pathlib import Path
from typing import Any

METADATA = {"process_name": "name", "thread_name": "name", "process_sort_index": "sort_index"}
NEEDED = {
    "X": ("name", "ts", "dur", "pid", "tid"), "M": ("name", "pid", "args"), "C": ("name", "ts", "pid", "args"),
    "s": ("name", "id", "ts", "pid", "tid"), "f": ("name", "id", "ts", "pid", "tid"),
}  # fmt: skip


def events_of(path: Path) -> list[dict[str, Any]]:
    """The events of a trace file in the JSON object form; an AssertionError says what is against the format."""
    data = json.loads(path.read_bytes())
    assert data["displayTimeUnit"] in ("ms", "ns")
    events: list[dict[str, Any]] = data["traceEvents"]
    for event in events:
        _check(event)
    _check_nesting(events)
    _check_arrows(events)
    return events


def _check(event: dict[str, Any]) -> None:
    phase = event["ph"]
    missing = [name for name in NEEDED[phase] if name not in event]
    assert not missing, (event, missing)
    assert all(isinstance(event[name], int) for name in ("pid", "tid") if name in event), event
    for name in ("ts", "dur"):
        assert name not in event or (isinstance(event[name], Real) and event[name] >= 0), event
    if phase == "M":
        assert event["args"].keys() == {METADATA[event["name"]]}, event
    if phase == "C":
        assert all(isinstance(value, Real) for value in event["args"].values()), event


def _check_nesting(events: list[dict[str, Any]]) -> None:
    """Complete events of a thread lie one after or within another, but for those of the track of parallel work."""
    threads: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    parallel = {
        (each["pid"], each["tid"])
        for each in events
        if each["ph"] == "M" and each["name"] == "thread_name" and each["args"]["name"] == "beside computation"
    }
    for event in events:
        if event["ph"] == "X" and (event["pid"], event["tid"]) not in parallel:
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        for (_begin, end), (after, _end) in itertools.pairwise(spans):
            assert after >= end - 1e-9, (end, after)


def _check_arrows(events: list[dict[str, Any]]) -> None:
    """Every arrow has one begin and one end, in this order."""
    ends: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for event in events:
        if event["ph"] in ("s", "f"):
            own = ends[event["cat"], event["name"], event["id"]]
            assert event["ph"] not in own, event
            own[event["ph"]] = event["ts"]
    assert all(own.keys() == {"s", "f"} and own["s"] <= own["f"] for own in ends.values())
