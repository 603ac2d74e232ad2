"""Learns which hosts share a rack, for a search whose groups are to lie within racks, where no file tells it.

Neighbours in the list of hosts meet, then hosts half the list apart. If some pairs are clearly faster than the rest (in
latency, or in bandwidth where uplinks are too narrow for all), those are the pairs of a rack. Hosts then meet until
each has been fast with a host that is placed: two clusters of hosts are one if a pair between them is fast, and two
racks if one is slow. All hosts measure in every round, so that the uplinks are loaded alike.

Source: clusters grow as in Boruvka's algorithm (1926), which joins every cluster with a neighbour in each round.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from statistics import median

from common.statistics import scatter
from protocol.finding import SymptomName
from training.benchmarks.network.patterns.designs import Members
from training.benchmarks.network.slow_parts.comparison import ScanRound, Times

# Of fewer hosts there are too few of a rack for batches.
LEAST_TO_PLACE = 16
# Clusters of so many hosts are large enough for batches: they need not become one.
_ENOUGH = 4
_MOST_ROUNDS = 96
# Neighbours in the list are asked first, in so many rounds: mostly they share a rack.
_NEAR_ROUNDS = 4
# Of the faster and of the slower pairs there are so many at least, and they differ by so many logarithms and noises.
_LEAST_PAIRS, _LEAST_GAP, _NOISES = 3, 0.14, 6.0
# No rack holds more than half of the hosts: in a list by racks, or in no order, half of these pairs or more cross
# racks. A smaller share than this is slow because of bad hosts.
_LEAST_ACROSS = 1 / 4
# Where between the two a pair's time is still that of a rack: uplinks that happen to be idle make others fast, too, and
# a host that is placed wrongly does more harm than one that is not placed. So often two clusters must be fast.
_NEARER, _VOTES = 0.33, 3

Placing = Generator[ScanRound, Sequence[Times], tuple[int, ...]]


def placed(count: int) -> Placing:
    """The number of the rack of each of `count` hosts; empty where no racks show. A host that is in none is alone."""
    order = range(count)
    first = [(host, host + 1) for host in order[: count - 1 : 2]]
    half = count // 2
    second = [(host, host + half) for host in order[:half]]
    figures = yield from _measured("neighbours, to learn the racks", first)
    figures |= yield from _measured("hosts far apart, to learn the racks", second)
    chosen = next((found for symptom in ("latency", "bandwidth") if (found := _limit(figures, symptom))), None)
    if chosen is None:
        return ()
    symptom, limit = chosen
    clusters = _Clusters(count)
    for rounds in range(_MOST_ROUNDS):
        for pair, values in figures.items():
            clusters.met(pair, is_fast=values[symptom][0] < limit)
        pairs = clusters.next_pairs(is_near=rounds < _NEAR_ROUNDS)
        if not pairs or rounds == _MOST_ROUNDS - 1:
            break
        figures = yield from _measured("hosts whose racks are not known yet", pairs)
    racks = clusters.racks()
    return racks if max(map(racks.count, set(racks))) * 2 <= count else ()


# By pair and symptom the logarithm of the median time, and half the range of its repeats.
_Figures = dict[Members, dict[SymptomName, tuple[float, float]]]


def _measured(purpose: str, pairs: Sequence[Members]) -> Generator[ScanRound, Sequence[Times], _Figures]:
    times = yield ScanRound(purpose=purpose, groups=tuple(pairs))
    found: _Figures = {}
    for pair in pairs:
        own = found.setdefault(pair, {})
        for symptom in times[0].get(pair, {}):
            logs = [math.log(repeat[pair][symptom]) for repeat in times]
            own[symptom] = median(logs), scatter(logs)
    return found


def _limit(figures: _Figures, symptom: SymptomName) -> tuple[SymptomName, float] | None:
    """The time (a logarithm) between the pairs within racks and those across; None if there is no such gap."""
    known = [values[symptom] for values in figures.values() if symptom in values]
    ordered = sorted(value for value, _ in known)
    if len(ordered) < 2 * _LEAST_PAIRS:
        return None
    noise = median(scatter for _, scatter in known)
    across = max(_LEAST_PAIRS, math.ceil(_LEAST_ACROSS * len(ordered)))
    for place in range(_LEAST_PAIRS, len(ordered) - across + 1):
        low, high = ordered[place - 1], ordered[place]
        apart = median(ordered[place:]) - median(ordered[:place])
        if high - low >= max(_LEAST_GAP / 2, noise) and apart >= max(_LEAST_GAP, _NOISES * noise):
            return symptom, median(ordered[:place]) + _NEARER * apart
    return None


class _Clusters:
    """Hosts that are known to share a rack, and clusters that are known not to."""

    def __init__(self, count: int) -> None:
        self._of = [*range(count)]
        self._members = {host: [host] for host in range(count)}
        self._apart: dict[int, set[int]] = {host: set() for host in range(count)}
        # How often pairs of clusters were fast.
        self._likely: dict[tuple[int, int], int] = {}
        self._asked_again: set[int] = set()

    def _size(self, cluster: int) -> int:
        return len(self._members.get(cluster, ()))

    def met(self, pair: Members, *, is_fast: bool) -> None:
        """Take what a pair says of the clusters of its hosts."""
        one, other = (self._of[host] for host in pair)
        if one == other or min(self._size(one), self._size(other)) >= _ENOUGH:
            return
        key = min(one, other), max(one, other)
        votes = self._likely.pop(key, 0) + 1
        if is_fast and votes < _VOTES:
            self._likely[key] = votes
            return
        if not is_fast:
            self._apart[one].add(other)
            self._apart[other].add(one)
            return
        for host in self._members[other]:
            self._of[host] = one
        self._members[one] += self._members.pop(other)
        for third in self._apart.pop(other):
            self._apart[third].discard(other)
            if third != one:
                self._apart[third].add(one)
                self._apart[one].add(third)
        self._apart[one].discard(other)
        large = len(self._members[one]) >= _ENOUGH
        self._likely = {
            each: votes
            for each, votes in self._likely.items()
            if other not in each and not (large and one in each and min(map(self._size, each)) >= _ENOUGH)
        }

    def next_pairs(self, *, is_near: bool) -> list[Members]:
        """Pairs of clusters that may be one, the smallest first, and pairs of the hosts that are left, to load uplinks.

        `is_near`: with the nearest in the list, else with the largest. Empty when no small cluster can grow.
        """
        pairs = self._asked(is_near=is_near)
        if not pairs:
            # Once more, as a host may have been disturbed.
            small = {each for each, members in self._members.items() if len(members) < _ENOUGH} - self._asked_again
            self._asked_again |= small
            for one in small:
                for other in self._apart[one]:
                    self._apart[other].discard(one)
                self._apart[one] = set()
            pairs = self._asked(is_near=False)
        return pairs

    def _asked(self, *, is_near: bool) -> list[Members]:
        free = {cluster: [*members] for cluster, members in self._members.items()}
        pairs: list[Members] = []
        for one, other in sorted(self._likely):
            if free[one] and free[other]:
                pairs.append(_pair(free[one].pop(0), free[other].pop(0)))
        asked = set(self._likely)
        by_size = sorted(free, key=lambda cluster: len(self._members[cluster]))
        for one in (cluster for cluster in by_size if len(self._members[cluster]) < _ENOUGH):
            near = sorted(by_size, key=lambda other: abs(self._members[other][0] - self._members[one][0]))
            for other in near if is_near else reversed(by_size):
                key = min(one, other), max(one, other)
                if not free[one]:
                    break
                if key in asked or not free[other] or not self._may_be_one(one, other):
                    continue
                asked.add(key)
                pairs.append(_pair(free[one].pop(), free[other].pop()))
        return pairs + self._across(free) if pairs else []

    def _may_be_one(self, one: int, other: int) -> bool:
        return one != other and other not in self._apart[one]

    def _across(self, free: dict[int, list[int]]) -> list[Members]:
        """Pairs of the free hosts of different clusters."""
        pairs: list[Members] = []
        while len(left := sorted((each for each in free.values() if each), key=len)) > 1:
            pairs.append(_pair(left[-1].pop(), left[-2].pop()))
        return pairs

    def racks(self) -> tuple[int, ...]:
        """The number of each host's cluster, from 0."""
        number = {cluster: place for place, cluster in enumerate(dict.fromkeys(self._of))}
        return tuple(number[cluster] for cluster in self._of)


def _pair(one: int, other: int) -> Members:
    return min(one, other), max(one, other)
