"""Divides hosts into rounds of disjoint groups: a tournament of pairs, batches, and groups where every two meet once.

Hosts are places 0 .. count - 1; a round is a list of groups, a group a tuple of places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass

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


def batches(cells: Sequence[Members]) -> list[list[Members]]:
    """Batches of BATCH_HOSTS consecutive hosts of a cell, of fewer hosts where there would be fewer than LEAST_BATCHES.

    A cell's rest is measured in a second round, filled up with hosts before it. A cell of fewer hosts is one batch; a
    host that is alone in its cell is in none.
    """
    count = sum(map(len, cells))
    size = BATCH_HOSTS
    while size > 2 and count // size < LEAST_BATCHES:
        size //= 2
    first, second = list[Members](), list[Members]()
    for cell in cells:
        own = min(size, len(cell))
        if own < 2:
            continue
        whole = len(cell) // own * own
        first += [cell[begin : begin + own] for begin in range(0, whole, own)]
        if whole < len(cell):
            second += [cell[begin : begin + own] for begin in range(len(cell) - whole, len(cell), own)]
    return [first, second] if second else [first]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostLayout:
    """Where the hosts are by place: the number of the rack, and of the kind, of each; all alike by default."""

    racks: tuple[int, ...]
    kinds: tuple[int, ...]

    @classmethod
    def flat(cls, count: int) -> HostLayout:
        """Hosts that are all alike, in one rack."""
        return cls(racks=(0,) * count, kinds=(0,) * count)

    def cells(self) -> list[Members]:
        """The hosts of the same rack and kind."""
        found: dict[tuple[int, int], list[int]] = {}
        for place, key in enumerate(zip(self.racks, self.kinds, strict=True)):
            found.setdefault(key, []).append(place)
        return [*map(tuple, found.values())]

    def like(self, group: Members) -> tuple[int, bool, tuple[int, ...]]:
        """The properties that comparable groups share: size, whether racks are crossed, kinds of the hosts."""
        crosses = len({self.racks[place] for place in group}) > 1
        return len(group), crosses, tuple(sorted(self.kinds[place] for place in group))

    def groups_like(self, groups: Sequence[Members], free: Sequence[int]) -> list[Members]:
        """Disjoint groups of `free` hosts that are like one of the `groups`, of each sort in turn.

        Across racks there is one of a rack at most: more would load its uplinks.
        """
        usable = set(free)
        cells = [[host for host in cell if host in usable] for cell in self.cells()]
        sorts = sorted({self.like(group) for group in groups}, reverse=True)
        made: list[Members] = []
        crossed: set[int] = set()
        while True:
            fitting = [group for sort in sorts if (group := self._one_like(sort, cells, crossed))]
            if not fitting:
                return made
            group = fitting[len(made) % len(fitting)]
            racks = {self.racks[host] for host in group}
            crossed |= racks if len(racks) > 1 else set()
            made.append(group)
            cells = [[host for host in cell if host not in group] for cell in cells]

    def _one_like(
        self, sort: tuple[int, bool, tuple[int, ...]], cells: Sequence[Sequence[int]], crossed: Set[int]
    ) -> Members:
        """A group of this sort out of the free hosts of cells, not across `crossed` racks; empty if there is none."""
        size, crosses, kinds = sort
        if not crosses:
            fits = (cell for cell in cells if len(cell) >= size and {self.kinds[cell[0]]} == {*kinds})
            return tuple(next(fits, ())[:size])
        made: list[int] = []
        for kind in kinds:
            racks = {self.racks[host] for host in made} | crossed
            fitting = [
                cell for cell in cells if cell and self.kinds[cell[0]] == kind and self.racks[cell[0]] not in racks
            ]
            if not fitting:
                return ()
            made.append(max(fitting, key=len)[0])
        return tuple(sorted(made))


def lone_pairs(layout: HostLayout) -> list[Members]:
    """Disjoint pairs across racks of one kind: of each host that is alone in its cell, and as many others."""
    cells = sorted(layout.cells(), key=len)
    lone = [cell[0] for cell in cells if len(cell) == 1]
    others = [cell[-1] for cell in cells if len(cell) > 1]
    free = lone + others[: len(lone) + LEAST_BATCHES] if lone else []
    pairs: list[Members] = []
    while free:
        one = free.pop(0)
        fits = (host for host in free if layout.kinds[host] == layout.kinds[one])
        other = next((host for host in fits if layout.racks[host] != layout.racks[one]), None)
        if other is not None:
            free.remove(other)
            pairs.append((min(one, other), max(one, other)))
    return pairs


def meetings(count: int) -> list[list[Members]]:
    """Rounds of groups such that every two hosts are in one group once.

    Pairs up to TOURNAMENT_HOSTS hosts; else the lines of the affine plane of the smallest prime order p with
    p * p >= count, in p + 1 rounds.
    """
    return tournament(count) if count <= TOURNAMENT_HOSTS else _lines(count)


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
