"""Packs the groups of a round into a few strings, so that the PerfLog of a scan of many hosts stays small.

A column holds one 16-bit number a group, little-endian, in base64. A time is coded by its logarithm: code k stands for
0.001 us * exp(k * STEP), so that 0.001 us to 1e9 us fit with an error of 0.02 % at most; code 0 is no time.
"""

from __future__ import annotations

import base64
import binascii
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

PACKED_FROM = 16
_LEAST_US, _MOST_US = 1e-3, 1e9
STEP = math.log(_MOST_US / _LEAST_US) / 0xFFFF
LOG_LEAST_US = math.log(_LEAST_US)
TIMES = ("min", "p25", "p50", "p75", "p95", "max")
# What each group of a packed step shares, and what a packed step cannot hold unless all groups share it.
_SHARED = ("size_bytes", "count", "world_size", "iterations", "dtype", "in_place", "collective", "convention")
_NUMBER_LIMIT = 0x10000
_NUMBERS = (*range(_NUMBER_LIMIT),)
_RANK_DIGITS = 5
_PAIR = 2
LENGTHS = "the columns of a packed step differ in length"


def time_code(time_us: float) -> int:
    """The code of a time in microseconds, shorter and longer ones being those of the ends of the range."""
    return min(0xFFFF, max(1, round((math.log(max(time_us, _LEAST_US)) - LOG_LEAST_US) / STEP)))


def time_us_of(code: int) -> float:
    """The time in microseconds that a code stands for."""
    return _LEAST_US * math.exp(code * STEP)


def encode(numbers: Sequence[int]) -> str:
    """A column, of numbers from 0 to 65535."""
    column = array("H", numbers)
    if sys.byteorder == "big":
        column.byteswap()
    return base64.b64encode(column.tobytes()).decode("ascii")


def decode(text: str) -> array[int]:
    """The numbers of a column.

    Raises:
        ValueError: the text is no column.
    """
    try:
        column = array("H", base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError) as error:
        raise ValueError(f"no column of 16-bit numbers: {error}") from error
    if sys.byteorder == "big":
        column.byteswap()
    return column


class Packer:
    """Writes the groups of a run's steps as columns, a step after the other: each host's name is in `host_names` of the
    first step that has it.
    """

    def __init__(self) -> None:
        self._told: set[int] = set()

    def packed(self, step: Mapping[str, Any]) -> dict[str, Any]:
        """The step with `packed` in place of `groups`, if there are many and they differ in nothing but what is packed.

        Groups that got wrong data are kept whole beside it, in `wrong`.
        """
        groups: Sequence[Mapping[str, Any]] = step.get("groups", ())
        if len(groups) < PACKED_FROM or not _alike(groups):
            return dict(step)
        wrong = [dict(group) for group in groups if group.get("correct") == "fail"]
        named = (zip(group["node_ranks"], group["hosts"], strict=True) for group in groups)
        new = {rank: name for each in named for rank, name in each if rank not in self._told}
        self._told |= new.keys()
        return (
            {name: value for name, value in step.items() if name != "groups"}
            | {"packed": _columns(groups)}
            | ({"host_names": {str(rank): name for rank, name in new.items()}} if new else {})
            | ({"wrong": wrong} if wrong else {})
        )


def _columns(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first = groups[0]
    stalled = {str(place): group["stalled_iterations"] for place, group in enumerate(groups) if _stalls(group)}
    return {
        "groups": len(groups),
        "hosts": len(first["node_ranks"]),
        "node_ranks": encode([rank for group in groups for rank in group["node_ranks"]]),
        **{name: encode([time_code(group["time_us"][name]) for group in groups]) for name in TIMES},
        **({"rails": encode([group["rail"] for group in groups])} if "rail" in first else {}),
        **{name: first[name] for name in _SHARED if name in first},
        "busbw_over_algbw": first["busbw_GBps"] / first["algbw_GBps"] if first["algbw_GBps"] else 0.0,
        "stalled_iterations": stalled,
    }


def group_keys(columns: Mapping[str, Any]) -> list[tuple[tuple[int, ...], int]]:
    """(node ranks, rail) of each group of a packed step; rail -1: none.

    Raises:
        ValueError, KeyError, TypeError: the step was not made by `packed`.
    """
    count, wide = int(columns["groups"]), int(columns["hosts"])
    # The same number is one object: half a million pairs of thousand ranks stay in the caches.
    ranks = [*map(_NUMBERS.__getitem__, decode(columns["node_ranks"]))]
    rails = decode(columns["rails"]) if "rails" in columns else array("i", [-1]) * max(0, count)
    if wide < 1 or len(ranks) != count * wide or len(rails) != count:
        raise ValueError(LENGTHS)
    return [*zip(zip(*(ranks[offset::wide] for offset in range(wide)), strict=True), rails, strict=True)]


def host_names(step: Mapping[str, Any]) -> dict[int, str]:
    """The hosts' own names by node rank that a packed step tells; nothing for what is none, such as 9999...9."""
    found = step.get("host_names")
    if not isinstance(found, Mapping):
        return {}
    ranks = {str(rank): str(name) for rank, name in found.items()}
    return {int(rank): name for rank, name in ranks.items() if rank.isdecimal() and len(rank) <= _RANK_DIGITS}


def _stalls(group: Mapping[str, Any]) -> bool:
    return bool(group.get("stalled_iterations"))


def _alike(groups: Sequence[Mapping[str, Any]]) -> bool:
    first = groups[0]
    wide = len(first["node_ranks"])
    return wide == _PAIR and all(
        len(group["node_ranks"]) == wide
        and all(rank < _NUMBER_LIMIT for rank in group["node_ranks"])
        and ("rail" in group) == ("rail" in first)
        and all(name in group["time_us"] for name in TIMES)
        and all(group.get(name) == first.get(name) for name in _SHARED)
        for group in groups
    )


def bandwidths(columns: Mapping[str, Any]) -> list[float]:
    """busbw of each group of a packed step, GB/s.

    Raises:
        ValueError, KeyError, TypeError: the step was not made by `packed`.
    """
    codes = decode(columns["p50"])
    if len(codes) != int(columns["groups"]):
        raise ValueError(LENGTHS)
    size, factor = int(columns["size_bytes"]), float(columns["busbw_over_algbw"])
    known = {code: size / time_us_of(code) / 1e3 * factor for code in {*codes}}
    return [*map(known.__getitem__, codes)]


def unpacked(
    step: Mapping[str, Any], names: Mapping[int, str], places: Iterable[int] | None = None
) -> Iterator[dict[str, Any]]:
    """The groups of a packed step as a plain step holds them, as far as they were packed; of some places, or all.

    Raises:
        ValueError, KeyError, TypeError: the step was not made by `packed`.
    """
    columns = step["packed"]
    ranks, times = _ranks_and_times(columns)
    rails = decode(columns["rails"]) if "rails" in columns else None
    shared = {name: columns[name] for name in _SHARED if name in columns}
    size, factor = int(columns["size_bytes"]), float(columns["busbw_over_algbw"])
    wrong = [(list(group["node_ranks"]), group.get("rail")) for group in step.get("wrong", ())]
    verdict = step.get("correct", "not_checked")
    right = "pass" if verdict == "fail" else verdict
    for place in range(len(ranks)) if places is None else places:
        own = ranks[place]
        hosts = [names.get(rank, f"node {rank}") for rank in own]
        time_us = {name: time_us_of(column[place]) for name, column in times.items()}
        algbw = size / time_us["p50"] / 1e3
        rail = rails[place] if rails else None
        yield {
            **shared,
            "group": "-".join(hosts) + ("" if rail is None else f" rail {rail}"),
            **({} if rail is None else {"rail": rail}),
            "hosts": hosts,
            "node_ranks": own,
            "time_us": time_us,
            "stalled_iterations": int(columns["stalled_iterations"].get(str(place), 0)),
            "algbw_GBps": algbw,
            "busbw_GBps": algbw * factor,
            "correct": "fail" if (own, rail) in wrong else right,
        }


def _ranks_and_times(columns: Mapping[str, Any]) -> tuple[list[list[int]], dict[str, array[int]]]:
    """The node ranks of each group, and by its name each column of times."""
    count, wide = int(columns["groups"]), int(columns["hosts"])
    ranks = decode(columns["node_ranks"])
    times = {name: decode(columns[name]) for name in TIMES}
    if wide < 1 or len(ranks) != count * wide or any(len(column) != count for column in times.values()):
        raise ValueError(LENGTHS)
    return [list(ranks[first : first + wide]) for first in range(0, len(ranks), wide)], times
