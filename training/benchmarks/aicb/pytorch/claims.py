"""Derives what FINISHED of an executed workload claims from the iterations in the log. No torch, no numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from protocol.claims import CLOCK_SECONDS, CLOCK_TOLERANCE, ROUNDING, LoggedRun, departures, outside, process_seconds
from protocol.perflog import Event
from workloads.oplog.measured import FEW_BYTES, bandwidths_of
from workloads.rows.ops import CommType

_HOW = "the iterations of rank 0 and the time of all"
_ROWS = "the iterations in its log"


def contradictions(log: LoggedRun, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the values of STEP_END contradict, a sentence with both for each.

    An iteration of the slowest rank is no shorter than that of rank 0, whose STEP_END has it, and one of any rank is
    between its INIT_END and its FINISHED. Exposed and hidden times, and the classes of operations, are those of rank 0.
    """
    finished, own = log.value(Event.FINISHED), sorted(float(row["iteration_ms"]) for row in rows)
    most = 1000 * (log.seconds(Event.INIT_END, Event.FINISHED) * (1 + CLOCK_TOLERANCE) + CLOCK_SECONDS)
    count = len(own)
    found = [
        *process_seconds(log),
        *outside("iterations", finished.get("iterations"), count, count, "its STEP_END"),
        *outside("init_ms", finished.get("init_ms"), 0.0, most, _HOW),
    ]
    if not own:
        return found
    low = {f"p{share}": _percentile(own, share) for share in (50, 90, 99)}
    low |= {"min": own[0], "max": own[-1], "mean": sum(own) / count}
    for name, least in low.items():
        claimed = finished.get(f"iteration_{name}_ms")
        found += outside(f"iteration_{name}_ms", claimed, least * (1 - ROUNDING), most, _HOW)
    means = {name: sum(float(row[name]) for row in rows) / count for name in ("exposed_ms", "hidden_ms")}
    return [*found, *departures(log, means, _ROWS), *_of_classes(log, rows)]


def _of_classes(log: LoggedRun, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on the classes of FINISHED and its best bandwidth."""
    names = ("type", "group", "ranks", "bytes")
    classes = [dict(zip(names, each, strict=True)) for each in log.value(Event.TRAIN_START)["classes"]]
    of_class: dict[int, list[list[float]]] = {}
    for row in rows:
        for number, *figures in row["classes"]:
            of_class.setdefault(int(number), []).append(figures)
    known = {tuple(classes[number].values()): (classes[number], each) for number, each in of_class.items()}
    claimed = log.value(Event.FINISHED).get("classes", ())
    for each in claimed:
        own = known.get(tuple(each[name] for name in names))
        if own is None:
            yield f"classes have {' '.join(str(each[name]) for name in names)} by FINISHED, no such ones by {_ROWS}"
        else:
            yield from _of_class(each, *own)
    if known and not claimed:
        yield f"classes are none by FINISHED, {len(known)} by {_ROWS}"
    rates = [_rates(kind, figures) for kind, figures in known.values() if kind["bytes"] >= FEW_BYTES]
    low, high = (max((each[end] for each in rates), default=0.0) for end in (0, 1))
    best = log.value(Event.FINISHED).get("max_busbw_GBps", 0.0)
    yield from outside("max_busbw_GBps", best, low * (1 - ROUNDING), high * (1 + ROUNDING), _ROWS)


def _of_class(claimed: Mapping[str, Any], kind: Mapping[str, Any], figures: Sequence[Sequence[float]]) -> Iterator[str]:
    """Sentences on one class: its median lies between those of its iterations, and no time exceeds the longest."""
    what = " ".join(map(str, kind.values()))
    counts, totals, middles, longest = (sorted(column) for column in zip(*figures, strict=True))
    low, high = _rates(kind, figures)
    bounds = {
        "count": (sum(counts), sum(counts)),
        "total_ms": (sum(totals), sum(totals)),
        "p50_ms": (middles[0], middles[-1]),
        "p99_ms": (middles[0], longest[-1]),
        "busbw_GBps": (low, high),
    }
    for name, (least, most) in bounds.items():
        limits = least * (1 - ROUNDING), most * (1 + ROUNDING)
        yield from (f"{what}: {sentence}" for sentence in outside(name, claimed[name], *limits, _ROWS))


def _rates(kind: Mapping[str, Any], figures: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The bus bandwidths, GB/s, of the longest and the shortest median of an iteration."""
    middles = [middle for _, _, middle, _ in figures]
    low, high = (
        bandwidths_of(CommType[kind["type"]], int(kind["bytes"]), ms, int(kind["ranks"]))[1]
        for ms in (max(middles), min(middles))
    )
    return low, high


def _percentile(values: Sequence[float], share: float) -> float:
    """The percentile of sorted values, interpolated between two of them, as numpy's."""
    place = (len(values) - 1) * share / 100
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])
