"""Divides hosts into the blocks of a tiered fabric, from a topology or from the measurements, and pairs into classes.

Pairs are compared with pairs of their class alone: those that meet at the same tier (rack, pod, core), and of which as
many cross the uplinks of a block at the same time. Learnt tiers come from the distribution of the pairs' times: where
it has a valley, the faster pairs must make up blocks of hosts, fast within and slow to each other; else it is no tier.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

MAX_TIERS = 3
# A valley is twice as wide, in logarithms of a time, and holds at most this share of the pairs on its thinner side.
_HALF_WIDTH = 0.035
_VALLEY_SHARE = 0.02
# The medians of two tiers differ by this many standard deviations at least.
_NOISES = 6.0
# The share of fast pairs within a block, at least, and between blocks, at most.
_WITHIN, _BETWEEN = 0.9, 0.1
# A host belongs to a block if it is fast with this share of the hosts that the block's first host is fast with.
_COMMON = 0.6
# Loads that differ by less than this factor are alike.
_LOAD_FACTOR = 1.1
MIN_CLASS = 3
LEARNT = "learnt from these measurements"
# A block so many times larger than any other of its tier is no rack.
_HUGE = 3

Pair = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tiers:
    """The block of each host by node rank, one mapping a tier from the innermost outwards; `source` says from what.

    A host that is missing from a tier's mapping has no block there, and is outside everybody's. `names` has those of
    the blocks by tier and number, such as "rack leaf0", where a topology tells them. `is_loaded`: the pairs of a round
    that leave a block share its uplinks.
    """

    blocks: tuple[Mapping[int, int], ...] = ()
    source: str = ""
    names: tuple[Mapping[int, str], ...] = ()
    is_loaded: bool = True

    def level(self, first: int, second: int) -> int:
        """The innermost tier in which two hosts, by node rank, share a block; the number of tiers if in none."""
        for level, block in enumerate(self.blocks):
            own = block.get(first)
            if own is not None and own == block.get(second):
                return level
        return len(self.blocks)

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
    if not tiers.blocks:
        return Classes(of_pairs=[0] * len(pairs), tiers=[0])
    levels = [tiers.level(*pair) for pair in pairs]
    keys: list[tuple[int, ...]] = [(level,) for level in levels]
    if with_load and tiers.is_loaded:
        loads = [_loads(pairs, rounds, levels, tiers, tier) for tier in range(len(tiers.blocks))]
        keys = [(level, *(each[place] for each in loads[:level][::-1])) for place, level in enumerate(levels)]
    return _numbered(keys)


def _loads(pairs: Sequence[Pair], rounds: Sequence[int], levels: Sequence[int], tiers: Tiers, tier: int) -> list[int]:
    """By how many pairs of its round the busier of its two blocks of a tier is left, in steps of _LOAD_FACTOR."""
    block = tiers.blocks[tier]
    leaving: Counter[tuple[int, int]] = Counter()
    for pair, number, level in zip(pairs, rounds, levels, strict=True):
        if level > tier:
            leaving.update((number, block[host]) for host in pair if host in block)
    return [
        _step(max((leaving[number, block[host]] for host in pair if host in block), default=1)) if level > tier else 0
        for pair, number, level in zip(pairs, rounds, levels, strict=True)
    ]


def _step(load: int) -> int:
    return round(math.log(max(1, load)) / math.log(_LOAD_FACTOR))


def _numbered(keys: Sequence[tuple[int, ...]]) -> Classes:
    """The classes of the keys, each of which begins with its tier; none for those that few have."""
    counts = Counter(keys)
    frequent = [key for key in sorted(counts) if counts[key] >= MIN_CLASS]
    number = {key: place for place, key in enumerate(frequent)}
    return Classes(of_pairs=[number.get(key, -1) for key in keys], tiers=[key[0] for key in frequent])


def combined(late: Tiers, slow: Tiers) -> Tiers:
    """The tiers that latency shows, and those of bandwidth that fit in between, from the innermost outwards.

    A host without a block takes that of the other's tier if that tier has the same blocks otherwise. What bandwidth
    alone shows is no tier where blocks are slow to all others that are well with each other: their uplinks are bad.
    """
    if not late.blocks:
        return _without_huge(slow)
    result = [dict(block) for block in late.blocks]
    for block in slow.blocks:
        same = next((own for own in result if _is_within(own, block) and _is_within(block, own)), None)
        if same is not None:
            number = {block[host]: own for host, own in same.items() if host in block}
            same |= {host: number[each] for host, each in block.items() if host not in same and each in number}
        elif all(_is_within(own, block) or _is_within(block, own) for own in result):
            place = sum(_is_within(own, block) for own in result)
            if not place or not _is_lopsided(result[place - 1], block):
                result.insert(place, dict(block))
    return Tiers(blocks=tuple(result[:MAX_TIERS]), source=late.source)


def _is_lopsided(inner: Mapping[int, int], outer: Mapping[int, int]) -> bool:
    """Whether some blocks of the outer tier have several of the inner one, and others a single one."""
    within = Counter(block for _, block in {(own, outer[host]) for host, own in inner.items() if host in outer})
    return min(within.values()) == 1 < max(within.values())


def _without_huge(tiers: Tiers) -> Tiers:
    """The tiers without a lopsided one; an innermost block that is no rack is cut into blocks like the others."""
    blocks = [
        block
        for place, block in enumerate(tiers.blocks)
        if not place or not _is_lopsided(tiers.blocks[place - 1], block)
    ]
    if not blocks:
        return tiers
    sizes = Counter(blocks[0].values()).most_common()
    (huge, most), (_, usual) = sizes[0], sizes[len(sizes) // 2]
    if most < _HUGE * sizes[1][1]:
        return replace(tiers, blocks=tuple(blocks))
    cut, more = dict(blocks[0]), max(blocks[0].values()) + 1
    for place, host in enumerate(sorted(host for host, number in cut.items() if number == huge)):
        cut[host] = more + place // usual
    return replace(tiers, blocks=(cut,), is_loaded=False)


def _is_within(inner: Mapping[int, int], outer: Mapping[int, int]) -> bool:
    """Whether each block of `inner` lies in one block of `outer`, as far as both know its hosts."""
    known = {(block, outer[host]) for host, block in inner.items() if host in outer}
    return len(known) == len({block for block, _ in known})


def learn(pairs: Sequence[Pair], times: Sequence[float], noise: float) -> Tiers:
    """The tiers that the pairs' times show; times and their noise are logarithms. A flat fabric has none."""
    hosts = sorted({host for pair in pairs for host in pair})
    own = {host: place for place, host in enumerate(hosts)}
    found: list[dict[int, int]] = []
    between = [(own[first], own[second]) for first, second in pairs]
    count = len(hosts)
    while len(found) < MAX_TIERS and count >= 4:
        block = _blocks(count, _middles(between, times), noise)
        if block is None:
            break
        singles = iter(range(count, 2 * count))
        place = [block[each] if each in block else next(singles) for each in range(count)]
        number = {old: new for new, old in enumerate(dict.fromkeys(place))}
        found.append({host: block[at] for host, at in own.items() if at in block})
        own = {host: number[place[at]] for host, at in own.items()}
        ends = [sorted((number[place[first]], number[place[second]])) for first, second in between]
        times = [time for time, (one, other) in zip(times, ends, strict=True) if one != other]
        between = [(one, other) for one, other in ends if one != other]
        count = len(number)
    return Tiers(blocks=tuple(found), source=LEARNT) if found else Tiers()


def _middles(keys: Sequence[tuple[int, int]], values: Sequence[float]) -> dict[tuple[int, int], float]:
    """The middle one of each key's values, of an even number the higher."""
    found = dict(zip(keys, values, strict=True))
    if len(found) == len(keys):
        return found
    every: dict[tuple[int, int], list[float]] = {}
    for key, value in zip(keys, values, strict=True):
        every.setdefault(key, []).append(value)
    return {key: sorted(own)[len(own) // 2] for key, own in every.items()}


def _blocks(count: int, figures: Mapping[tuple[int, int], float], noise: float) -> dict[int, int] | None:
    """The block of each of `count` nodes that has one, from the first valley in which blocks separate; None: none."""
    for limit in _valleys(sorted(figures.values()), _NOISES * noise):
        fast: list[set[int]] = [{node} for node in range(count)]
        for (first, second), time in figures.items():
            if time < limit:
                fast[first].add(second)
                fast[second].add(first)
        block: dict[int, int] = {}
        blocks = 0
        for seed in range(count):
            mine = fast[seed] - block.keys()
            if seed in block or len(mine) < 2:
                continue
            members = [node for node in mine if len(fast[node] & mine) >= _COMMON * len(mine)]
            if len(members) >= 2:
                block |= dict.fromkeys(members, blocks)
                blocks += 1
        if _separates(block, figures, limit):
            return _filled(block, count)
    return None


def _filled(block: dict[int, int], count: int) -> dict[int, int]:
    """Give nodes without a block, which a fault makes slow to everybody, the places that smaller blocks lack.

    Only if the others are of one size, two at least, and lack exactly as many.
    """
    sizes = Counter(block.values())
    largest = max(sizes.values())
    single = [node for node in range(count) if node not in block]
    places = [number for number, size in sorted(sizes.items()) for _ in range(largest - size)]
    if len(places) != len(single) or list(sizes.values()).count(largest) < 2:
        return block
    return block | dict(zip(single, places, strict=True))


def _separates(block: Mapping[int, int], figures: Mapping[tuple[int, int], float], limit: float) -> bool:
    """Whether pairs are fast within the blocks, and slow between them; and there are two blocks at least."""
    if len(set(block.values())) < 2:
        return False
    tally = {True: [0, 0], False: [0, 0]}
    for (first, second), time in figures.items():
        if first in block and second in block:
            own = tally[block[first] == block[second]]
            own[0] += time < limit
            own[1] += 1
    (fast_within, within), (fast_between, between) = tally[True], tally[False]
    return fast_within >= _WITHIN * within and fast_between <= _BETWEEN * between and between > 0


def _valleys(ordered: Sequence[float], least: float) -> list[float]:
    """Times between two groups of pairs, from the fastest on: hardly a pair takes about that long.

    The groups' medians differ by `least` or more; all are logarithms.
    """
    found: list[float] = []
    best: tuple[float, float] | None = None
    low, high = ordered[0], ordered[-1]
    steps = min(2000, int((high - low) / _HALF_WIDTH * 2))
    for step in range(1, steps):
        limit = low + step * (high - low) / steps
        begin, end = bisect_left(ordered, limit - _HALF_WIDTH), bisect_left(ordered, limit + _HALF_WIDTH)
        if end - begin <= _VALLEY_SHARE * min(begin, len(ordered) - end):
            fullness = float(end - begin)
            best = (fullness, limit) if best is None or fullness < best[0] else best
        elif best is not None:
            found.append(best[1])
            best = None
    middles = [(bisect_left(ordered, limit), limit) for limit in found]
    return [limit for place, limit in middles if ordered[(place + len(ordered)) // 2] - ordered[place // 2] >= least]
