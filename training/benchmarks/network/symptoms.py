"""Finds what is wrong with a host, a device, a pair or a group, one figure at a time: bandwidth, latency, stalls.

Each figure is tested separately: high latency of small messages and low bandwidth of large ones have different causes,
and lost packets leave the fastest operation unchanged. A fault is constant if the fast quarter of the operations is as
much slower as the middle one, and intermittent if only some operations or measurements are slow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from training.benchmarks.network.events import Culprit, culprit_groups, culprit_pairs
from training.benchmarks.network.findings import FaultKind, SymptomName
from training.benchmarks.network.noise import every_nth
from training.benchmarks.network.outliers import ALPHA, Compared, Outlier, group_outliers, pair_outliers
from training.benchmarks.network.readings import Readings
from training.benchmarks.network.samples import Median, median_of
from training.benchmarks.network.sizes import format_size
from training.benchmarks.network.stalls import STALL_US
from training.benchmarks.network.tiers import Tiers, classes_of

# Messages up to this size show latency, larger ones bandwidth: 64 KiB take 5 us at 100 Gbit/s.
LATENCY_BYTES = 64 << 10
LATE_PERCENT = 50.0
# A slow operation takes this many times the expected time, or more where operations scatter so much.
SLOW_FACTOR = 2.0
_SPREADS = 5.0
_QUARTILES_PER_STD = 1.349
_ALWAYS = 0.9
# A measurement is slow at one of these cuts: its slowest operation, its slow quarter, the slower half of it.
_CUTS = ("top", "high", "middle")
# Links that may be named alone, by host: more are a property of the fabric.
_LINKS_PER_HOST = 0.5
MIN_LINKS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """One figure of a host or device (`host`, else -1) or of a group (`place`, else -1) that is bad.

    `share` is its rate over that expected, None for stalls; `p_value` is over all comparisons of the figure.
    """

    name: SymptomName
    host: int
    place: int
    kind: FaultKind
    share: float | None
    p_value: float
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of all groups: the readings, and for pairs their node ranks (or devices) and the tiers' classes."""

    name: SymptomName
    readings: Readings
    pairs: Sequence[tuple[int, ...]] | None
    classes: Sequence[int]
    bound: float

    @property
    def everywhere(self) -> str:
        """The words that say that a host is bad towards everybody."""
        return " on all its pairs" if self.pairs is not None else ""


def figure(
    name: SymptomName, readings: Readings, pairs: Sequence[tuple[int, ...]] | None, tiers: Tiers, percent: float
) -> Figure:
    """The figure at the readings' size; `percent` is the smallest increase of time, or loss of bandwidth, to report."""
    bound = math.log1p(percent / 100) if name == "latency" else -math.log1p(-percent / 100)
    classes = [0] * len(readings)
    if pairs is not None:
        classes = classes_of(readings.members, readings.rounds, tiers, with_load=name == "bandwidth")
    return Figure(name=name, readings=readings, pairs=pairs, classes=classes, bound=bound)


def slow_ones(found: Figure) -> tuple[list[Symptom], int]:
    """The hosts and groups that are slow in this figure, and the number of links that are too many to be bad."""
    repeats = found.readings.columns["middle"]
    if found.pairs is None:
        compared = group_outliers(repeats, found.bound)
    else:
        late = found.name == "latency"
        compared = pair_outliers(repeats, found.pairs, found.classes, found.bound, adds_up=late)
    outliers, links = compared.outliers, 0
    if found.pairs is not None:
        alone = [each for each in outliers if each.host < 0]
        hosts = len({host for pair in found.pairs for host in pair})
        if len(alone) > max(MIN_LINKS, _LINKS_PER_HOST * hosts):
            links, outliers = len(alone), [each for each in outliers if each.host >= 0]
    constant = [_constant(each, found) for each in outliers]
    return constant + _intermittent(found, compared, outliers), links


def _constant(outlier: Outlier, found: Figure) -> Symptom:
    readings, size, usual = found.readings, found.readings.size_bytes, math.exp(outlier.reference)
    middle = readings.columns["middle"]
    every = [math.exp(column[place]) for column in middle for place in outlier.places]
    groups = [math.exp(median([column[place] for column in middle])) for place in outlier.places]
    time, where = median(groups), found.everywhere if outlier.host >= 0 else ""
    if found.name == "latency":
        what = f"small messages ({format_size(size)})" if size else "barriers"
        text = f"{what}{where} take {_duration(time - usual)} longer than {_duration(usual)}"
    else:
        percent = 100 * (1 - usual / time)
        interval = _interval(median_of([1 / each for each in every]), 1 / usual)
        text = f"{'all its pairs are ' if where else ''}{percent:.0f} %{interval} slow at {format_size(size)}"
    kind: FaultKind = "constant" if _is_constant(outlier, readings) else "intermittent"
    if kind == "intermittent":
        text += ", but some operations are as fast as the others'"
    place = outlier.places[0] if outlier.host < 0 else -1
    p_value, share = outlier.p_value, usual / time
    return Symptom(name=found.name, host=outlier.host, place=place, kind=kind, share=share, p_value=p_value, text=text)


def _is_constant(outlier: Outlier, readings: Readings) -> bool:
    """Whether the fast quarter of the operations is slower than the others' by half of what the middle one is."""
    own = set(outlier.places)
    others = [place for place in every_nth(range(len(readings))) if place not in own]
    gap = _usual_gap(readings, "middle", "low", others or list(own))
    chosen = [
        (middle[place] - outlier.reference, low[place] + gap - outlier.reference)
        for middle, low in zip(readings.columns["middle"], readings.columns["low"], strict=True)
        for place in outlier.places
    ]
    return median([low for _, low in chosen]) >= median([middle for middle, _ in chosen]) / 2


def _usual_gap(readings: Readings, upper: str, lower: str, places: Sequence[int]) -> float:
    """The usual distance of two quantiles in these groups, in logarithms."""
    columns = zip(readings.columns[upper], readings.columns[lower], strict=True)
    return median([above[place] - below[place] for above, below in columns for place in places])


def _intermittent(found: Figure, compared: Compared, outliers: Sequence[Outlier]) -> list[Symptom]:
    """Hosts and groups with more slow measurements than the others; what `outliers` explain is left out."""
    readings = found.readings
    kept = _unexplained(found, outliers)
    if not kept:
        return []
    deviation = max(
        math.log(SLOW_FACTOR), _SPREADS * _usual_gap(readings, "high", "low", every_nth(kept)) / _QUARTILES_PER_STD
    )
    pairs = None if found.pairs is None else [found.pairs[place] for place in kept]
    limits = [compared.expected[place] + deviation for place in kept]
    best: dict[tuple[int, int], tuple[Culprit, list[list[int]]]] = {}
    for cut in _CUTS:
        events = _slow_events(readings, cut, limits, kept)
        for each in _culprits(pairs, len(kept), events, ALPHA / (2 * len(_CUTS)), rare=False):
            key = each.host, each.places[0] if each.host < 0 else -1
            if key not in best or each.p_value < best[key][0].p_value:
                best[key] = each, events
    return [
        _slow_at_times(found, kept, culprit, events, compared.expected, deviation) for culprit, events in best.values()
    ]


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


def _slow_events(readings: Readings, cut: str, limits: Sequence[float], kept: Sequence[int]) -> list[list[int]]:
    """By repeat, which of the kept groups are slow at the cut, as indices. A stall is a symptom of its own."""
    found = []
    whole = len(kept) == len(readings)
    for column, stalled in zip(readings.columns[cut], readings.stalled, strict=True):
        times = column if whole else [column[place] for place in kept]
        slow = [index for index, (time, limit) in enumerate(zip(times, limits, strict=True)) if time > limit]
        found.append([index for index in slow if cut != "top" or kept[index] not in stalled])
    return found


def _culprits(
    pairs: Sequence[tuple[int, ...]] | None,
    groups: int,
    events: Sequence[Iterable[int]],
    alpha: float,
    *,
    distinct: int = 0,
    rare: bool = True,
) -> list[Culprit]:
    if pairs is None:
        return culprit_groups(events, groups, alpha, distinct=distinct, rare=rare)
    return culprit_pairs(events, pairs, alpha, distinct=distinct, rare=rare)


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


def stalling_ones(figures: Sequence[Figure]) -> list[Symptom]:
    """The hosts and groups whose operations stall; `figures` are those of every size, of the same groups."""
    first = figures[0]
    events = [each for figure in figures for each in figure.readings.stalled]
    found = []
    for culprit in _culprits(first.pairs, len(first.readings), events, ALPHA, distinct=first.readings.repeats):
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


def alike(readings: Readings) -> Readings:
    """The groups with the most frequent number of ranks: only those can be compared."""
    common = Counter(readings.world_sizes).most_common(1)
    chosen = [place for place, width in enumerate(readings.world_sizes) if width == common[0][0]]
    return readings.choose(chosen)


def _interval(every: Median, usual: float) -> str:
    low, high = (f"{100 * (1 - rate / usual):.0f}" for rate in (every.high, every.low))
    return f" ({low} to {high} %)" if low != high else ""


def _duration(microseconds: float) -> str:
    return f"{microseconds / 1000:.2g} ms" if microseconds >= 1000 else f"{microseconds:.3g} us"
