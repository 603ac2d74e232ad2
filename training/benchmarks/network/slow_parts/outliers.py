"""Finds hosts, pairs and groups that are outliers among their peers in a figure that is measured repeatedly.

A figure is the logarithm of a time: larger is worse, and differences are relative. Pairs are compared within a class
(see `tiers`) and modelled by the best figure of each host there, that of its best pair. A host all of whose pairs are
bad has a bad best pair and is compared with the other hosts; a pair that is worse than both its hosts achieve elsewhere
points to the path between them. An outlier is beyond the user's bound and beyond noise in the median over the repeats,
and bad in every single repeat: in most of the host's pairs, or in the pair itself. An iteration or a pair that went
well acquits nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median_low

from training.benchmarks.network.patterns.tiers import Classes
from training.benchmarks.network.slow_parts.chance import ALPHA, chance
from training.benchmarks.network.slow_parts.judge import Judge
from training.benchmarks.network.slow_parts.noise import settle
from training.benchmarks.network.slow_parts.pair_model import PairModel

# A host is bad if at least this share of its pairs is that would show its fault.
_LEAST_SHARE = 0.5
MIN_PAIRS = 3
# With a single pair in a class a host cannot be told from the path.
_MIN_PAIRS_OF_A_HOST = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Outlier:
    """A host or a group (its place in the readings), its class, the figure of its peers, and its p-value.

    `places` are those of the groups that show it; `host` is a node rank, -1 for a group. `slow` of the host's `pairs`
    are as bad.
    """

    host: int
    places: tuple[int, ...]
    reference: float
    p_value: float
    slow: int = 0
    pairs: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """The outliers, and the figure (logarithm of a time) that each group would have if no host were an outlier."""

    outliers: list[Outlier]
    expected: list[float]


def pair_outliers(
    repeats: Sequence[Sequence[float]],
    pairs: Sequence[tuple[int, ...]],
    classes: Classes,
    bound: float,
    *,
    adds_up: bool = False,
) -> Compared:
    """Outlying hosts and pairs among pairs of hosts; with fewer than three pairs there is no comparison.

    `repeats` has the figures of every pair, `pairs` their node ranks, `classes` those of `tiers.classes_of`. `bound` is
    the smallest deviation to report, as a logarithm. `adds_up`: the deviations of two bad hosts add up in a time, as
    delays do; else the worse host determines it, as with bandwidths.
    """
    hosts = len(set(chain.from_iterable(pairs)))
    comparisons = len(pairs) + hosts
    settled = settle(repeats, ALPHA / comparisons)
    of_pairs = classes.of_pairs
    model = PairModel(settled.values, pairs, of_pairs, adds_up=adds_up)
    if len(pairs) < MIN_PAIRS:
        return Compared(outliers=[], expected=model.expected)
    judge = Judge(settled, model.expected, bound, comparisons, classes=of_pairs)
    # Interference that hits one pair in all repeats by chance does not hit all pairs of a host.
    calm = judge.without_extremes()
    constant = {
        (host, each): own
        for (host, each), own in _slow_hosts(pairs, of_pairs, model, calm).items()
        if (
            settled.is_calm(len(own) - 1, ALPHA / comparisons)
            or judge.exceeds(model.able[each][host] - model.usual[each], each)
        )
        and judge.is_bad_in_every_repeat(own, [model.usual[each]] * len(own))
    }
    found, acquitted = list[Outlier](), list[tuple[int, int]]()
    if constant:
        paths = _Paths(pairs, classes, model, calm, {host for host, _ in constant})
    for (host, each), own in constant.items():
        usual = model.usual[each]
        slow, of_host, of_paths = paths.of_host(host, each)
        if hosts * of_paths < ALPHA:
            p_value = max(calm.p_value(model.able[each][host] - usual, each), hosts * of_paths)
            found.append(
                Outlier(host=host, places=tuple(own), reference=usual, p_value=p_value, slow=slow, pairs=of_host)
            )
        else:
            acquitted.append((host, each))
    if acquitted:
        model.acquit(acquitted)
        judge = Judge(settled, model.expected, bound, comparisons, classes=of_pairs)
    found += _single(judge)
    return Compared(outliers=found, expected=model.without_outliers(of_pairs, bound))


def _slow_hosts(
    pairs: Sequence[tuple[int, ...]], of_pairs: Sequence[int], model: PairModel, judge: Judge
) -> dict[tuple[int, int], list[int]]:
    """By host and class, where even the host's best pair is an outlier, the places of its pairs of this class."""
    places: dict[tuple[int, int], list[int]] = {
        (host, each): []
        for each, able in enumerate(model.able[:-1])
        for host, value in able.items()
        if judge.exceeds(value - model.usual[each], each)
    }
    if places:
        for place, ((first, second), each) in enumerate(zip(pairs, of_pairs, strict=True)):
            for key in ((first, each), (second, each)):
                if key in places:
                    places[key].append(place)
    return {key: own for key, own in places.items() if len(own) >= _MIN_PAIRS_OF_A_HOST}


class _Paths:
    """The chance that a host's slow paths are slow each by itself, as often as those that touch none of the suspects.

    The paths are those of the tier in which a suspect is bad and of those beyond: nearer hosts may be reached another
    way. A path is one draw. Where no other path is slow, nothing says that paths stay slow over the new connections of
    each repeat, and each repeat is a draw.
    """

    def __init__(
        self, pairs: Sequence[tuple[int, ...]], classes: Classes, model: PairModel, judge: Judge, suspects: set[int]
    ) -> None:
        self._classes, self._model, self._judge = classes, model, judge
        self._own: dict[int, list[int]] = {host: [] for host in suspects}
        # Of the others by class: all, and the slow ones.
        self._others, self._slow = [0] * len(classes.tiers), [0] * len(classes.tiers)
        for place, ((first, second), each) in enumerate(zip(pairs, classes.of_pairs, strict=True)):
            if first in suspects or second in suspects:
                for host in suspects.intersection((first, second)):
                    self._own[host].append(place)
            elif each >= 0:
                self._others[each] += 1
                self._slow[each] += self._is_slow(place)

    def of_host(self, host: int, each: int) -> tuple[int, int, float]:
        """(slow pairs of the host, all of them, probability of so many) of a host that is bad in a class."""
        every = self._own[host]
        tiers, of_pairs = self._classes.tiers, self._classes.of_pairs
        beyond = {other for other in map(of_pairs.__getitem__, every) if other >= 0 and tiers[other] >= tiers[each]}
        showing = {other for other in beyond if self._judge.exceeds(self._model.shown(host, each, other), other)}
        own = [self._is_slow(place) for place in every if of_pairs[place] in showing]
        others, bad = (sum(count[other] for other in showing) for count in (self._others, self._slow))
        draws = 1 if bad else self._judge.repeats
        probability = chance(draws * sum(own), draws * len(own), (bad + 1) / (draws * others + 2))
        slow = sum(map(self._is_slow, every))
        return slow, len(every), probability if sum(own) >= _LEAST_SHARE * len(own) else 1.0

    def _is_slow(self, place: int) -> bool:
        each = self._classes.of_pairs[place]
        return self._judge.exceeds(self._model.values[place] - self._model.usual[each], each)


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
    judge = Judge(settled, expected, bound, groups, spreads={0: 0.0} if groups == 2 else None)
    return Compared(outliers=_single(judge), expected=expected)


def _single(judge: Judge) -> list[Outlier]:
    """The groups that are outliers by themselves."""
    found = []
    for place in judge.outliers():
        usual, deviation, each = judge.expected[place], judge.left[place], judge.classes[place]
        if judge.is_bad_in_every_repeat([place], [usual]):
            p_value = judge.p_value(deviation, each)
            found.append(Outlier(host=-1, places=(place,), reference=usual, p_value=p_value))
    return found
