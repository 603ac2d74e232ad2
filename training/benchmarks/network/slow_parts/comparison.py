"""Compares the groups of one round with each other: which take longer than their peers, beyond bound and noise.

Peers are the groups of the same size (and tier, and kinds of hosts) in the same round, so that traffic, drift and the
fabric are alike. A figure is the logarithm of a time, its value the median over the repeats. The noise is the larger of
the scatter from repeat to repeat and of the spread of the peers, both robust; the limit is a quantile of Student's t.

Sources: Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation" (1993), for robust scales; Abramowitz and
Stegun, "Handbook of Mathematical Functions", 26.7.5, for the quantile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import combinations
from statistics import NormalDist, median, median_low

from training.benchmarks.network.slow_parts.findings import SymptomName

# One repeat of a round: by group (its members' places) the microseconds of an operation that shows each symptom.
Times = Mapping[tuple[int, ...], Mapping[SymptomName, float]]
# Probability of a suspicion by chance in one round; a finding needs several rounds.
_ALPHA = 0.01
_MAD_SCALE = 1.4826
# A quarter of normal values lies within so many standard deviations of their median: 1 / 0.3186.
_OF_NEAREST = 3.138
# The standard error of a median of n normal values is sqrt(pi / 2n) standard deviations.
_OF_MEDIAN = math.sqrt(math.pi / 2)
# Peers that suffice without those of earlier rounds, and the earlier figures kept for each size of a group.
_ENOUGH_PEERS, _KEPT = 3, 64


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanRound:
    """Disjoint groups of hosts that measure at once, and the purpose of the round in words."""

    purpose: str
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Excess:
    """By how much a group takes longer: `ratio` of the times (above 1), and `deviations`, in those of the noise."""

    symptom: SymptomName
    ratio: float
    deviations: float


class Judge:
    """Judges rounds. Bounds in percent: how much slower large messages are, how much longer small ones take."""

    def __init__(self, *, slow_percent: float, late_percent: float) -> None:
        self._bounds: dict[SymptomName, float] = {
            "bandwidth": -math.log1p(-slow_percent / 100),
            "latency": math.log1p(late_percent / 100),
        }
        self._earlier: dict[tuple[SymptomName, Hashable], list[float]] = {}

    def suspicious(
        self,
        groups: Sequence[tuple[int, ...]],
        tests: Sequence[tuple[int, ...]],
        times: Sequence[Times],
        like: Callable[[tuple[int, ...]], Hashable] = len,
    ) -> dict[tuple[int, ...], tuple[Excess, ...]]:
        """Those of `tests` that take longer than their peers; `times` holds one mapping for each repeat.

        Peers are the groups that are no tests, or all groups where all are tests; and that are `like` a test, which are
        those of its size.
        """
        found: dict[tuple[int, ...], list[Excess]] = {}
        chosen_tests = set(tests)
        for symptom in self._bounds:
            for own in dict.fromkeys(map(like, tests)):
                alike = [group for group in groups if like(group) == own and _is_measured(group, symptom, times)]
                chosen = [group for group in alike if group in chosen_tests]
                if chosen:
                    for group, excess in self._compared(symptom, own, alike, chosen, times):
                        found.setdefault(group, []).append(excess)
        return {group: tuple(excesses) for group, excesses in found.items()}

    def together(self, every: Sequence[Sequence[Excess]]) -> tuple[Excess, ...]:
        """The excesses of several rounds as one for each symptom that most of them show: medians, the worst first."""
        by_symptom: dict[SymptomName, list[Excess]] = {}
        for excess in (each for of_round in every for each in of_round):
            by_symptom.setdefault(excess.symptom, []).append(excess)
        joined = [
            Excess(
                symptom=symptom,
                ratio=median(each.ratio for each in found),
                deviations=median(each.deviations for each in found) * math.sqrt(len(found)),
            )
            for symptom, found in by_symptom.items()
            if 2 * len(found) > len(every)
        ]
        return tuple(sorted(joined, key=lambda each: -each.ratio))

    def _compared(
        self,
        symptom: SymptomName,
        like: Hashable,
        alike: Sequence[tuple[int, ...]],
        chosen: Sequence[tuple[int, ...]],
        times: Sequence[Times],
    ) -> list[tuple[tuple[int, ...], Excess]]:
        columns = [[math.log(repeat[group][symptom]) for group in alike] for repeat in times]
        controls = _controls(alike, set(chosen))
        drifts = _drifts(columns, controls)
        values = [
            [column[place] - drift for column, drift in zip(columns, drifts, strict=True)]
            for place in range(len(alike))
        ]
        level = median(drifts)
        typical = {group: median(own) + level for group, own in zip(alike, values, strict=True)}
        peers = [typical[alike[place]] for place in controls]
        known = self._earlier.setdefault((symptom, like), [])
        if len(peers) < _ENOUGH_PEERS:
            peers = [*peers, *known]
        usual = sorted(peers)[(len(peers) - 1) // 3]
        sigma, degrees = _noise(values, peers, usual)
        limit = max(self._bounds[symptom], _quantile(_ALPHA / len(chosen), degrees) * sigma)
        over = {group: typical[group] - usual for group in alike}
        known += [typical[group] for group in alike if over[group] <= limit]
        del known[:-_KEPT]
        return [
            (group, Excess(symptom=symptom, ratio=math.exp(over[group]), deviations=over[group] / max(sigma, 1e-9)))
            for group in chosen
            if over[group] > limit
        ]


def _controls(alike: Sequence[tuple[int, ...]], tests: Set[tuple[int, ...]]) -> list[int]:
    """The places of the groups that are no tests, or of all groups where all are tests."""
    return [place for place, group in enumerate(alike) if group not in tests] or [*range(len(alike))]


def _drifts(columns: Sequence[Sequence[float]], controls: Sequence[int]) -> list[float]:
    """By repeat what all groups share, which is no scatter: the median of the controls, where there are enough."""
    if len(controls) <= 2:
        return [0.0] * len(columns)
    return [median_low([column[place] for place in controls]) for column in columns]


def _is_measured(group: tuple[int, ...], symptom: SymptomName, times: Sequence[Times]) -> bool:
    return all(repeat.get(group, {}).get(symptom, 0.0) > 0 for repeat in times)


def _noise(values: Sequence[Sequence[float]], peers: Sequence[float], usual: float) -> tuple[float, int]:
    """Standard deviation of a group's median, and its degrees of freedom."""
    repeats = len(values[0])
    spread = _OF_NEAREST * sorted(abs(value - usual) for value in peers)[(len(peers) - 1) // 4]
    if repeats < 2:
        return spread, max(1, len(peers) - 1)
    pairs = [abs(one - other) for own in values for one, other in combinations(own, 2)]
    scatter = _MAD_SCALE * median(pairs) / math.sqrt(2) * min(1.0, _OF_MEDIAN / math.sqrt(repeats))
    return max(spread, scatter), len(values) * (repeats - 1)


def _quantile(chance: float, degrees: int) -> float:
    """Quantile of Student's t at 1 - `chance`, to the second order in 1 / degrees."""
    z = NormalDist().inv_cdf(1 - chance)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
