"""Models the time of a pair by the best that each of its hosts reaches in a class of pairs.

A figure is the logarithm of a time. Two healthy hosts reach what each reaches in its best pair; of bandwidths the worse
host determines the time, the delays of two late hosts add up.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median_low


class PairModel:
    """The best figure of each host in each class, the usual best figure there, and what follows for each pair."""

    def __init__(
        self, values: Sequence[float], pairs: Sequence[tuple[int, ...]], classes: Sequence[int], *, adds_up: bool
    ) -> None:
        self.values, self.adds_up = values, adds_up
        self._pairs, self._classes = pairs, classes
        number = max(classes, default=0) + 1
        self.able: list[dict[int, float]] = [{} for _ in range(number + 1)]  # the last for class -1
        of_classes, most = self.able, math.inf
        for (first, second), each, value in zip(pairs, classes, values, strict=True):
            able = of_classes[each]
            if value < able.get(first, most):
                able[first] = value
            if value < able.get(second, most):
                able[second] = value
        self.usual = [median_low(able.values()) if able else 0.0 for able in self.able]
        self.expected = self._expected()

    def acquit(self, hosts: Iterable[tuple[int, int]]) -> None:
        """Expect of these hosts, each in a class, what is usual there, and of those that they alone meet there."""
        acquitted = set(hosts)
        pairs_of = Counter((host, each) for pair, each in zip(self._pairs, self._classes, strict=True) for host in pair)
        for pair, each in zip(self._pairs, self._classes, strict=True):
            if any((host, each) in acquitted for host in pair):
                able = self.able[each]
                able |= {h: self.usual[each] for h in pair if (h, each) in acquitted or pairs_of[h, each] == 1}
        self.expected = self._expected()

    def _expected(self) -> list[float]:
        return (self._sums if self.adds_up else self._worst)(self._pairs, self._classes)

    def without_outliers(self, classes: Sequence[int], bound: float) -> list[float]:
        """The expectation for each pair if no host is worse than usual by more than `bound`; all are logarithms."""
        most = [usual + bound for usual in self.usual]
        if all(value <= limit for able, limit in zip(self.able, most, strict=True) for value in able.values()):
            return self.expected
        return [min(value, most[each]) for value, each in zip(self.expected, classes, strict=True)]

    def shown(self, host: int, each: int, other: int) -> float:
        """By how much a host's pairs of another class would exceed the usual if it is as bad as in its own; logarithms.

        What delays it there delays it everywhere; a slower path hides what is slow before it.
        """
        able, usual, elsewhere = self.able[each][host], self.usual[each], self.usual[other]
        if not self.adds_up:
            return able - elsewhere
        return math.log1p((math.exp(able) - math.exp(usual)) / math.exp(elsewhere))

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
