"""Learns the tiers of a fabric from the times of its pairs.

Where the distribution of the times has a valley, the faster pairs must make up blocks of hosts, fast within and slow to
each other; else it is no tier. Latency is asked first, as other pairs do not change it.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import or_

from training.benchmarks.network.patterns.tiers import LEARNT, Pair, Tiers

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
# A block so many times larger than any other of its tier is no rack.
_HUGE = 3


def combined(late: Tiers, slow: Tiers) -> Tiers:
    """The tiers that latency shows, and those of bandwidth that fit in between, from the innermost outwards.

    A host without a block takes that of the other's tier if that tier has the same blocks otherwise. What bandwidth
    alone shows is no tier where blocks are slow to all others that are well with each other: their uplinks are bad.
    """
    if not late.blocks:
        return _without_huge(slow)
    result = [dict(block) for block in late.blocks]
    for block in slow.blocks:
        inner = [_is_within(own, block) for own in result]
        outer = [_is_within(block, own) for own in result]
        place = sum(inner)
        same = next((own for own, *ways in zip(result, inner, outer, strict=True) if all(ways)), None)
        if same is not None:
            _complete(same, block)
        elif all(map(or_, inner, outer)) and (not place or not _is_lopsided(result[place - 1], block)):
            result.insert(place, dict(block))
    return Tiers(blocks=tuple(result[:MAX_TIERS]), source=late.source)


def _complete(own: dict[int, int], other: Mapping[int, int]) -> None:
    """Give hosts without a block the own one of those with which they share a block of the other's tier."""
    number = {other[host]: block for host, block in own.items() if host in other}
    own |= {host: number[each] for host, each in other.items() if host not in own and each in number}


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


def learn(pairs: Sequence[Pair], times: Sequence[float], noise: float, kinds: Mapping[int, str] | None = None) -> Tiers:
    """The tiers that the pairs' times show; times and their noise are logarithms. A flat fabric has none.

    Of hosts of several `kinds`, by node rank, the pairs of each kind tell the blocks of their own hosts; the hosts of a
    kind that shows none are one block. Of pairs that were measured in both orders the faster one tells.
    """
    pairs, times = _faster_ways(pairs, times)
    of_kind = _places_of_kinds(pairs, kinds or {})
    blocks: list[dict[int, int]] = []
    for places in of_kind:
        are_all = len(places) == len(pairs)
        own_pairs = pairs if are_all else [pairs[place] for place in places]
        own_times = times if are_all else [times[place] for place in places]
        found = _learnt(own_pairs, own_times, noise)
        for tier, own in enumerate(found):
            if tier == len(blocks):
                blocks.append({})
            first_number = max(blocks[tier].values(), default=-1) + 1
            blocks[tier] |= {host: first_number + number for host, number in own.items()}
    if len(of_kind) > 1:
        _add_unseen(blocks, [{host for place in places for host in pairs[place]} for places in of_kind])
    return Tiers(blocks=tuple(blocks), source=LEARNT) if blocks else Tiers()


def _add_unseen(blocks: Iterable[dict[int, int]], hosts_of_kinds: Iterable[set[int]]) -> None:
    """Make the hosts of a kind one more block of each tier that has none of them."""
    for hosts in hosts_of_kinds:
        for block in blocks:
            if hosts.isdisjoint(block):
                block |= dict.fromkeys(sorted(hosts), max(block.values()) + 1)


def _faster_ways(pairs: Sequence[Pair], times: Sequence[float]) -> tuple[Sequence[Pair], Sequence[float]]:
    """Of pairs that were measured in both orders each pair once, with its least time; others as they are."""
    if all(first <= second for first, second in pairs):
        return pairs, times
    best: dict[Pair, float] = {}
    for (first, second), time in zip(pairs, times, strict=True):
        key = min(first, second), max(first, second)
        best[key] = min(time, best.get(key, time))
    return [*best], [*best.values()]


def _places_of_kinds(pairs: Sequence[Pair], kinds: Mapping[int, str]) -> list[list[int]]:
    """The places of each kind's pairs; those of two kinds have none."""
    if not kinds:
        return [[*range(len(pairs))]]
    of_kind: dict[str, list[int]] = {}
    for place, (first, second) in enumerate(pairs):
        if kinds.get(first) == kinds.get(second):
            of_kind.setdefault(kinds.get(first, ""), []).append(place)
    return [*of_kind.values()]


def _learnt(pairs: Sequence[Pair], times: Sequence[float], noise: float) -> list[dict[int, int]]:
    """The blocks of each tier from the innermost outwards, by host."""
    hosts = sorted(set(chain.from_iterable(pairs)))
    own = {host: place for place, host in enumerate(hosts)}
    found: list[dict[int, int]] = []
    count = len(hosts)
    while len(found) < MAX_TIERS and count >= 4:
        block = _blocks(count, _middles(own, pairs, times), noise)
        if block is None:
            break
        found.append({host: block[at] for host, at in own.items() if at in block})
        number = _numbers(block, count)
        own = {host: number[at] for host, at in own.items()}
        count = len(set(number))
    return found


def _numbers(block: Mapping[int, int], count: int) -> list[int]:
    """For each of `count` nodes the number, from 0, of the next tier's node: its block, or itself without one."""
    place = [block.get(each, count + each) for each in range(count)]
    number = {old: new for new, old in enumerate(dict.fromkeys(place))}
    return [number[each] for each in place]


def _middles(node: Mapping[int, int], pairs: Sequence[Pair], times: Sequence[float]) -> dict[tuple[int, int], float]:
    """The middle time of the pairs between every two nodes, of an even number the higher; `node` is that of a host."""
    count = len(set(node.values()))
    if count == len(node):
        found = {(node[first], node[second]): time for (first, second), time in zip(pairs, times, strict=True)}
        if len(found) == len(pairs):
            return found
    every: defaultdict[int, list[float]] = defaultdict(list)
    for (first, second), time in zip(pairs, times, strict=True):
        one, other = node[first], node[second]
        if one != other:
            every[one * count + other if one < other else other * count + one].append(time)
    return {divmod(key, count): sorted(own)[len(own) // 2] for key, own in every.items()}


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
