"""Finds hosts whose operations stall: lost packets make a transport wait for a time-out before it sends again.

TCP waits at least 200 ms (Linux's TCP_RTO_MIN; RFC 6298 recommends 1 s), RDMA's reliable connection seconds. The
fastest iteration stays fast, and often the median, too: therefore stalls are counted. A measurement (one group, size
and repeat) counts once, however many of its iterations stalled, because the stalls of a burst have one cause.

A host or pair is named if its share of such measurements is not explained by the share among the others: the binomial
p-value is below ALPHA over all comparisons, and there are stalls in at least two repeats. The others' share is (k + 1)
/ (n + 2), Laplace's rule of succession: few measurements without a stall do not prove a rate of 0. A host must stall
significantly even without its worst pair; a pair is named only if its hosts hardly stall elsewhere.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from training.benchmarks.network.outliers import ALPHA
from training.benchmarks.network.samples import Sample

# A little below 200 ms, since an operation may begin after the lost packet was sent.
STALL_US = 190_000.0
# The time of a one-second operation varies by 200 ms without a stall: it must also exceed the fastest this many times.
STALL_FACTOR = 2.0
MIN_REPEATS_WITH_STALLS = 2
# For a host without its worst pair: the rest need not be as significant.
_REST_ALPHA = 0.01
# For a pair's hosts elsewhere: largest share of measurements with stalls at which the pair alone is the cause.
_ELSEWHERE_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Tally:
    """Measurements, those with stalls, the repeats in which there were any, and iterations."""

    measured: int
    with_stalls: int
    repeats: int
    stalled: int
    iterations: int

    @property
    def percent(self) -> float:
        """Stalled iterations in percent."""
        return 100 * self.stalled / self.iterations if self.iterations else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stalling:
    """A host, pair or group whose operations stall."""

    kind: str
    group: str
    hosts: tuple[str, ...]
    tally: Tally


def tally(samples: Iterable[Sample]) -> Tally:
    """Count the samples."""
    chosen = list(samples)
    bad = [sample for sample in chosen if sample.stalled]
    return Tally(
        measured=len(chosen),
        with_stalls=len(bad),
        repeats=len({sample.repeat for sample in bad}),
        stalled=sum(sample.stalled for sample in bad),
        iterations=sum(sample.iterations for sample in chosen),
    )


def stalling_pairs(samples: Sequence[Sample]) -> list[Stalling]:
    """Hosts and pairs whose operations stall, in a pattern of pairs. Fewer than three pairs cannot be compared."""
    pairs = _by_group(samples)
    if len(pairs) < 3 or not any(sample.stalled for sample in samples):
        return []
    hosts = {host for sample in samples for host in sample.hosts}
    limit = ALPHA / (len(pairs) + len(hosts))
    found: list[Stalling] = []
    while worst := _worst_host(pairs, limit):
        found.append(worst)
        pairs = {name: own for name, own in pairs.items() if worst.group not in own[0].hosts}
    return found + _stalling("pair", pairs, limit)


def stalling_groups(kind: str, samples: Sequence[Sample]) -> list[Stalling]:
    """Groups whose operations stall, in a pattern of similar groups."""
    groups = _by_group(samples)
    return _stalling(kind, groups, ALPHA / max(1, len(groups)))


def _by_group(samples: Sequence[Sample]) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(sample.group, []).append(sample)
    return found


def _worst_host(pairs: Mapping[str, list[Sample]], limit: float) -> Stalling | None:
    """The host of these pairs that stalls the most, if it can be named."""
    if len(pairs) < 3:
        return None
    chances: dict[str, float] = {}
    for host in sorted({host for own in pairs.values() for host in own[0].hosts}):
        own = [samples for samples in pairs.values() if host in samples[0].hosts]
        others = tally(sample for samples in pairs.values() if host not in samples[0].hosts for sample in samples)
        worst = max(own, key=lambda samples: tally(samples).with_stalls)
        rest = tally(sample for samples in own if samples is not worst for sample in samples)
        whole = tally(sample for samples in own for sample in samples)
        if whole.repeats >= MIN_REPEATS_WITH_STALLS and chance(rest, others) < _REST_ALPHA:
            chances[host] = chance(whole, others)
    host = min(chances, key=lambda each: chances[each], default="")
    if not host or chances[host] >= limit:
        return None
    total = tally(sample for samples in pairs.values() if host in samples[0].hosts for sample in samples)
    return Stalling(kind="host", group=host, hosts=(host,), tally=total)


def _stalling(kind: str, groups: Mapping[str, list[Sample]], limit: float) -> list[Stalling]:
    result = []
    for name, own in groups.items():
        mine = tally(own)
        others = tally(sample for other, samples in groups.items() if other != name for sample in samples)
        if not others.measured or mine.repeats < MIN_REPEATS_WITH_STALLS or chance(mine, others) >= limit:
            continue
        elsewhere = [
            tally(
                sample
                for each, samples in groups.items()
                if each != name and host in samples[0].hosts
                for sample in samples
            )
            for host in own[0].hosts
        ]
        if kind != "pair" or all(each.with_stalls <= _ELSEWHERE_SHARE * each.measured for each in elsewhere):
            result.append(Stalling(kind=kind, group=name, hosts=own[0].hosts, tally=mine))
    return result


def chance(mine: Tally, others: Tally) -> float:
    """p-value: probability (0 to 1) of at least as many measurements with stalls as in `mine`, at the rate of `others`.

    Source: the binomial distribution, with Laplace's rule of succession (k + 1) / (n + 2) for the rate.
    """
    share = (others.with_stalls + 1) / (others.measured + 2)
    n, terms = mine.measured, range(mine.with_stalls, mine.measured + 1)
    return min(
        1.0, sum(math.exp(_log_choose(n, k) + k * math.log(share) + (n - k) * math.log1p(-share)) for k in terms)
    )


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
