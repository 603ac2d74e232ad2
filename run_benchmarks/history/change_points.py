"""Finds where the level of a series of runs changed: looking back over all of it, and live after each run.

Ranks alone say whether there is a change, so an outlier counts no more than the largest of the other values: the sum of
the ranks on one side of a split, standardized by its variance under exchangeability, is compared over all splits
(Pettitt, Appl. Statist. 28 (1979); standardized as by Lombard, Technometrics 29 (1987)). An autocorrelated series has
larger sums without any change. Its swings are small, so a change has to exceed MIN_STEP standard deviations, or a sum
as large as strong autocorrelation gives. Where it lies is told by the smallest Huber loss around two medians.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

LEAST = 5  # runs on each side of a change
CRITICAL = 3.4  # of the largest standardized sum: 0.5 % of series of 100 runs exceed it by chance
MIN_STEP = 1.5  # standard deviations between runs
SURE = 1.75  # times CRITICAL: beyond what an autocorrelation of 0.5 makes of it
HUBER = 1.5  # standard deviations beyond which a value's distance counts singly
MAD = 1.4826  # makes the median absolute deviation of normal values their standard deviation

LIVE_RUNS = range(2, 9)  # the latest runs that are held against those before
LIVE_CRITICAL = 3.08
LIVE_STEP = 1.95
LIVE_BEFORE = 8
SUSPECTED_STEP = 2.5
CONFIRMING_RUNS = 5

State = Literal["too few runs", "steady", "suspected", "changed", "drifting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangePoint:
    """A change of level: `index` is the first value of the new one; both levels are medians, in the series' unit."""

    index: int
    before: float
    after: float

    @property
    def percent(self) -> float:
        """The change in percent of the level before; infinite from 0."""
        gap = self.after - self.before
        return 100 * gap / abs(self.before) if self.before else math.copysign(math.inf, gap)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trend:
    """The trend of a series: its changes, or the `drift` of its whole length in its unit (None: it does not drift).

    `state` is that of the latest runs; `since`: the first run that differs, of a suspected change and a live one;
    `runs_needed`: how many more runs would confirm a suspected change.
    """

    points: tuple[ChangePoint, ...]
    drift: float | None
    state: State
    since: int | None = None
    runs_needed: int = 0


def trend(values: Sequence[float]) -> Trend:
    """The changes of level of a series (any unit, in the order of runs), its drift, and what the latest runs tell."""
    points = change_points(values)
    if points and _is_drift(values, points):
        return Trend(points=(), drift=_slope(values) * (len(values) - 1), state="drifting")
    start = points[-1].index if points else 0
    latest = values[start:]
    if points and len(latest) <= LIVE_BEFORE:
        return Trend(points=points, drift=None, state="changed", since=start)
    if len(latest) < LIVE_BEFORE + LIVE_RUNS[0]:
        return Trend(points=points, drift=None, state="too few runs")
    if (length := _confirmed(latest)) is not None:
        return Trend(points=points, drift=None, state="changed", since=len(values) - length)
    if (length := _suspected(latest)) is not None:
        needed = max(1, CONFIRMING_RUNS - length)
        return Trend(points=points, drift=None, state="suspected", since=len(values) - length, runs_needed=needed)
    return Trend(points=points, drift=None, state="steady")


def change_points(values: Sequence[float]) -> tuple[ChangePoint, ...]:
    """Where the level of a series, in any unit, changed, looking back over all of it; a drift gives several of them."""
    edges = [0, *_splits(values, 0), len(values)]
    levels = [median(values[first:last]) for first, last in itertools.pairwise(edges) if last > first]
    return tuple(
        ChangePoint(index=index, before=before, after=after)
        for index, before, after in zip(edges[1:-1], levels, levels[1:], strict=False)
    )


def _splits(values: Sequence[float], start: int) -> list[int]:
    """The places of the changes within a part of the series that begins at `start`, by binary segmentation."""
    split, largest = _largest_sum(values)
    if largest < CRITICAL:
        return []
    _, spread = _step(values, split)
    split = _place(values, spread)
    step, spread = _step(values, split)
    if abs(step) < MIN_STEP * spread and largest < SURE * CRITICAL:
        return []
    return [*_splits(values[:split], start), start + split, *_splits(values[split:], start + split)]


def _largest_sum(values: Sequence[float]) -> tuple[int, float]:
    """The split with the largest standardized sum of ranks, and this sum; 0 where there is no split to make."""
    n = len(values)
    ranks = _ranks(values)
    middle = (n + 1) / 2
    variance = math.fsum((rank - middle) ** 2 for rank in ranks) / max(1, n - 1)
    best, largest, total = 0, 0.0, 0.0
    if variance == 0:
        return best, largest
    for split, rank in enumerate(ranks[:-1], 1):
        total += rank - middle
        if LEAST <= split <= n - LEAST:
            found = abs(total) / math.sqrt(split * (n - split) / n * variance)
            if found > largest:
                best, largest = split, found
    return best, largest


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in order[first : last + 1]:
            ranks[place] = (first + last) / 2 + 1
        first = last + 1
    return ranks


def _step(values: Sequence[float], split: int) -> tuple[float, float]:
    """The difference of the medians of both sides, and the robust standard deviation around them."""
    before, after = median(values[:split]), median(values[split:])
    apart = [abs(value - (before if index < split else after)) for index, value in enumerate(values)]
    return after - before, MAD * median(apart)


def _place(values: Sequence[float], spread: float) -> int:
    """The split with the smallest Huber loss of both sides around their medians."""
    limit = HUBER * spread or math.inf

    def loss(part: Sequence[float]) -> float:
        center = median(part)
        apart = [abs(value - center) for value in part]
        return math.fsum(each * each / 2 if each <= limit else limit * (each - limit / 2) for each in apart)

    places = range(LEAST, len(values) - LEAST + 1)
    return min(places, key=lambda split: loss(values[:split]) + loss(values[split:]))


def _is_drift(values: Sequence[float], points: Sequence[ChangePoint]) -> bool:
    """Whether a straight line describes the series better than its levels: Schwarz's criterion of Laplace's law."""
    n, slope = len(values), _slope(values)
    rest = [value - slope * index for index, value in enumerate(values)]
    around_line = _deviation(rest)
    edges = [0, *(point.index for point in points), n]
    around_levels = math.fsum(_deviation(values[a:b]) for a, b in itertools.pairwise(edges))
    if around_levels <= 0 or around_line <= 0:
        return around_line < around_levels
    more = 2 * len(points) + 1 - 2  # parameters: levels and places, slope and height
    return 2 * n * math.log(around_line) < 2 * n * math.log(around_levels) + more * math.log(n)


def _deviation(values: Sequence[float]) -> float:
    center = median(values)
    return math.fsum(abs(value - center) for value in values)


def _slope(values: Sequence[float]) -> float:
    """The median slope of all pairs, per run (Sen, J. Amer. Statist. Assoc. 63 (1968))."""
    return median(
        (values[last] - values[first]) / (last - first) for last in range(1, len(values)) for first in range(last)
    )


def _confirmed(values: Sequence[float]) -> int | None:
    """How many of the latest runs have surely left the level of those before; None if none have."""
    ranks, n = _ranks(values), len(values)
    middle = (n + 1) / 2
    variance = math.fsum((rank - middle) ** 2 for rank in ranks) / (n - 1)
    found: tuple[float, int] | None = None
    for length in LIVE_RUNS:
        if n - length < LIVE_BEFORE or variance == 0:
            break
        total = abs(math.fsum(ranks[-length:]) - length * middle)
        standardized = total / math.sqrt(length * (n - length) / n * variance)
        if standardized >= LIVE_CRITICAL and abs(_scores(values, length)[1]) >= LIVE_STEP:
            found = max(found or (0.0, 0), (standardized, length))
    return found[1] if found is not None else None


def _suspected(values: Sequence[float]) -> int | None:
    """How many of the latest runs lie beyond SUSPECTED_STEP on one side of all before; None if fewer than two do."""
    for length in range(CONFIRMING_RUNS - 1, 1, -1):
        if len(values) - length < LIVE_BEFORE:
            continue
        scores, _ = _scores(values, length)
        if min(scores) >= SUSPECTED_STEP or max(scores) <= -SUSPECTED_STEP:
            return length
    return None


def _scores(values: Sequence[float], length: int) -> tuple[list[float], float]:
    """The latest `length` values in robust standard deviations of those before from their median, and their median."""
    before = values[:-length]
    center = median(before)
    spread = MAD * median(abs(value - center) for value in before)
    gaps = [value - center for value in values[-length:]]
    if spread == 0:
        scores = [math.copysign(math.inf, gap) if gap else 0.0 for gap in gaps]
    else:
        scores = [gap / spread for gap in gaps]
    return scores, median(scores)
