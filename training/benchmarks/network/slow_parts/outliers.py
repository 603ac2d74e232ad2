"""Finds hosts, pairs and groups that are outliers among their peers in a figure that is measured repeatedly.

A figure is the logarithm of a time: larger is worse, and differences are relative. Pairs are compared within a class
(see `tiers`) and modelled by the best figure of each host there, that of its best pair. A host all of whose pairs are
bad has a bad best pair and is compared with the other hosts; a pair that is worse than both its hosts achieve elsewhere
points to the path between them. An outlier is beyond the user's bound and beyond noise in the median over the repeats,
and bad in every single repeat: in most of the host's pairs, or in the pair itself. An iteration or a pair that went
well acquits nobody.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from statistics import median, median_low

from training.benchmarks.network.slow_parts.noise import Settled, quantile, settle, spread, tail

ALPHA = 0.001
# A repeat is bad if it deviates by the bound and by this share of the median deviation: a constant fault is constant,
# while interference may hit the same group in most repeats by chance.
_OF_MEDIAN = 0.5
MIN_PAIRS = 3
# With a single pair in a class a host cannot be told from the path.
_MIN_PAIRS_OF_A_HOST = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlier:
    """A host or a group (its place in the readings), its class, the figure of its peers, and its p-value.

    `places` are those of the groups that show it; `host` is a node rank, -1 for a group.
    """

    host: int
    places: tuple[int, ...]
    reference: float
    p_value: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The outliers, and the figure (logarithm of a time) that each group would have if no host were an outlier."""

    outliers: list[Outlier]
    expected: list[float]


class _PairModel:
    """The best figure of each host in each class, the usual best figure there, and what follows for each pair."""

    def __init__(
        self, values: Sequence[float], pairs: Sequence[tuple[int, ...]], classes: Sequence[int], *, adds_up: bool
    ) -> None:
        number = max(classes, default=0) + 1
        self.able: list[dict[int, float]] = [{} for _ in range(number + 1)]  # the last for class -1
        self.pairs_of: list[dict[int, int]] = [{} for _ in range(number + 1)]
        for (first, second), each, value in zip(pairs, classes, values, strict=True):
            able, count = self.able[each], self.pairs_of[each]
            if value < able.get(first, math.inf):
                able[first] = value
            if value < able.get(second, math.inf):
                able[second] = value
            count[first] = count.get(first, 0) + 1
            count[second] = count.get(second, 0) + 1
        self.usual = [median_low(able.values()) if able else 0.0 for able in self.able]
        self.expected = self._sums(pairs, classes) if adds_up else self._worst(pairs, classes)

    def without_outliers(self, classes: Sequence[int], bound: float) -> list[float]:
        """What follows for each pair if no host is worse than usual by more than `bound`; all are logarithms."""
        most = [usual + bound for usual in self.usual]
        if all(value <= limit for able, limit in zip(self.able, most, strict=True) for value in able.values()):
            return self.expected
        return [min(value, most[each]) for value, each in zip(self.expected, classes, strict=True)]

    def _worst(self, pairs: Sequence[tuple[int, ...]], classes: Sequence[int]) -> list[float]:
        """The worse host determines the time, as with bandwidths."""
        able = self.able
        return [max(able[each][one], able[each][other]) for (one, other), each in zip(pairs, classes, strict=True)]

    def _sums(self, pairs: Sequence[tuple[int, ...]], classes: Sequence[int]) -> list[float]:
        """The deviations of two bad hosts add up, as delays do."""
        base = [math.exp(usual) for usual in self.usual]
        more = [
            {host: math.exp(value) - least for host, value in able.items()}
            for able, least in zip(self.able, base, strict=True)
        ]
        able = self.able
        return [
            max(able[c][one], able[c][other], math.log(max(base[c], base[c] + more[c][one] + more[c][other])))
            for (one, other), c in zip(pairs, classes, strict=True)
        ]


def pair_outliers(
    repeats: Sequence[Sequence[float]],
    pairs: Sequence[tuple[int, ...]],
    classes: Sequence[int],
    bound: float,
    *,
    adds_up: bool = False,
) -> Compared:
    """Outlying hosts and pairs among pairs of hosts; with fewer than three pairs there is no comparison.

    `repeats` has the figures of every pair, `pairs` their node ranks, `classes` those of `tiers.classes_of`. `bound` is
    the smallest deviation to report, as a logarithm. `adds_up`: the deviations of two bad hosts add up in a time, as
    delays do; else the worse host determines it, as with bandwidths.
    """
    hosts = len({host for pair in pairs for host in pair})
    comparisons = len(pairs) + hosts
    settled = settle(repeats, ALPHA / comparisons)
    model = _PairModel(settled.values, pairs, classes, adds_up=adds_up)
    if len(pairs) < MIN_PAIRS:
        return Compared(outliers=[], expected=model.expected)
    judge = _Judge(settled, model.expected, classes, bound, comparisons)
    bad = [
        (host, each)
        for each, able in enumerate(model.able[:-1])
        for host, value in able.items()
        if model.pairs_of[each][host] >= _MIN_PAIRS_OF_A_HOST and judge.exceeds(value - model.usual[each], each)
    ]
    places: dict[tuple[int, int], list[int]] = {key: [] for key in bad}
    if places:
        for place, ((first, second), each) in enumerate(zip(pairs, classes, strict=True)):
            for key in ((first, each), (second, each)):
                if key in places:
                    places[key].append(place)
    constant = {
        key: own for key, own in places.items() if judge.is_bad_in_every_repeat(own, [model.usual[key[1]]] * len(own))
    }
    found = [
        judge.outlier(host, tuple(own), model.usual[each], model.able[each][host] - model.usual[each], each)
        for (host, each), own in _own_faults(constant, pairs, model).items()
    ]
    found += judge.single_outliers()
    return Compared(outliers=found, expected=model.without_outliers(classes, bound))


def _own_faults(
    bad: Mapping[tuple[int, int], list[int]], pairs: Sequence[tuple[int, ...]], model: _PairModel
) -> dict[tuple[int, int], list[int]]:
    """Bad hosts, by host and class, without those whose partners explain it; the values are the places of their pairs.

    Every partner there is bad in another class, too, where the host itself is as good as others: the hosts of the only
    other rack in the pod of a bad rack have bad pairs within the pod alone.
    """
    classes: dict[int, set[int]] = {}
    for host, each in bad:
        classes.setdefault(host, set()).add(each)
    good = {
        host: {each for each, count in enumerate(model.pairs_of[:-1]) if count.get(host, 0) >= _MIN_PAIRS_OF_A_HOST}
        - own
        for host, own in classes.items()
    }
    return {
        (host, each): own
        for (host, each), own in bad.items()
        if not all(
            each in classes.get(partner, ()) and classes[partner] & good[host]
            for place in own
            for partner in pairs[place]
            if partner != host
        )
    }


def group_outliers(repeats: Sequence[Sequence[float]], bound: float) -> Compared:
    """Outliers among groups of the same size; two are compared with the better one, more with their median.

    `bound` is the smallest deviation to report, as a logarithm.
    """
    groups = len(repeats[0])
    settled = settle(repeats, ALPHA / max(1, groups))
    usual = min(settled.values) if groups == 2 else median_low(settled.values)
    expected = [usual] * groups
    if groups < 2:
        return Compared(outliers=[], expected=expected)
    judge = _Judge(settled, expected, [0] * groups, bound, groups, with_spread=groups > 2)
    return Compared(outliers=judge.single_outliers(), expected=expected)


class _Judge:
    """Holds deviations against the bound and the noise of their class."""

    def __init__(
        self,
        settled: Settled,
        expected: Sequence[float],
        classes: Sequence[int],
        bound: float,
        comparisons: int,
        *,
        with_spread: bool = True,
    ) -> None:
        self._settled, self._expected, self._classes = settled, expected, classes
        self._bound, self._comparisons = bound, comparisons
        self._left = [value - each for value, each in zip(settled.values, expected, strict=True)]
        factor = quantile(ALPHA / comparisons, settled.degrees)
        self._noise = {}
        for each in sorted(set(classes)):
            own = self._left if len(set(classes)) == 1 else list(compress(self._left, [c == each for c in classes]))
            self._noise[each] = max(settled.noise, spread(own) if with_spread else 0.0)
        self._limits = {each: max(bound, factor * noise if noise else 0.0) for each, noise in self._noise.items()}
        self._limits[-1] = math.inf

    def exceeds(self, deviation: float, each: int) -> bool:
        """Whether a deviation (a logarithm) is an outlier's in a class."""
        return deviation > self._limits[each]

    def is_bad_in_every_repeat(self, places: Sequence[int], expected: Sequence[float]) -> bool:
        """Whether these groups are slower than expected (logarithms) in each repeat, most of them."""
        deviations = [
            median([column[place] - each for place, each in zip(places, expected, strict=True)])
            for column in self._settled.repeats
        ]
        return min(deviations) > max(self._bound, _OF_MEDIAN * median(deviations))

    def outlier(self, host: int, places: tuple[int, ...], reference: float, deviation: float, each: int) -> Outlier:
        """An outlier with its p-value over all comparisons; reference and deviation are logarithms."""
        chance = tail(deviation, self._noise[each], self._settled.degrees)
        p_value = min(1.0, self._comparisons * chance)
        return Outlier(host=host, places=places, reference=reference, p_value=p_value)

    def single_outliers(self) -> list[Outlier]:
        """The groups that are outliers by themselves."""
        limits = self._limits
        suspects = [
            place
            for place, (left, each) in enumerate(zip(self._left, self._classes, strict=True))
            if left > limits[each]
        ]
        return [
            self.outlier(-1, (place,), self._expected[place], self._left[place], self._classes[place])
            for place in suspects
            if self.is_bad_in_every_repeat([place], [self._expected[place]])
        ]
