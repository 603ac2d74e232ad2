"""Finds hosts and pairs that have more bad measurements than the others: measurements with stalls, or with slow parts.

A measurement (one group and repeat) counts once, however many of its iterations are bad, because those of a burst have
one cause. A host or pair is named if its share of bad measurements is not explained by the share among the others: the
p-value is below a limit, and there are bad ones in at least two repeats. Stalls are rare in a healthy network: their
test is binomial with the others' share (k + 1) / (n + 2), Laplace's rule of succession, since few measurements that are
good do not prove a rate of 0. Slow operations may be common: their test is Fisher's exact one, which knows no rate. A
host must have too many even without its worst pair; a pair is named only if its hosts have hardly any elsewhere.

The unit of independence is a host's pair: its repeats may share a route that is slow for all of them. Counts are
divided by the design effect 1 + (repeats - 1) rho, where rho is the correlation within the host's own pairs: repeats
that are bad independently count each, those of paths that are always bad or always good count once.

Source: Rao and Scott, "A Simple Method for the Analysis of Clustered Binary Data" (1992), for the divided counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from training.benchmarks.network.slow_parts.chance import chance, design_effect, exact_chance

# A transport waits for a time-out before it sends a lost packet again: TCP at least 200 ms (Linux's TCP_RTO_MIN; RFC
# 6298 recommends 1 s), RDMA's reliable connection seconds. A little below, since an operation may begin after the loss.
STALL_US = 190_000.0
# The time of a one-second operation varies by 200 ms without a stall: it must also exceed the fastest this many times.
STALL_FACTOR = 2.0
MIN_REPEATS_WITH_EVENTS = 2
# For a host without its worst pair: the rest need not be as significant.
_REST_ALPHA = 0.01
# For a pair's hosts elsewhere: largest share of bad measurements at which the pair alone is the cause.
_ELSEWHERE_SHARE = 0.05
# How much larger a host's share of slow measurements is than that of the others, at least.
LEAST_EXCESS = 0.02


@dataclass(slots=True)
class Tally:
    """Measurements, and the bad ones among them; `repeats` has a bit for each repeat with bad ones."""

    measured: int = 0
    bad: int = 0
    repeats: int = 0

    def __sub__(self, part: Tally) -> Tally:
        """The measurements without a part of them."""
        return Tally(measured=self.measured - part.measured, bad=self.bad - part.bad)

    @property
    def share(self) -> float:
        """Bad measurements / all of them, a fraction."""
        return self.bad / self.measured if self.measured else 0.0

    @property
    def bad_repeats(self) -> int:
        """The number of repeats with bad measurements."""
        return self.repeats.bit_count()


@dataclass(frozen=True, kw_only=True, slots=True)
class Culprit:
    """A host (node rank; -1 for a group), the places of its groups, its tally and that of the others, its p-value."""

    host: int
    places: tuple[int, ...]
    tally: Tally
    others: Tally
    p_value: float


@dataclass(slots=True)
class _Host:
    """A host's measurements, and the bad ones of each of its pairs by place."""

    tally: Tally = field(default_factory=Tally)
    bad_pairs: dict[int, Tally] = field(default_factory=dict)

    def effect(self, repeats: int) -> float:
        """The design effect of its pairs, 1 for independent repeats to `repeats` for those that say the same."""
        pairs = self.tally.measured // repeats if repeats else 0
        return design_effect([each.bad for each in self.bad_pairs.values()], pairs, repeats)


def culprit_pairs(
    events: Sequence[Iterable[int]],
    pairs: Sequence[tuple[int, ...]],
    alpha: float,
    *,
    distinct: int = 0,
    rare: bool = True,
) -> list[Culprit]:
    """Hosts and pairs with too many bad measurements. Fewer than three pairs cannot be compared.

    `events` has, by repeat, the places of the pairs whose measurement is bad; of several sizes one after the other, of
    `distinct` repeats each. `alpha` is the probability of a false alarm over all comparisons. Events that are not
    `rare` must be twice as frequent as among the others, and more by LEAST_EXCESS.
    """
    repeats = len(events)
    bad = _by_place(events, distinct or repeats)
    if len(pairs) < 3 or not bad:
        return []
    hosts: dict[int, _Host] = {}
    for pair in pairs:
        for host in pair:
            hosts.setdefault(host, _Host()).tally.measured += repeats
    total = Tally(measured=len(pairs) * repeats, bad=sum(each.bad for each in bad.values()))
    for place, own in bad.items():
        for host in pairs[place]:
            hosts[host].bad_pairs[place] = own
            hosts[host].tally.bad += own.bad
            hosts[host].tally.repeats |= own.repeats
    # Half of the false alarms may be hosts, half pairs.
    comparisons = 2 * len(hosts)
    found: list[Culprit] = []
    gone: set[int] = set()
    while worst := _worst_host(hosts, total, alpha / comparisons, repeats, rare):
        host, p_value = worst
        mine = hosts[host]
        others = total - mine.tally
        p_value = min(1.0, p_value * comparisons)
        places = tuple(sorted(mine.bad_pairs))
        found.append(Culprit(host=host, places=places, tally=mine.tally, others=others, p_value=p_value))
        gone.add(host)
        _remove(host, hosts, pairs, total, repeats)
    left = {place: own for place, own in bad.items() if not gone.intersection(pairs[place])}
    return found + _culprits(left, pairs, hosts, total, alpha, 2 * len(pairs), rare)


def culprit_groups(
    events: Sequence[Iterable[int]], groups: int, alpha: float, *, distinct: int = 0, rare: bool = True
) -> list[Culprit]:
    """Groups with too many bad measurements, in a pattern of similar groups; see culprit_pairs (`alpha`: 0 to 1)."""
    bad = _by_place(events, distinct or len(events))
    total = Tally(measured=groups * len(events), bad=sum(each.bad for each in bad.values()))
    return _culprits(bad, None, {}, total, alpha, max(1, groups), rare)


def _by_place(events: Sequence[Iterable[int]], distinct: int) -> dict[int, Tally]:
    found: dict[int, Tally] = {}
    for index, places in enumerate(events):
        for place in places:
            own = found.setdefault(place, Tally(measured=len(events)))
            own.bad += 1
            own.repeats |= 1 << index % distinct
    return found


def _worst_host(
    hosts: dict[int, _Host], total: Tally, limit: float, repeats: int, rare: bool
) -> tuple[int, float] | None:
    """The host that stands out the most and can be named, with its p-value in this comparison."""
    if total.measured < 3 * repeats:
        return None
    excess: dict[int, float] = {}
    for host, own in hosts.items():
        expected = own.tally.measured * _rate(own.tally, total)
        if own.tally.bad > expected and own.tally.bad_repeats >= MIN_REPEATS_WITH_EVENTS:
            excess[host] = (own.tally.bad - expected) / math.sqrt(expected)
    for host in sorted(excess, key=lambda each: -excess[each]):
        mine = hosts[host]
        if _p_value(mine.tally, total, rare) >= limit:
            return None
        effect = mine.effect(repeats)
        p_value = _p_value(mine.tally, total, rare, effect)
        worst = max(mine.bad_pairs.values(), key=lambda each: each.bad)
        chance_of_rest = _p_value(mine.tally - worst, total - worst, rare, effect)
        if p_value < limit and chance_of_rest < _REST_ALPHA and (rare or _is_frequent(mine.tally, total)):
            return host, p_value
    return None


def _is_frequent(own: Tally, total: Tally) -> bool:
    """Whether an effect is large enough to matter, however significant it is."""
    others = (total.bad - own.bad) / max(1, total.measured - own.measured)
    return own.share >= max(others + LEAST_EXCESS, 2 * others)


def _p_value(own: Tally, total: Tally, rare: bool, effect: float = 1.0) -> float:
    """The probability that chance gives a host or group so many of all bad measurements; `effect` as design_effect."""
    if effect > 1:
        others = total - own
        own = Tally(measured=math.ceil(own.measured / effect), bad=int(own.bad / effect))
        rest = Tally(measured=int(others.measured / effect), bad=math.ceil(others.bad / effect))
        total = Tally(measured=own.measured + rest.measured, bad=own.bad + rest.bad)
    if rare:
        return chance(own.bad, own.measured, _rate(own, total))
    return exact_chance(own.bad, own.measured, total.bad, total.measured)


def _rate(own: Tally, total: Tally) -> float:
    """The share of bad measurements among the others."""
    return (total.bad - own.bad + 1) / (total.measured - own.measured + 2)


def _remove(host: int, hosts: dict[int, _Host], pairs: Sequence[tuple[int, ...]], total: Tally, repeats: int) -> None:
    """Take a named host's pairs out of the tallies of the others and of all."""
    gone = hosts.pop(host)
    total.measured -= gone.tally.measured
    total.bad -= gone.tally.bad
    for pair in pairs:
        if host in pair:
            for other in pair:
                if other in hosts:
                    hosts[other].tally.measured -= repeats
    for place, own in gone.bad_pairs.items():
        for other_host in pairs[place]:
            if other_host in hosts:
                peer = hosts[other_host]
                peer.tally.bad -= own.bad
                del peer.bad_pairs[place]


def _culprits(
    bad: dict[int, Tally],
    pairs: Sequence[tuple[int, ...]] | None,
    hosts: dict[int, _Host],
    total: Tally,
    alpha: float,
    comparisons: int,
    rare: bool,
) -> list[Culprit]:
    """Pairs, or groups if there are no `pairs`, with too many bad measurements."""
    found = []
    for place, own in bad.items():
        others = total - own
        if not others.measured or own.bad_repeats < MIN_REPEATS_WITH_EVENTS:
            continue
        p_value = _p_value(own, total, rare)
        if p_value >= alpha / comparisons or not (rare or _is_frequent(own, total)):
            continue
        if pairs is not None and not _is_alone(own, pairs[place], hosts):
            continue
        p_value = min(1.0, p_value * comparisons)
        found.append(Culprit(host=-1, places=(place,), tally=own, others=others, p_value=p_value))
    return found


def _is_alone(own: Tally, pair: tuple[int, ...], hosts: dict[int, _Host]) -> bool:
    """Whether a pair's hosts have hardly a bad measurement with others."""
    elsewhere = [hosts[host].tally for host in pair]
    return all(each.bad - own.bad <= _ELSEWHERE_SHARE * (each.measured - own.measured) for each in elsewhere)
