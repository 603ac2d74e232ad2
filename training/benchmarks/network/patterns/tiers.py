"""Divides hosts into the blocks of a tiered fabric, from a topology or from the measurements, and pairs into classes.

Pairs are compared with pairs of their class alone: those that meet at the same tier (rack, pod, core), between hosts of
the same kinds, and of which as many cross the uplinks of each of their blocks at the same time.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

# Loads that differ by less than this factor are alike.
_LOAD_FACTOR = 1.1
MIN_CLASS = 3
LEARNT = "learnt from these measurements"

Pair = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """The block of each host by node rank, one mapping a tier from the innermost outwards; `source` says from what.

    A host that is missing from a tier's mapping has no block there, and is outside everybody's. `names` has those of
    the blocks by tier and number, such as "rack leaf0", where a topology tells them. `is_loaded`: the pairs of a round
    that leave a block share its uplinks. `kinds` has what hosts are, such as their accelerators, where they differ.
    """

    blocks: tuple[Mapping[int, int], ...] = ()
    source: str = ""
    names: tuple[Mapping[int, str], ...] = ()
    is_loaded: bool = True
    kinds: Mapping[int, str] = field(default_factory=dict)

    def levels(self, pairs: Sequence[Pair]) -> list[int]:
        """The innermost tier in which two hosts, by node rank, share a block; the number of tiers if in none."""
        found = [len(self.blocks)] * len(pairs)
        for level, block in reversed([*enumerate(self.blocks)]):
            own = _AloneOtherwise(block)
            found = [
                level if own[one] == own[other] else outer for (one, other), outer in zip(pairs, found, strict=True)
            ]
        return found

    def name(self, tier: int, number: int) -> str:
        """The name of a block: that of its switch, else its number from 1."""
        own = self.names[tier].get(number, "") if tier < len(self.names) else ""
        is_learnt = self.source == LEARNT
        return own or f"{'suspect ' * is_learnt}{'rack' if tier == 0 else 'group of racks'} {number + 1}"

    def members(self, tier: int) -> dict[int, tuple[int, ...]]:
        """The node ranks of each block of a tier."""
        found: dict[int, list[int]] = {}
        for host, number in sorted(self.blocks[tier].items()):
            found.setdefault(number, []).append(host)
        return {number: tuple(hosts) for number, hosts in found.items()}

    def summary(self) -> str:
        """The tiers in words."""
        sizes = [sorted(Counter(block.values()).values()) for block in self.blocks]
        told = [f"{len(each)} blocks of {_range(each)} hosts" for each in sizes]
        unseen = "; of two blocks, nothing tells whether the uplinks of one are bad" * (len(sizes[-1]) == 2)
        return f"pairs are compared within tiers: {', in '.join(told)} ({self.source}){unseen}"


class _AloneOtherwise(dict[int, int]):
    """The block of each host; one that has none gets a number that nobody else has."""

    def __missing__(self, host: int) -> int:
        self[host] = -1 - host
        return self[host]


def _range(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Classes:
    """The class of each pair, numbered from 0, -1 for one that too few are like to compare it; the tier of each class.

    The tier is that in which the pairs of the class meet, from 0 outwards.
    """

    of_pairs: Sequence[int]
    tiers: Sequence[int]


def classes_of(pairs: Sequence[Pair], rounds: Sequence[int], tiers: Tiers, *, with_load: bool) -> Classes:
    """The classes of pairs of which each is compared with the others of its class.

    `with_load`: the pairs of a round share uplinks, as far as bandwidth is measured.
    """
    if not tiers.blocks and not tiers.kinds:
        return Classes(of_pairs=[0] * len(pairs), tiers=[0])
    levels = tiers.levels(pairs)
    keys = _alike(pairs, levels, tiers.kinds)
    if with_load and tiers.is_loaded:
        ends = (0, 1) if any(first > second for first, second in pairs) else (0, 0)
        for tier, block in reversed([*enumerate(tiers.blocks)]):
            keys = _with_loads(keys, _loads(pairs, rounds, levels, block, tier, ends))
    return _numbered(keys, levels)


def _alike(pairs: Sequence[Pair], levels: Sequence[int], kinds: Mapping[int, str]) -> Sequence[int]:
    """A number for the tier of each pair, and its hosts' kinds where there are `kinds`, in their order."""
    if not kinds:
        return levels
    every = sorted(set(kinds.values()))
    number = {kind: place for place, kind in enumerate(every)}
    own = {host: number[kind] for host, kind in kinds.items()}
    return [
        (level * len(every) + min(own[one], own[other])) * len(every) + max(own[one], own[other])
        for level, (one, other) in zip(levels, pairs, strict=True)
    ]


def _with_loads(keys: Sequence[int], loads: Sequence[int]) -> list[int]:
    """The numbers of pairs that are told apart by their loads, too, in the order of (number, load)."""
    wide = max(loads, default=0) + 1
    return [key * wide + load for key, load in zip(keys, loads, strict=True)]


def _loads(
    pairs: Sequence[Pair],
    rounds: Sequence[int],
    levels: Sequence[int],
    block: Mapping[int, int],
    tier: int,
    ends: tuple[int, int],
) -> list[int]:
    """By how many pairs of its round each of its two blocks of a tier is left, in steps of _LOAD_FACTOR, as a number.

    Of both, the less busy one first: uplinks that are too few show only where their own block is busy. `ends` differ
    where messages go from the first host to the second alone: a block's uplinks carry either way apart.
    """
    # A number for each round, end and block; 0 for a host without a block or a pair that does not leave its own.
    wide = 2 * (max(block.values(), default=0) + 1)
    missing = -1 - wide * (max(rounds, default=0) + 1)
    number = dict.fromkeys(chain.from_iterable(pairs), missing) | {host: 1 + 2 * each for host, each in block.items()}
    keys = [
        [
            max(0, this * wide + number[host] + end) if level > tier else 0
            for host, this, level in zip(map(itemgetter(at), pairs), rounds, levels, strict=True)
        ]
        for at, end in enumerate(ends)
    ]
    leaving = Counter(keys[0])
    leaving.update(keys[1])
    steps = {key: _step(count) if key else 0 for key, count in leaving.items()}
    most = max(steps.values(), default=0) + 1
    ordered = ends[0] != ends[1]
    found = zip(map(steps.__getitem__, keys[0]), map(steps.__getitem__, keys[1]), strict=True)
    return [one * most + other if ordered or one <= other else other * most + one for one, other in found]


def _step(load: int) -> int:
    return round(math.log(max(1, load)) / math.log(_LOAD_FACTOR))


def _numbered(keys: Sequence[int], levels: Sequence[int]) -> Classes:
    """The classes of the pairs with equal keys, all of one tier; none for those that few have."""
    counts = Counter(keys)
    number = {key: place for place, key in enumerate(key for key in sorted(counts) if counts[key] >= MIN_CLASS)}
    tier = dict(zip(keys, levels, strict=True))
    return Classes(of_pairs=[number.get(key, -1) for key in keys], tiers=[tier[key] for key in number])
