"""Finds hosts and groups in which only some operations or measurements are slow, by the share of slow measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from itertools import compress, count, pairwise
from operator import gt

from common.statistics import QUARTILES_PER_STD
from common.units import format_size
from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.events import Culprit
from training.benchmarks.network.slow_parts.figures import Figure, Symptom, culprits, usual_gap
from training.benchmarks.network.slow_parts.noise import every_nth
from training.benchmarks.network.slow_parts.outliers import Compared, Outlier
from training.benchmarks.network.slow_parts.readings import Readings, picked

# A slow operation takes this many times the expected time, or more where operations scatter so much.
SLOW_FACTOR = 2.0
_SPREADS = 5.0
_ALWAYS = 0.9
# A measurement is slow at one of these cuts: its slowest operation, its slow quarter, the slower half of it.
_CUTS = ("top", "high", "middle")
# The usual excess of a cut is its lower quartile over all measurements: half of them may be a bad host's. Its spread is
# taken from there down to this quantile, so many standard deviations away.
_LOWEST, _STDS_BELOW = 0.1, 0.607
_TAIL_SPREADS = 3.0
_LEAST_SAMPLE = 20


def intermittent(
    found: Figure, compared: Compared, stalling: Sequence[Symptom], left_out: Set[int] = frozenset()
) -> list[Symptom]:
    """Hosts and groups with more slow measurements than the others.

    What outliers and stalls explain is left out, and the places `left_out`.

    A measurement is slow if it exceeds what is expected by SLOW_FACTOR, and what is usual for the cut: on some networks
    the slowest of many operations takes several times the median in every measurement of every host.
    """
    readings = found.readings
    kept = [place for place in _unexplained(found, compared.outliers) if place not in left_out]
    if not kept:
        return []
    deviation = max(
        math.log(SLOW_FACTOR), _SPREADS * usual_gap(readings, "high", "low", every_nth(kept)) / QUARTILES_PER_STD
    )
    pairs = None if found.pairs is None else [found.pairs[place] for place in kept]
    expected = picked(compared.expected, kept)
    # The slow operations of a part that stalls have one cause with its stalls, and are no other symptom.
    known = {(each.host, each.place) for each in stalling}
    best: dict[tuple[int, int], tuple[Culprit, list[list[int]], float]] = {}
    for cut in _CUTS:
        excess = max(deviation, _usual_excess(readings, cut, compared.expected, kept, found.bound))
        events = _slow_events(readings.columns[cut], [each + excess for each in expected], kept)
        for each in culprits(pairs, len(kept), events, ALPHA / (2 * len(_CUTS)), rare=False):
            key = _key(each, kept)
            if cut == "top" and key in known:
                continue
            if key not in best or each.p_value < best[key][0].p_value:
                best[key] = each, events, excess
    return [
        _slow_at_times(found, kept, culprit, events, compared.expected, excess)
        for culprit, events, excess in best.values()
    ]


def _key(culprit: Culprit, kept: Sequence[int]) -> tuple[int, int]:
    """Host and place as a symptom has them, where places count the kept groups: one of the two is -1."""
    return culprit.host, kept[culprit.places[0]] if culprit.host < 0 else -1


def _usual_excess(readings: Readings, cut: str, expected: Sequence[float], kept: Sequence[int], bound: float) -> float:
    """The excess over the expected time above which a measurement at the cut counts as slow: logarithms."""
    chosen = every_nth(kept)
    excess = sorted(column[place] - expected[place] for column in readings.columns[cut] for place in chosen)
    if len(excess) < _LEAST_SAMPLE:
        return -math.inf
    usual, least = excess[len(excess) // 4], excess[int(_LOWEST * len(excess))]
    return usual + max(bound, _TAIL_SPREADS * (usual - least) / _STDS_BELOW)


def _unexplained(found: Figure, outliers: Sequence[Outlier]) -> Sequence[int]:
    """The places of the groups without an outlier."""
    every = range(len(found.readings))
    if not outliers:
        return every
    hosts = {each.host for each in outliers if each.host >= 0}
    known = {each.places[0] for each in outliers if each.host < 0}
    if found.pairs is None:
        return [place for place in every if place not in known]
    return [place for place, pair in enumerate(found.pairs) if place not in known and hosts.isdisjoint(pair)]


def _slow_events(columns: Sequence[Sequence[float]], limits: Sequence[float], kept: Sequence[int]) -> list[list[int]]:
    """By repeat, which of the kept groups take longer than their limits, as indices."""
    return [
        [*compress(count(), map(gt, column if len(kept) == len(column) else picked(column, kept), limits))]
        for column in columns
    ]


def _slow_at_times(
    found: Figure,
    kept: Sequence[int],
    culprit: Culprit,
    events: Sequence[Sequence[int]],
    expected: Sequence[float],
    deviation: float,
) -> Symptom:
    readings = found.readings
    indices = [index for index, place in enumerate(kept) if found.pairs and culprit.host in found.pairs[place]]
    indices = indices or list(culprit.places)
    own = [kept[index] for index in indices]
    slow = [len(set(each).intersection(indices)) / len(indices) for each in events]
    middle = [column[place] > expected[place] + deviation for column in readings.columns["middle"] for place in own]
    others = 100 * culprit.others.share
    text = (
        f"{culprit.tally.bad} of {culprit.tally.measured} measurements{found.everywhere if culprit.host >= 0 else ''}"
        f" at {format_size(readings.size_bytes)} have operations {math.exp(deviation):.2g} times slower than usual and"
        f" more{_change_point(slow)} (of the others' {others:.{0 if others >= 1 or not others else 1}f} %)"
    )
    return Symptom(
        name=found.name,
        host=culprit.host,
        place=own[0] if culprit.host < 0 else -1,
        kind="constant" if sum(middle) >= _ALWAYS * len(middle) else "intermittent",
        share=_mean_share(readings, own, expected),
        p_value=culprit.p_value,
        text=text,
    )


def _change_point(slow: Sequence[float]) -> str:
    """The repeat at which the share of slow measurements (0 to 1) goes from few to nearly all or back, in words."""
    for begin in range(1, len(slow)):
        before, after = slow[:begin], slow[begin:]
        if max(before) <= 1 - _ALWAYS and min(after) >= _ALWAYS:
            return f" from repeat {begin + 1} on"
        if min(before) >= _ALWAYS and max(after) <= 1 - _ALWAYS:
            return f" up to repeat {begin}"
    return ""


def _mean_share(readings: Readings, places: Sequence[int], expected: Sequence[float]) -> float:
    """Expected over mean time of these groups, a ratio; the mean is estimated from the quantiles."""
    shares = []
    for low, middle, high, top in zip(*(readings.columns[name] for name in ("low", *_CUTS[::-1])), strict=True):
        for place in places:
            points = [math.exp(column[place] - expected[place]) for column in (low, middle, high, top)]
            mean = (points[0] + sum((one + other) / 2 for one, other in pairwise(points))) / 4
            shares.append(1 / mean)
    return sum(shares) / len(shares)
