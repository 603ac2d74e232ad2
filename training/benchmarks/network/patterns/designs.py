"""Divides hosts into rounds of disjoint groups: a tournament of pairs, batches, and groups where every two meet once.

Hosts are places 0 .. count - 1; a round is a list of groups, a group a tuple of places.
"""

import math
from itertools import pairwise

Members = tuple[int, ...]
BATCH_HOSTS = 8
# So many batches keep most of them free of bad hosts where several hosts are bad.
LEAST_BATCHES = 16
# Up to so many hosts, every two meet as a pair: more rounds than with larger groups, but at the full rate.
TOURNAMENT_HOSTS = 32


def tournament(count: int) -> list[list[tuple[int, ...]]]:
    """Every pair of 0 .. count - 1 exactly once, in rounds of disjoint pairs; of an odd number one rests in each round.

    First come the pairs within each half, in the same way, then those across the halves. Hosts that stand beside one
    another mostly share a rack: rounds of pairs that are equally far apart load the uplinks of all racks equally.
    """
    if count % 2:
        return [[pair for pair in matches if count not in pair] for matches in tournament(count + 1)]
    if count < 2:
        return []
    half = count // 2
    if half == 1:
        return [[(0, 1)]]
    within: list[list[tuple[int, ...]]] = []
    for matches in tournament(half):
        again = [(one + half, other + half) for one, other in matches]
        # In a half of odd length one rests: it meets the one that rests in the other half.
        resting = {*range(half)}.difference(*matches) if half % 2 else set()
        within.append([*matches, *again, *((one, one + half) for one in resting)])
    across: list[list[tuple[int, ...]]] = [
        [(one, half + (one + shift) % half) for one in range(half)] for shift in range(half % 2, half)
    ]
    return within + across


def batches(count: int) -> list[list[Members]]:
    """Batches of BATCH_HOSTS consecutive hosts, of fewer hosts where there would be fewer than LEAST_BATCHES.

    A rest is measured in a second round, filled up with hosts before it.
    """
    size = BATCH_HOSTS
    while size > 2 and count // size < LEAST_BATCHES:
        size //= 2
    whole = count // size * size
    rounds = [_cut(range(whole), size)]
    if whole < count:
        rounds.append(_cut(range(count - whole, count), size))
    return rounds


def meetings(count: int) -> list[list[Members]]:
    """Rounds of groups such that every two hosts are in one group once.

    Pairs up to TOURNAMENT_HOSTS hosts; else the lines of the affine plane of the smallest prime order p with
    p * p >= count, in p + 1 rounds.
    """
    return tournament(count) if count <= TOURNAMENT_HOSTS else _lines(count)


def _cut(hosts: range, size: int) -> list[Members]:
    edges = [*range(hosts.start, hosts.stop, size), hosts.stop]
    return [tuple(range(begin, end)) for begin, end in pairwise(edges)]


def _lines(count: int) -> list[list[Members]]:
    """The classes of parallel lines; host h has the coordinates h // order and h % order."""
    order = next(p for p in range(math.isqrt(count - 1) + 1, count) if all(p % d for d in range(2, math.isqrt(p) + 1)))
    classes: list[list[Members]] = []
    for slope in (*range(order), None):
        lines: dict[int, list[int]] = {}
        for host in range(count):
            x, y = divmod(host, order)
            lines.setdefault(x if slope is None else (y - slope * x) % order, []).append(host)
        classes.append([tuple(line) for line in lines.values() if len(line) > 1])
    return classes
