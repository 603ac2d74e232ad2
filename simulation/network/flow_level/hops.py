"""Gathers the flows of a collective into hops: all that one rank sends another on a channel, step by step."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import ne
from typing import NamedTuple

from simulation.flows.names import REDUCE_SCATTER
from simulation.flows.train import NVLS, NVLS_TREE, TREE, FlowSchedule, FlowTrain, TurningSizes
from simulation.network.job import GroupCollective
from simulation.network.memory_room import MemoryRoom

PROCESSING_NS, REDUCING_NS = 10, 40  # that a rank takes for a receipt, and for one of a ReduceScatter
NVLS_CHUNK_NS = -40  # from a chunk's end to the next one's start, besides the send latency
# Of a tree, on each hop and channel: all at once would take half as long again as with 2 to 8 chunks on their way.
CHUNKS_AT_ONCE, WINDOWED = 4, (TREE, NVLS_TREE)
HOP_BYTES = 1000  # of memory that a hop takes on its way, measured
ALIKE_BYTES = 16  # flows of a hop that differ by no more are taken as equal


class Hop(NamedTuple):
    """`steps` flows of `size` bytes each. Step k waits for step k - shift of each of `parents`: (places, shift), which
    are so many places behind this hop in the list of all, before it if the number is negative.

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
    """The hops of all groups, of which the first has the number `first`.

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
        found += _copies(hops, schedule.like.nodes) if schedule.like else hops
        groups.append((like, range(begin, first + len(found))))
    return HopSet(found, apart, groups)


def _copies(hops: list[Hop], nodes: Mapping[int, int]) -> list[Hop]:
    """The same hops between other nodes."""
    return [
        Hop(nodes[source], nodes[target], steps, size, parents, gap, release_gap)
        for source, target, steps, size, parents, gap, release_gap in hops
    ]


class _Rules(NamedTuple):
    """The gaps of a schedule's hops (ns), and how many chunks a hop has under way (0: all).

    What nodes below `senders` send, and what waits for no other flow, goes chunk after chunk, `chunk_gap` ns apart.
    """

    gap: int
    release_gap: int
    window: int
    senders: int
    chunk_gap: int


def _rules(schedule: FlowSchedule, latency_ns: int, release_gap: int, ranks: int) -> _Rules:
    window = CHUNKS_AT_ONCE if schedule.algorithm in WINDOWED else 0
    senders = ranks if schedule.algorithm == NVLS else 0
    return _Rules(latency_ns + release_gap, release_gap, window, senders, max(latency_ns + NVLS_CHUNK_NS, 0))


class _Part(NamedTuple):
    """Flows of one size out of a train, as it has them: parents by their ids."""

    channel: int
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
        self._every: dict[int, tuple[int, int]] = {}
        self._bounds: dict[int, tuple[Sequence[int], int, int]] = {}

    def add(self, train: FlowTrain) -> None:
        """Take a train apart where its flows differ in target or size; join it to the one that it goes on with."""
        count, targets, sizes = len(train.ids), train.targets, train.sizes
        if isinstance(targets, int) and not isinstance(sizes, int):
            sizes = self._alike(sizes) or sizes
        ends = train.channel, train.source
        if isinstance(targets, int) and isinstance(sizes, int):
            self._append_or_join(_Part(*ends, targets, train.ids, sizes, train.parents))
            return
        targets = [targets] * count if isinstance(targets, int) else targets
        sizes = [sizes] * count if isinstance(sizes, int) else sizes
        edges = [at for at in range(1, count) if targets[at] != targets[at - 1] or sizes[at] != sizes[at - 1]]
        if not train.parents and len(edges) == count - 1:
            self._append_single(train, targets, sizes)
            return
        for begin, ids, parents in _cut(train.ids, train.parents, edges):
            self._append_or_join(_Part(*ends, targets[begin], ids, sizes[begin], parents))

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

    def _append_or_join(self, part: _Part) -> None:
        """Trains that differ in kind alone are one hop, which PXN's first step and its others are."""
        former = self._parts[-1] if self._parts else None
        joined = _joined(former, part) if former and former.target == part.target else None
        if joined:
            self._parts[-1] = joined
            return
        self._room.take(1, HOP_BYTES, "hops")
        self._append(part)

    def _append_single(self, train: FlowTrain, targets: Sequence[int], sizes: Sequence[int]) -> None:
        """Flows that wait for none, each of which differs from the one before it: the first alone may be joined."""
        channel, source, ids = train.channel, train.source, train.ids
        parts = [
            _Part(channel, source, target, ids[at : at + 1], size, ())
            for at, (target, size) in enumerate(zip(targets, sizes, strict=True))
        ]
        self._append_or_join(parts[0])
        self._room.take(len(parts) - 1, HOP_BYTES, "hops")
        self._begins.update(zip(ids[1:], range(len(self._parts), len(self._parts) + len(parts) - 1), strict=True))
        self._parts += parts[1:]

    def _append(self, part: _Part) -> None:
        self._begins[part.ids[0]] = len(self._parts)
        self._parts.append(part)

    def hops(self, rules: _Rules) -> list[Hop]:
        """The hops, with what each waits for."""
        parts, gaps = self._parts, (rules.gap, rules.release_gap)
        if not rules.senders and not rules.window and not any(part.parents for part in parts):
            return [
                Hop(source, target, len(ids), size, (), *gaps) for _channel, source, target, ids, size, _none in parts
            ]
        while any(edges := [self._edges(part) if part.parents else [] for part in self._parts]):
            parts, self._parts, self._begins, self._every = self._parts, [], {}, {}
            for part, its in zip(parts, edges, strict=True):
                self._room.take(len(its), HOP_BYTES, "hops")
                for _begin, ids, parents in _cut(part.ids, part.parents, its):
                    self._append(part._replace(ids=ids, parents=parents))
        former: dict[tuple[int, int, int], int] = {}
        return [self._hop(number, part, rules, former) for number, part in enumerate(self._parts)]

    def _edges(self, part: _Part) -> list[int]:
        """The steps from which on a part waits for flows of another part, or not of the next steps of the same."""
        found = set()
        for ids in part.parents:
            done = 0
            while done < len(ids):
                place, step = self._place(ids[done])
                own, rest = self._parts[place].ids[step:], ids[done:]
                if own[: len(rest)] == rest:
                    break
                done += next(
                    (at for at, pair in enumerate(zip(own, rest, strict=False)) if ne(*pair)), min(len(own), len(rest))
                )
                found.add(len(part.ids) - len(ids) + done)
        return sorted(found - {len(part.ids)})

    def _hop(self, number: int, part: _Part, rules: _Rules, former: dict[tuple[int, int, int], int]) -> Hop:
        count, ends = len(part.ids), (part.channel, part.source, part.target)
        if not part.parents and not rules.window and part.source >= rules.senders:
            return Hop(part.source, part.target, count, part.size, (), rules.gap, rules.release_gap)
        parents = [self._parent(number, each, count - len(each)) for each in part.parents if len(each)]
        window, gap = rules.window, rules.gap
        if not parents and part.source < rules.senders:
            window, gap = 1, rules.chunk_gap
            if ends in former:  # its last chunk comes before the first one here
                parents.append((former[ends] - number, 1 - len(self._parts[former[ends]].ids)))
            former[ends] = number
        if window and count > window:
            parents.append((0, window))
        return Hop(part.source, part.target, count, part.size, tuple(parents), gap, rules.release_gap)

    def _parent(self, own: int, ids: Sequence[int], missing: int) -> tuple[int, int]:
        """How far behind a hop that is to which ids belong, and by how many steps it is ahead; the first `missing`
        steps have no parent.
        """
        number, step = self._place(ids[0])
        return number - own, missing - step

    def _place(self, flow: int) -> tuple[int, int]:
        """The part of a flow, and its step there."""
        number = self._begins.get(flow)
        if number is not None:
            return number, 0
        if not self._every:
            self._every = {
                each: (place, step) for place, part in enumerate(self._parts) for step, each in enumerate(part.ids)
            }
        return self._every[flow]


def _joined(former: _Part, part: _Part) -> _Part | None:
    """Both as one part, where the second goes on with the next ids and the next flow of each parent."""
    if former[:3] != part[:3] or former.size != part.size:
        return None
    if len(former.parents) != len(part.parents):
        return None
    ids = _together(former.ids, part.ids)
    parents = [_together(*each) for each in zip(former.parents, part.parents, strict=True)]
    whole = all(len(each) == len(part.ids) for each in part.parents)
    if ids is None or not whole or None in parents:
        return None
    return former._replace(ids=ids, parents=tuple(filter(None, parents)))


def _together(one: Sequence[int], other: Sequence[int]) -> range | None:
    """Two even rows of numbers as one, unless they are none; a row of one number may have any step."""
    step = other[0] - one[-1] if one and other else 0
    found = range(one[0], other[-1] + 1, step) if step > 0 else range(0)
    return found if found and (found[: len(one)], found[len(one) :]) == (one, other) else None


def _cut(
    ids: range, parents: Sequence[Sequence[int]], edges: Sequence[int]
) -> Iterator[tuple[int, range, tuple[Sequence[int], ...]]]:
    """The pieces of a part between steps, each with its first step: its ids and parents."""
    count = len(ids)
    for begin, end in pairwise([0, *edges, count]):
        behind = count - begin, count - end  # how many are left at both ends of the piece
        its = [each[max(len(each) - behind[0], 0) : len(each) - behind[1]] for each in parents] if parents else ()
        yield begin, ids[begin:end], tuple(its)
