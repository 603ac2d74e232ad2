"""Compares the groups of one round of a search with each other: which take longer than their peers.

Peers are the groups of the same size (and tier, and kinds of hosts) in the same round, so that traffic, drift and the
fabric are alike. The judge is that of all patterns; the spread that it knows is that of the nearest peers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from statistics import median

from protocol.finding import SymptomName
from training.benchmarks.network.slow_parts.chance import alpha_of_round
from training.benchmarks.network.slow_parts.judge import Bounds, Judge
from training.benchmarks.network.slow_parts.noise import settle

# One repeat of a round: by group (its members' places) the microseconds of an operation that shows each symptom.
Times = Mapping[tuple[int, ...], Mapping[SymptomName, float]]
# Known-good hosts with which a suspect is measured, one a round; most of these rounds make a finding.
PARTNERS = 3
_ALPHA = alpha_of_round(PARTNERS)
# A quarter of normal values lies within so many standard deviations of their median: 1 / 0.3186.
_OF_NEAREST = 3.138
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


_SYMPTOMS: tuple[SymptomName, ...] = ("bandwidth", "latency")


class PeerComparison:
    """Compares the groups of round after round, where a round has few with those of earlier ones, too."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
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
        for symptom in _SYMPTOMS:
            for own in dict.fromkeys(map(like, tests)):
                alike = [group for group in groups if like(group) == own and _is_measured(group, symptom, times)]
                chosen = [group for group in alike if group in chosen_tests]
                if chosen:
                    for group, excess in self._compared(symptom, own, alike, chosen, times):
                        found.setdefault(group, []).append(excess)
        return {group: tuple(excesses) for group, excesses in found.items()}

    def _compared(
        self,
        symptom: SymptomName,
        like: Hashable,
        alike: Sequence[tuple[int, ...]],
        chosen: Sequence[tuple[int, ...]],
        times: Sequence[Times],
    ) -> list[tuple[tuple[int, ...], Excess]]:
        settled = settle(
            [[math.log(repeat[group][symptom]) for group in alike] for repeat in times], _ALPHA / len(chosen)
        )
        typical = dict(zip(alike, settled.values, strict=True))
        peers = [typical[group] for group in _controls(alike, set(chosen))]
        known = self._earlier.setdefault((symptom, like), [])
        if len(alike) == 1 and not known:
            return []  # compared with nobody, and no peer of its own later times
        if len(peers) < _ENOUGH_PEERS:
            peers = [*peers, *known]
        usual = sorted(peers)[(len(peers) - 1) // 3]
        spread = _OF_NEAREST * sorted(abs(value - usual) for value in peers)[(len(peers) - 1) // 4]
        if not settled.degrees:  # measured once: the spread is all that is known of the noise
            settled = replace(settled, calm=0.0, degrees=max(1, len(peers) - 1))
        bound, expected = self._bounds.of(symptom), [usual] * len(alike)
        judge = Judge(settled, expected, bound, len(chosen), spreads={0: spread}, alpha=_ALPHA).without_extremes()
        slow = {alike[place] for place in judge.outliers()}
        known += [typical[group] for group in alike if group not in slow]
        del known[:-_KEPT]
        over = {group: typical[group] - usual for group in chosen if group in slow}
        noise = max(judge.noise[0], 1e-9)
        return [
            (group, Excess(symptom=symptom, ratio=math.exp(own), deviations=own / noise)) for group, own in over.items()
        ]


def together(every: Sequence[Sequence[Excess]]) -> tuple[Excess, ...]:
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


def _controls(alike: Sequence[tuple[int, ...]], tests: Set[tuple[int, ...]]) -> Sequence[tuple[int, ...]]:
    """The groups that are no tests, or all groups where all are tests."""
    return [group for group in alike if group not in tests] or alike


def _is_measured(group: tuple[int, ...], symptom: SymptomName, times: Sequence[Times]) -> bool:
    return all(repeat.get(group, {}).get(symptom, 0.0) > 0 for repeat in times)
