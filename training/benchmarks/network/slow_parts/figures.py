"""Defines a figure of all groups, bandwidth or latency at one size, and a symptom: what is bad about a part in it."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low

from protocol.finding import SymptomName
from training.benchmarks.network.patterns.tiers import Classes, Tiers, classes_of
from training.benchmarks.network.slow_parts.events import Culprit, culprit_groups, culprit_pairs
from training.benchmarks.network.slow_parts.findings import FaultKind
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.noise import medians
from training.benchmarks.network.slow_parts.readings import Readings

# Messages up to this size show latency, larger ones bandwidth: 64 KiB take 5 us at 100 Gbit/s.
LATENCY_BYTES = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """One figure of a host or device (`host`, else -1) or of a group (`place`, else -1) that is bad.

    `share` is its rate over that expected, None for stalls; `p_value` is over all comparisons of the figure. A symptom
    of a block of hosts has its (tier, number, rail), and neither host nor place. `towards` are the node ranks at the
    other ends of the pairs in which a host is bad all the time.
    """

    name: SymptomName
    host: int
    place: int
    kind: FaultKind
    share: float | None
    p_value: float
    text: str
    block: tuple[int, int, int] | None = None
    towards: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of all groups: the readings, and for pairs their node ranks (or devices) and the tiers' classes."""

    name: SymptomName
    readings: Readings
    pairs: Sequence[tuple[int, ...]] | None
    classes: Classes
    tiers: Tiers
    bound: float

    @property
    def everywhere(self) -> str:
        """The words that say that a host is bad towards everybody."""
        return " on all its pairs" if self.pairs is not None else ""


def figure(readings: Readings, pairs: Sequence[tuple[int, ...]] | None, tiers: Tiers, bounds: Bounds) -> Figure:
    """The figure that the readings' size shows: latency or bandwidth."""
    name: SymptomName = "latency" if readings.size_bytes <= LATENCY_BYTES else "bandwidth"
    classes = Classes(of_pairs=[0] * len(readings), tiers=[0])
    if pairs is not None:
        classes = classes_of(readings.members, readings.rounds, tiers, with_load=name == "bandwidth")
    return Figure(name=name, readings=readings, pairs=pairs, classes=classes, tiers=tiers, bound=bounds.of(name))


def alike(readings: Readings) -> Readings:
    """The groups with the most frequent number of ranks: only those can be compared."""
    common = Counter(readings.world_sizes).most_common(1)
    chosen = [place for place, width in enumerate(readings.world_sizes) if width == common[0][0]]
    return readings.choose(chosen)


def without_common(readings: Readings, likes: Sequence[Hashable]) -> Readings:
    """The readings with the usual time of groups that are alike (equal values of `likes`) moved to that of all."""
    times = medians(readings.columns["middle"])
    of_like: dict[Hashable, list[float]] = {}
    for like, time in zip(likes, times, strict=True):
        of_like.setdefault(like, []).append(time)
    every = median_low(times)
    usual = {like: median_low(own) for like, own in of_like.items()}
    shifts = [every - usual[like] for like in likes]
    columns = {
        name: [array("f", [time + shift for time, shift in zip(each, shifts, strict=True)]) for each in of_repeats]
        for name, of_repeats in readings.columns.items()
    }
    return replace(readings, columns=columns)


def usual_gap(readings: Readings, upper: str, lower: str, places: Sequence[int]) -> float:
    """The usual distance of two quantiles in these groups, in logarithms."""
    columns = zip(readings.columns[upper], readings.columns[lower], strict=True)
    return median([above[place] - below[place] for above, below in columns for place in places])


def culprits(
    pairs: Sequence[tuple[int, ...]] | None,
    groups: int,
    events: Sequence[Iterable[int]],
    alpha: float,
    *,
    distinct: int = 0,
    rare: bool = True,
) -> list[Culprit]:
    """Hosts and pairs, or the groups if there are no `pairs`, with too many events; `alpha` (0 to 1) as in `events`."""
    if pairs is None:
        return culprit_groups(events, groups, alpha, distinct=distinct, rare=rare)
    return culprit_pairs(events, pairs, alpha, distinct=distinct, rare=rare)
