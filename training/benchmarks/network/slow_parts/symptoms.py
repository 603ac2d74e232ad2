"""Finds what is wrong with a host, a device, a pair or a group, one figure at a time: bandwidth, latency, stalls.

Each figure is tested separately: high latency of small messages and low bandwidth of large ones have different causes,
and lost packets leave the fastest operation unchanged. A fault is constant if the fast quarter of the operations is as
much slower as the middle one, and intermittent if only some operations or measurements are slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from common.statistics import Median, median_of
from common.units import format_size
from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.events import STALL_US
from training.benchmarks.network.slow_parts.figures import Figure, Symptom, culprits, usual_gap
from training.benchmarks.network.slow_parts.findings import FaultKind
from training.benchmarks.network.slow_parts.intermittent import intermittent
from training.benchmarks.network.slow_parts.noise import every_nth
from training.benchmarks.network.slow_parts.outliers import Outlier, group_outliers, pair_outliers
from training.benchmarks.network.slow_parts.racks import bad_blocks
from training.benchmarks.network.slow_parts.readings import Readings, end_of


def symptoms_of(figures: Sequence[Figure]) -> list[Symptom]:
    """Stalls at every size, latency at the smallest and bandwidth at the largest size, as far as they show these.

    `figures` are those of every size in ascending order, of the same groups.
    """
    stalling = stalling_ones(figures)
    found = list(stalling)
    if figures[0].name == "latency":
        found += slow_ones(figures[0], stalling)
    if figures[-1].name == "bandwidth":
        found += slow_ones(figures[-1], stalling)
    return found


def slow_ones(found: Figure, stalling: Sequence[Symptom] = ()) -> list[Symptom]:
    """The blocks, hosts and groups that are slow in this figure.

    `stalling`: those that are named for stalls already.
    """
    repeats = found.readings.columns["middle"]
    if found.pairs is None:
        compared = group_outliers(repeats, found.bound)
        return [_constant(each, found) for each in compared.outliers] + intermittent(found, compared, stalling)
    late, readings = found.name == "latency", found.readings
    blocks, classes = bad_blocks(
        repeats, readings.members, readings.rails, found.classes, found.tiers, found.bound, adds_up=late
    )
    compared = pair_outliers(repeats, found.pairs, classes, found.bound, adds_up=late)
    # Those of a bad block, and those that are compared with no others.
    left_out = frozenset(place for place, each in enumerate(classes.of_pairs) if each < 0)
    symptoms = [_constant(each, found) for each in compared.outliers]
    symptoms += intermittent(found, compared, stalling, left_out)
    of_blocks = [
        replace(_constant(each.outlier, found), place=-1, block=(each.tier, each.number, each.rail)) for each in blocks
    ]
    return of_blocks + symptoms


def _constant(outlier: Outlier, found: Figure) -> Symptom:
    readings, size, usual = found.readings, found.readings.size_bytes, math.exp(outlier.reference)
    middle = readings.columns["middle"]
    every = [math.exp(column[place]) for column in middle for place in outlier.places]
    groups = [math.exp(median([column[place] for column in middle])) for place in outlier.places]
    time = median(groups)
    if found.name == "latency":
        what = f"small messages ({format_size(size)})" if size else "barriers"
        text = f"{what}{_where(outlier)} take {_duration(time - usual)} longer than {_duration(usual)}"
    else:
        percent = 100 * (1 - usual / time)
        interval = _interval(median_of([1 / each for each in every]), 1 / usual)
        text = f"{_which(outlier)}{percent:.0f} %{interval} slow at {format_size(size)}"
    kind: FaultKind = "constant" if _is_constant(outlier, readings) else "intermittent"
    if kind == "intermittent":
        text += ", but some operations are as fast as the others'"
    place = outlier.places[0] if outlier.host < 0 else -1
    towards = frozenset[int]()
    if outlier.host >= 0:
        own = end_of(outlier.host).rank
        towards = frozenset(rank for place in outlier.places for rank in readings.members[place] if rank != own)
    return Symptom(
        name=found.name,
        host=outlier.host,
        place=place,
        kind=kind,
        share=usual / time,
        p_value=outlier.p_value,
        text=text,
        towards=towards,
    )


def _which(outlier: Outlier) -> str:
    """The pairs of a bad host that are slow; nothing for a group."""
    if not outlier.pairs:
        return ""
    return f"{'all its' if outlier.slow == outlier.pairs else f'{outlier.slow} of its {outlier.pairs}'} pairs are "


def _where(outlier: Outlier) -> str:
    return f" on {_which(outlier).removesuffix(' are ')}" if outlier.pairs else ""


def _is_constant(outlier: Outlier, readings: Readings) -> bool:
    """Whether the fast quarter of the operations is slower than the others' by half of what the middle one is."""
    own = set(outlier.places)
    others = [place for place in every_nth(range(len(readings))) if place not in own]
    gap = usual_gap(readings, "middle", "low", others or list(own))
    chosen = [
        (middle[place] - outlier.reference, low[place] + gap - outlier.reference)
        for middle, low in zip(readings.columns["middle"], readings.columns["low"], strict=True)
        for place in outlier.places
    ]
    return median([low for _, low in chosen]) >= median([middle for middle, _ in chosen]) / 2


def stalling_ones(figures: Sequence[Figure]) -> list[Symptom]:
    """The hosts and groups whose operations stall; `figures` are those of every size, of the same groups."""
    first = figures[0]
    events = [each for figure in figures for each in figure.readings.stalled]
    found = []
    for culprit in culprits(first.pairs, len(first.readings), events, ALPHA, distinct=first.readings.repeats):
        own = [place for place, pair in enumerate(first.pairs or ()) if culprit.host in pair] or list(culprit.places)
        stalled = sum(each.get(place, 0) for each in events for place in own)
        done = len(own) * sum(each.readings.repeats * each.readings.iterations for each in figures)
        share = 100 * stalled / done if done else 0.0
        where = first.everywhere if culprit.host >= 0 else ""
        text = (
            f"{share:.{0 if share >= 1 else 2}f} % of the operations{where} stall ({STALL_US / 1000:.0f} ms and more)"
        )
        place = culprit.places[0] if culprit.host < 0 else -1
        p_value = culprit.p_value
        found.append(
            Symptom(
                name="stalls", host=culprit.host, place=place, kind="stalls", share=None, p_value=p_value, text=text
            )
        )
    return found


def _interval(every: Median, usual: float) -> str:
    low, high = (f"{100 * (1 - rate / usual):.0f}" for rate in (every.high, every.low))
    return f" ({low} to {high} %)" if low != high else ""


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:.2g} ms" if microseconds >= 1000 else f"{microseconds:.3g} us"
