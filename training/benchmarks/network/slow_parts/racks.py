"""Finds blocks of hosts (racks, pods) that are outliers among their siblings: the test of hosts, one tier further out.

The pairs between two blocks are one pair of blocks, with their median. A block is bad if it is slow to all others, see
`outliers`; its pairs then tell nothing of the hosts at their ends. Of two blocks nobody knows which is bad.

What bandwidth alone shows of such a block is learnt as no tier (see `learning.combined`), or it would be compared with
nobody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median_low

from training.benchmarks.network.patterns.tiers import Classes, Pair, Tiers
from training.benchmarks.network.slow_parts.outliers import Compared, Outlier, pair_outliers
from training.benchmarks.network.slow_parts.readings import DEVICES_PER_HOST, picked

# Of fewer blocks, or of smaller ones, none is judged.
LEAST_BLOCKS, LEAST_BLOCK_HOSTS = 3, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class BadBlock:
    """A block of a tier that is bad, on one rail (-1: on all), and the outlier; its places are those of host pairs."""

    tier: int
    number: int
    rail: int
    outlier: Outlier


def bad_blocks(
    repeats: Sequence[Sequence[float]],
    members: Sequence[Pair],
    rails: Sequence[int],
    classes: Classes,
    tiers: Tiers,
    bound: float,
    *,
    adds_up: bool,
) -> tuple[list[BadBlock], Classes]:
    """The bad blocks, the widest first, and the classes without the pairs that these explain.

    `repeats` has the figures (logarithms of a time) of every pair, `members` their node ranks, `rails` their rails (-1:
    none); `bound` and `adds_up` are as for `pair_outliers`.
    """
    found: list[BadBlock] = []
    of_pairs = [*classes.of_pairs]
    for tier in reversed(range(len(tiers.blocks))):
        hosts = {number: len(own) for number, own in tiers.members(tier).items()}
        if len(hosts) < LEAST_BLOCKS:
            continue
        between = _between(members, rails, of_pairs, tiers.blocks[tier])
        compared = _compared(repeats, between, classes.tiers, bound, adds_up=adds_up)
        for each in (outlier for outlier in compared.outliers if outlier.host >= 0):
            number, rail = divmod(each.host, DEVICES_PER_HOST)
            if hosts[number] < LEAST_BLOCK_HOSTS:
                continue
            own = [places for (pair, _), places in between.items() if each.host in pair]
            places = tuple(place for of_pair in own for place in of_pair)
            for place in places:
                of_pairs[place] = -1
            outlier = replace(each, host=-1, places=places)
            found.append(BadBlock(tier=tier, number=number, rail=rail - 1, outlier=outlier))
    return found, replace(classes, of_pairs=of_pairs)


# Two blocks and the class of their pairs, and the places of these.
_Between = Mapping[tuple[Pair, int], Sequence[int]]


def _between(
    members: Sequence[Pair], rails: Sequence[int], classes: Sequence[int], block: Mapping[int, int]
) -> _Between:
    """The pairs between every two blocks of a tier, by class; a block on a rail has a number of its own."""
    wide, several = DEVICES_PER_HOST, max(classes, default=0) + 1
    own = {host: block.get(host, -1) for host in set(chain.from_iterable(members))}
    blocks = max(own.values(), default=0) + 1
    found: defaultdict[int, list[int]] = defaultdict(list)
    for place, ((first, second), rail, each) in enumerate(zip(members, rails, classes, strict=True)):
        one, other = own[first], own[second]
        if one != other and each >= 0 and one >= 0 and other >= 0:
            pair = one * blocks + other if one < other else other * blocks + one
            found[(pair * wide + rail + 1) * several + each].append(place)
    result: dict[tuple[Pair, int], list[int]] = {}
    for key, places in found.items():
        of_rail, each = divmod(key, several)
        pair, number = divmod(of_rail, wide)
        result[tuple(block * wide + number for block in divmod(pair, blocks)), each] = places
    return result


def _compared(
    repeats: Sequence[Sequence[float]], between: _Between, tiers: Sequence[int], bound: float, *, adds_up: bool
) -> Compared:
    """The blocks compared with each other."""
    if not between:
        return Compared(outliers=[], expected=[])
    middles = [[median_low(picked(column, places)) for places in between.values()] for column in repeats]
    classes = Classes(of_pairs=[each for _, each in between], tiers=tiers)
    return pair_outliers(middles, [pair for pair, _ in between], classes, bound, adds_up=adds_up)
