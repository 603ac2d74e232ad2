"""Gathers the flows of a collective into hops: all that one rank sends another on a channel, step by step."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from simulation.flows.ring_flows import REDUCE_SCATTER
from simulation.flows.train import NVLS, NVLS_TREE, TREE, FlowSchedule, FlowTrain, TurningSizes
from simulation.network.job import GroupCollective
from simulation.network.memory_room import MemoryRoom

PROCESSING_NS, REDUCING_NS = 10, 40  # that a rank takes for a receipt, and for one of a ReduceScatter
NVLS_CHUNK_NS = -40  # from a chunk's end to the next one's start, besides the send latency
CHUNKS_AT_ONCE, WINDOWED = 4, (TREE, NVLS_TREE)  # of a tree, on each hop and channel
HOP_BYTES = 1000  # of memory that a hop takes on its way, measured
ALIKE_BYTES = 16  # flows of a hop that differ by no more are taken as equal


class Hop(NamedTuple):
    """`steps` flows of `size` bytes each. Step k waits for step k - shift of each of `parents`: (hop, shift).

    `gap` is the time from the last of these to the start (ns), `release_gap` that between receipts that were held back.
    """

    source: int
    target: int
    steps: int
    size: int
    parents: tuple[tuple[int, int], ...]
    gap: int
    release_gap: int


class HopSet(NamedTuple):
    """The hops of a collective, group by group; `apart` is the most by which flows taken as equal differ (bytes).

    `groups` are the hops of each group, with the number of the first group of which it is a copy, hop by hop.
    """

    hops: list[Hop]
    apart: int
    groups: list[tuple[int, range]]


def hops_of(collective: GroupCollective, latency_ns: int, ranks: int, room: MemoryRoom, first: int = 0) -> HopSet:
    """The hops of all groups, numbered from `first`.

    `latency_ns` is the time before each send; nodes from `ranks` on are NVSwitches.

    Raises:
        InputProblems: there is no room for them.
    """
    release_gap = REDUCING_NS if collective.op == REDUCE_SCATTER else PROCESSING_NS
    found: list[Hop] = []
    apart, groups = 0, list[tuple[int, range]]()
    made: dict[int, tuple[int, list[Hop]]] = {}
    for number, schedule in enumerate(collective.schedules):
        original = schedule.like.original if schedule.like else schedule
        if id(original) not in made:
            book = _Book(room)
            for source in original.sources:
                for train in original.trains(source):
                    book.add(train)
            apart = max(apart, book.apart)
            made[id(original)] = number, book.hops(_rules(original, latency_ns, release_gap, ranks))
        like, hops = made[id(original)]
        if like != number:
            room.take(len(hops), HOP_BYTES, "hops")
        begin = first + len(found)
        found += _copies(hops, schedule.like.nodes if schedule.like else None, begin)
        groups.append((like, range(begin, first + len(found))))
    return HopSet(found, apart, groups)


def _copies(hops: list[Hop], nodes: Mapping[int, int] | None, begin: int) -> list[Hop]:
    """The same hops, numbered from `begin`, between other nodes, if any."""
    if nodes is None:
        return [hop._replace(parents=_later(hop.parents, begin)) for hop in hops] if begin else hops
    return [
        Hop(nodes[source], nodes[target], steps, size, _later(parents, begin), gap, release_gap)
        for source, target, steps, size, parents, gap, release_gap in hops
    ]


def _later(parents: tuple[tuple[int, int], ...], begin: int) -> tuple[tuple[int, int], ...]:
    return tuple([(parent + begin, shift) for parent, shift in parents])


class _Rules(NamedTuple):
    """The gaps of a schedule's hops (ns), and how many chunks a hop has under way, by its sender (0: all)."""

    gap: int
    release_gap: int
    chunk_gap: int
    in_turn: Callable[[int], int]


def _rules(schedule: FlowSchedule, latency_ns: int, release_gap: int, ranks: int) -> _Rules:
    gap = latency_ns + release_gap
    if schedule.algorithm == NVLS:
        return _Rules(gap, release_gap, max(latency_ns + NVLS_CHUNK_NS, 0), lambda source: int(source < ranks))
    window = CHUNKS_AT_ONCE if schedule.algorithm in WINDOWED else 0
    return _Rules(gap, release_gap, gap, lambda _source: window)


class _Part(NamedTuple):
    """Flows of one size out of a train, as it has them: parents by their ids."""

    source: int
    target: int
    ids: range
    size: int
    parents: tuple[Sequence[int], ...]


class _Book:
    """Collects the trains of one schedule."""

    def __init__(self, room: MemoryRoom) -> None:
        self.apart, self._room = 0, room
        self._parts: list[_Part] = []
        self._begins: dict[int, int] = {}
        self._every: dict[int, tuple[int, int]] | None = None
        self._bounds: dict[int, tuple[Sequence[int], int, int]] = {}

    def add(self, train: FlowTrain) -> None:
        """Take a train apart where its flows differ in target or size."""
        if isinstance(train.targets, int) and isinstance(train.sizes, int):
            self._append(_Part(train.source, train.targets, train.ids, train.sizes, train.parents))
            return
        count = len(train.ids)
        if isinstance(train.targets, int) and not isinstance(train.sizes, int) and (alike := self._alike(train.sizes)):
            self._append(_Part(train.source, train.targets, train.ids, alike, train.parents))
            return
        targets = [train.targets] * count if isinstance(train.targets, int) else train.targets
        sizes = [train.sizes] * count if isinstance(train.sizes, int) else train.sizes
        ends = [0] + [at for at in range(1, count) if targets[at] != targets[at - 1] or sizes[at] != sizes[at - 1]]
        for begin, end in pairwise([*ends, count]):
            behind = count - begin, count - end  # how many are left at both ends of the part
            parents = tuple([each[max(len(each) - behind[0], 0) : len(each) - behind[1]] for each in train.parents])
            self._append(_Part(train.source, targets[begin], train.ids[begin:end], sizes[begin], parents))

    def _alike(self, sizes: Sequence[int]) -> int:
        """One size for all, where they differ by a few bytes; else 0."""
        blocks = sizes.blocks if isinstance(sizes, TurningSizes) else sizes
        if id(blocks) not in self._bounds:
            self._bounds[id(blocks)] = blocks, min(blocks), max(blocks)
        _blocks, least, most = self._bounds[id(blocks)]
        if most - least > ALIKE_BYTES or least < 64 * ALIKE_BYTES:
            return 0
        self.apart = max(self.apart, most - least)
        return most

    def _append(self, part: _Part) -> None:
        self._room.take(1, HOP_BYTES, "hops")
        self._begins[part.ids[0]] = len(self._parts)
        self._parts.append(part)

    def hops(self, rules: _Rules) -> list[Hop]:
        """The hops, with what each waits for."""
        former: dict[tuple[int, int], int] = {}
        return [self._hop(number, part, rules, former) for number, part in enumerate(self._parts)]

    def _hop(self, number: int, part: _Part, rules: _Rules, former: dict[tuple[int, int], int]) -> Hop:
        count, ends = len(part.ids), (part.source, part.target)
        parents = [self._parent(each, count - len(each)) for each in part.parents if len(each)]
        window, gap = rules.in_turn(part.source), rules.gap
        if window == 1:
            parents, gap = [], rules.chunk_gap
            if ends in former:  # a chunk of its own
                parents = [(former[ends], 0)]
            former[ends] = number
        if window and count > window:
            parents.append((number, window))
        return Hop(*ends, count, part.size, tuple(parents), gap, rules.release_gap)

    def _parent(self, ids: Sequence[int], missing: int) -> tuple[int, int]:
        """The hop to which ids belong, and by how many steps it is ahead; the first `missing` steps have no parent."""
        place = self._begins.get(ids[0])
        if place is not None:
            return place, missing
        if self._every is None:
            self._every = {
                flow: (number, step) for number, part in enumerate(self._parts) for step, flow in enumerate(part.ids)
            }
        number, step = self._every[ids[0]]
        return number, missing - step
