"""Finds hosts, pairs and groups that are outliers among their peers in a figure that is measured repeatedly.

A figure is the logarithm of a time: larger is worse, and differences are relative. Pairs are modelled by the best
figure of each host, that of its best pair. A host all of whose pairs are bad has a bad best pair and is compared with
the other hosts; a pair that is worse than both its hosts achieve elsewhere points to the path between them. An outlier
is beyond the user's bound and beyond noise twice: in the median over the repeats, and in the fastest iteration of all,
against the others' fastest. A slow wire is always slow, while traffic and programs of others come and go.

The noise is the larger of the scatter from repeat to repeat and of 1.4826 * MAD of the unexplained residuals; the limit
is a quantile of Student's t for a small probability over all comparisons. A drift that all groups share from repeat to
repeat is removed if that lowers the limit. Extreme repeats do not count as scatter if they are so rare that no group is
likely to have nothing else.

Sources: Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation" (1993), for 1.4826 * MAD; Abramowitz and
Stegun, "Handbook of Mathematical Functions", 26.7.5, for the quantile of Student's t.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median, median_low

ALPHA = 0.001
# The fastest iterations are a second hurdle, not a second proof.
_FASTEST_ALPHA = 0.01
# Scales a median absolute deviation to the standard deviation of a normal distribution.
_MAD_SCALE = 1.4826
# A repeat beyond this many robust standard deviations is extreme: chance gives one in two million.
_WILD = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """A group's figure (logarithm of a time) in each repeat: of the median iteration, and of the fastest."""

    group: str
    hosts: tuple[str, ...]
    values: tuple[float, ...]
    fastest: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlier:
    """A host, a pair or a group, and the figure of its peers."""

    kind: str
    group: str
    hosts: tuple[str, ...]
    reference: float


def pair_outliers(found: Sequence[Level], bound: float, *, adds_up: bool = False) -> list[Outlier]:
    """Outlying hosts and pairs among pairs of hosts; with fewer than three pairs there is no comparison.

    `bound` is the smallest deviation to report, as a logarithm. `adds_up`: the deviations of two bad hosts add up in a
    time, as delays do; else the worse host determines it, as with bandwidths.
    """
    if len(found) < 3:
        return []
    hosts = sorted({host for level in found for host in level.hosts})
    own = {host: [place for place, level in enumerate(found) if host in level.hosts] for host in hosts}

    def model(values: Sequence[float]) -> tuple[dict[str, float], float, list[float]]:
        """The best figure of each host, the usual best figure, and the expected figure of each pair."""
        able = {host: min(values[place] for place in places) for host, places in own.items()}
        usual = median_low(able.values())
        return able, usual, [_together([able[host] for host in level.hosts], usual, adds_up) for level in found]

    def unexplained(values: Sequence[float]) -> list[float]:
        return [value - each for value, each in zip(values, model(values)[2], strict=True)]

    typical, fastest = _settle(found, unexplained, bound, comparisons=len(found) + len(hosts))
    able, usual, expected = model(typical.values)
    best_able, best_usual, best_expected = model(fastest.values)
    result = [
        Outlier(kind="host", group=host, hosts=(host,), reference=usual)
        for host in hosts
        if able[host] - usual > typical.limit and best_able[host] - best_usual > fastest.limit
    ]
    result += [
        Outlier(kind="pair", group=level.group, hosts=level.hosts, reference=expected[place])
        for place, level in enumerate(found)
        if typical.values[place] - expected[place] > typical.limit
        and fastest.values[place] - best_expected[place] > fastest.limit
    ]
    return result


def group_outliers(kind: str, found: Sequence[Level], bound: float) -> list[Outlier]:
    """Outliers among groups of the same size; two are compared with the better one, more with their median.

    `bound` is the smallest deviation to report, as a logarithm.
    """
    if len(found) < 2:
        return []

    def usual(values: Sequence[float]) -> float:
        return min(values) if len(values) == 2 else median_low(values)

    def unexplained(values: Sequence[float]) -> list[float]:
        return [value - usual(values) if len(values) > 2 else 0.0 for value in values]

    typical, fastest = _settle(found, unexplained, bound, comparisons=len(found))
    return [
        Outlier(kind=kind, group=level.group, hosts=level.hosts, reference=usual(typical.values))
        for level, value, best in zip(found, typical.values, fastest.values, strict=True)
        if value - usual(typical.values) > typical.limit and best - usual(fastest.values) > fastest.limit
    ]


def _together(able: Sequence[float], reference: float, adds_up: bool) -> float:
    """Expected figure of a pair of hosts that achieve `able` with a host whose own figure is `reference`."""
    if not adds_up:
        return max(able)
    base = math.exp(reference)
    return max(*able, math.log(max(base, base + sum(math.exp(each) - base for each in able))))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Settled:
    """A value for each group, and the limit beyond its reference for an outlier."""

    values: list[float]
    limit: float


def _settle(
    found: Sequence[Level], unexplained: Callable[[Sequence[float]], list[float]], bound: float, *, comparisons: int
) -> tuple[_Settled, _Settled]:
    """The medians of the groups over the repeats, and their fastest values."""

    def settled(
        every: Sequence[Sequence[float]], choose: Callable[[Sequence[float]], float], alpha: float, share: float
    ) -> _Settled:
        """`share` is the ratio of the standard deviation of what `choose` selects to that of a single value."""
        chance, values = alpha / comparisons, [choose(each) for each in every]
        limit = _noise_limit(every, unexplained(values), chance, share)
        if len({len(each) for each in every}) == 1:  # a host's record may lack a repeat
            still = _without_drift(every)
            still_values = [choose(each) for each in still]
            without = _noise_limit(still, unexplained(still_values), chance, share, lost_degrees=len(every[0]) - 1)
            values, limit = (still_values, without) if without < limit else (values, limit)
        return _Settled(values=values, limit=max(bound, limit))

    # The standard error of a median of normal values is sqrt(pi / 2n) standard deviations.
    of_median = math.sqrt(math.pi / (2 * min(len(level.values) for level in found)))
    return (
        settled([level.values for level in found], median, ALPHA, min(1.0, of_median)),
        settled([level.fastest for level in found], min, _FASTEST_ALPHA, 1.0),
    )


def _without_drift(every: Sequence[Sequence[float]]) -> list[list[float]]:
    """The groups' values minus what a repeat adds to the median group."""
    scatter = [[value - median(values) for value in values] for values in every]
    drift = [median(of_repeat) for of_repeat in zip(*scatter, strict=True)]
    return [[value - each for value, each in zip(values, drift, strict=True)] for values in every]


def repeat_noise(found: Sequence[Sequence[float]]) -> float:
    """Standard deviation from repeat to repeat, in the unit of the values (logarithms), pooled over the groups'
    distances from their medians.
    """
    degrees = sum(len(scatter) - 1 for scatter in found)
    return math.sqrt(sum(value**2 for scatter in found for value in scatter) / degrees) if degrees > 0 else 0.0


def _noise_limit(
    every: Sequence[Sequence[float]],
    left: Sequence[float],
    chance: float,
    share: float,
    *,
    lost_degrees: int = 0,
) -> float:
    """Largest distance of a group beyond its reference that noise explains."""
    scatter = [[value - median(values) for value in values] for values in every]
    degrees = sum(len(each) - 1 for each in scatter)
    free = degrees - lost_degrees
    if free < 1:
        return math.inf
    middle = median(left)
    spread = _MAD_SCALE * median([abs(value - middle) for value in left])
    noise = share * _tame_noise(scatter, chance) * math.sqrt(degrees / free)
    return _student_quantile(1 - chance, free) * max(spread, noise)


def _tame_noise(scatter: Sequence[Sequence[float]], chance: float) -> float:
    """repeat_noise without the extreme repeats if the probability that a given group has no others is smaller."""
    distances = [abs(value) for each in scatter for value in each if value]
    usual = _MAD_SCALE * median(distances) if distances else 0.0
    wild = sum(value > _WILD * usual for value in distances)
    total, repeats = sum(map(len, scatter)), min(map(len, scatter))
    if ((wild + 1) / (total + 2)) ** repeats > chance:
        return repeat_noise(scatter)
    return repeat_noise([[value for value in each if abs(value) <= _WILD * usual] or [0.0] for each in scatter])


def _student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t by its expansion from the normal quantile.

    A noise that was estimated from few repeats may be far too small by chance; this allows for it.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
    """
    z = NormalDist().inv_cdf(probability)
    return (
        z
        + (z**3 + z) / (4 * degrees)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    )
