"""Judges whether a host, a path or a group is slower than its peers, beyond the user's bound and beyond noise.

A figure is the logarithm of a time: larger is worse, and differences are relative.
"""

import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import compress
from statistics import median
from typing import Self

from protocol.finding import SymptomName
from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.noise import Settled, limit, spread, tail

LATE_PERCENT = 50.0
# A repeat is bad if it deviates by the bound and by this share of the median deviation: a constant fault is constant,
# while interference may hit the same group in most repeats by chance.
_OF_MEDIAN = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """The smallest loss of bandwidth of large messages, and increase of the time of small ones, to report: percent."""

    slow_percent: float
    late_percent: float = LATE_PERCENT

    def of(self, symptom: SymptomName) -> float:
        """The bound of the latency or of the bandwidth, a logarithm."""
        late, slow = math.log1p(self.late_percent / 100), -math.log1p(-self.slow_percent / 100)
        return late if symptom == "latency" else slow


class Judge:
    """Holds the figures of groups against what is expected of them, the bound and the noise of their class.

    `expected` and `bound` are logarithms, `comparisons` share `alpha`, the probability (0 to 1) of a false alarm.
    `classes`: of each group, all of one if not given; those of -1 are not judged. `spreads`: the standard deviation of
    the figures that are as expected, by class; that of what the expectation leaves unexplained if not given.
    """

    def __init__(
        self,
        settled: Settled,
        expected: Sequence[float],
        bound: float,
        comparisons: int,
        *,
        classes: Sequence[int] = (),
        spreads: Mapping[int, float] | None = None,
        alpha: float = ALPHA,
    ) -> None:
        self._settled, self._bound, self._comparisons = settled, bound, comparisons
        self._chance, self.repeats = alpha / comparisons, len(settled.repeats)
        self.expected, self.classes = expected, classes or [0] * len(expected)
        self.left = [value - each for value, each in zip(settled.values, expected, strict=True)]
        self._spreads = self._own_spreads() if spreads is None else spreads
        self._hold_against(settled.noise)

    def _own_spreads(self) -> dict[int, float]:
        several = sorted(set(self.classes))
        if len(several) == 1:
            return {several[0]: spread(self.left)}
        return {each: spread([*compress(self.left, [own == each for own in self.classes])]) for each in several}

    def _hold_against(self, noise: float) -> None:
        """Set the limits by the noise from repeat to repeat."""
        degrees = self._settled.degrees
        self.noise = {each: max(noise, own) for each, own in self._spreads.items()}
        self._limits = {each: limit(self._bound, own, degrees, self._chance) for each, own in self.noise.items()}
        self._limits[-1] = math.inf

    def without_extremes(self) -> Self:
        """The same judge, whose noise has no extreme repeats."""
        calm = copy(self)
        calm._hold_against(self._settled.calm)
        return calm

    def exceeds(self, deviation: float, each: int) -> bool:
        """Whether a deviation (a logarithm) is an outlier's in a class."""
        return deviation > self._limits[each]

    def p_value(self, deviation: float, each: int) -> float:
        """The probability (0 to 1) that noise brings such a deviation, a logarithm, in any of the comparisons."""
        return min(1.0, self._comparisons * tail(deviation, self.noise[each], self._settled.degrees))

    def is_bad_in_every_repeat(self, places: Sequence[int], expected: Sequence[float]) -> bool:
        """Whether these groups are slower than expected (logarithms) in each repeat, most of them."""
        deviations = [
            median([column[place] - each for place, each in zip(places, expected, strict=True)])
            for column in self._settled.repeats
        ]
        return min(deviations) > max(self._bound, _OF_MEDIAN * median(deviations))

    def outliers(self) -> list[int]:
        """The places of the groups that exceed their limit by themselves, in the median over the repeats."""
        limits = self._limits
        both = enumerate(zip(self.left, self.classes, strict=True))
        return [place for place, (left, each) in both if left > limits[each]]
