"""Makes the flows of collectives that go round rings: AllReduce, AllGather, ReduceScatter."""

from collections.abc import Sequence
from typing import NamedTuple

from simulation.flows.groups import RankGroup
from simulation.flows.names import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from simulation.flows.pieces import cut_twice
from simulation.flows.rings import RingHop, all_rings, ring_hops, ring_order
from simulation.flows.train import RING, FlowSchedule, FlowTrain, TurningSizes, by_source, empty_schedule


def ring_steps(op: str, ranks: int) -> int:
    """Steps of a ring: every block visits the other ranks once, in AllReduce twice."""
    return (2 if op == ALL_REDUCE else 1) * (ranks - 1)


class ProxyKinds(NamedTuple):
    """The conn_type of the second half of a proxied hop (PXN): at the first step, and at the others."""

    first: str
    later: str


NO_PROXY = None
PROXY_EVERYWHERE = ProxyKinds("PXN_INIT", "PXN_INIT")
PROXY_2_30 = {ALL_REDUCE: PROXY_EVERYWHERE, ALL_GATHER: ProxyKinds("PXN_INIT", "PXN")}
PROXY_2_30[REDUCE_SCATTER] = PROXY_2_30[ALL_GATHER]


class _Slot(NamedTuple):
    """One flow of every step of a ring. `parent` and `child` are slots, of the same step where `proxied` says so."""

    source: int
    target: int
    owner: int  # place in the ring of the rank whose hop this is
    previous: int
    parent: int
    child: int
    kinds: ProxyKinds
    leads: bool  # the first half of a proxied hop: its child is in the same step
    proxied: bool  # the second half: its parent is in the same step


_PLAIN = ProxyKinds("RING", "RING")


def _slots(hops: Sequence[RingHop], proxy: ProxyKinds | None, servers: int) -> list[_Slot]:
    """The slots of a ring, in the order of its hops.

    With a proxy, a rank over which the ring leaves its server first sends to the rank over which it entered: that one
    sits on the rail of the next server's entry.
    """
    by_rank = {hop.rank: hop for hop in hops}
    split = {hop.rank for hop in hops if proxy and servers > 1 and hop.exit == hop.rank != hop.entry}
    first: dict[int, int] = {}
    place = 0
    for hop in hops:
        first[hop.rank] = place
        place += 2 if hop.rank in split else 1
    last = {rank: slot + (rank in split) for rank, slot in first.items()}
    position = _positions(by_rank, hops[0].rank)
    slots = []
    for hop in hops:
        rank, here = hop.rank, first[hop.rank]
        owner, parent, child = position[rank], last[hop.previous], first[hop.following]
        previous = hop.previous
        if rank in split and proxy:
            slots.append(_Slot(rank, hop.entry, owner, previous, parent, here + 1, _PLAIN, True, False))
            slots.append(_Slot(hop.entry, hop.following, owner, rank, here, child, proxy, False, True))
            continue
        if proxy and servers > 1 and hop.entry == rank != hop.exit:
            previous = by_rank[hop.previous].entry
        slots.append(_Slot(rank, hop.following, owner, previous, parent, child, _PLAIN, False, False))
    return slots


def _positions(by_rank: dict[int, RingHop], start: int) -> dict[int, int]:
    positions: dict[int, int] = {}
    rank = start
    while rank not in positions:
        positions[rank] = len(positions)
        rank = by_rank[rank].following
    return positions


class _Ring:
    """One ring of a collective: its slots, the id of its first flow, and the bytes each flow carries."""

    def __init__(self, channel: int, slots: list[_Slot], steps: int, first_id: int, sizes: "int | list[int]") -> None:
        self.channel, self.slots, self.steps, self.first_id = channel, slots, steps, first_id
        self.sizes = sizes
        self.flow_count = len(slots) * steps
        self.of_source: dict[int, list[int]] = {}
        for place, slot in enumerate(slots):
            self.of_source.setdefault(slot.source, []).append(place)

    @property
    def byte_count(self) -> int:
        """Bytes of all flows: in each step every block is on its way, and once more to a proxy."""
        if isinstance(self.sizes, int):
            return self.sizes * self.flow_count
        to_proxies = sum(sum(self._slot_sizes(slot)) for slot in self.slots if slot.leads)
        return self.steps * sum(self.sizes) + to_proxies

    def _slot_sizes(self, slot: _Slot) -> TurningSizes:
        """Bytes that a slot carries in each step: at step s, the block that began s places before its owner."""
        assert not isinstance(self.sizes, int)
        return TurningSizes(self.sizes, slot.owner, self.steps)

    def trains(self, source: int) -> list[FlowTrain]:
        """The flows that leave a source, slot by slot."""
        return [train for place in self.of_source.get(source, ()) for train in self._trains(place)]

    def _trains(self, place: int) -> list[FlowTrain]:
        slot, width = self.slots[place], len(self.slots)
        begin, end = self.first_id, self.first_id + self.flow_count
        parents = range(begin + slot.parent, end if slot.proxied else end - width, width)
        children = range(begin + slot.child + (0 if slot.leads else width), end, width)
        train = FlowTrain(
            slot.source,
            self.channel,
            range(begin + place, end, width),
            slot.target,
            self.sizes if isinstance(self.sizes, int) else self._slot_sizes(slot),
            range(self.steps),
            self.steps,
            slot.kinds.first,
            (parents,),
            (slot.previous,),
            (children,),
        )
        return [train] if slot.kinds.first == slot.kinds.later else _split_kind(train, slot)


def _split_kind(train: FlowTrain, slot: _Slot) -> list[FlowTrain]:
    """The first flow of a proxied train and the others, whose kind differs."""
    (parents,), (children,) = train.parents, train.children
    one, rest = slice(0, 1), slice(1, None)
    sizes = train.sizes
    halves = []
    for part, kind in ((one, slot.kinds.first), (rest, slot.kinds.later)):
        chunks = range(train.chunk_count)[part]
        if not chunks:
            continue
        halves.append(
            train._replace(
                ids=train.ids[part],
                sizes=sizes if isinstance(sizes, int) else sizes[part],
                chunks=chunks,
                kind=kind,
                parents=(parents[part],),
                children=(children[part],),
            )
        )
    return halves


def original_ring_schedule(op: str, group: RankGroup, size_bytes: int, first_id: int, *, pxn: bool) -> FlowSchedule:
    """The flows of SimAI 1.6: every flow carries size // ranks // rings bytes, what is left over is lost.

    With `pxn`, AllReduce and ReduceScatter are proxied; AllGather never is. Fewer bytes than ranks * rings: no flow.
    """
    rings = all_rings(group)
    each = size_bytes // len(group.members) // len(rings)
    if each == 0:
        return empty_schedule(RING, first_id)
    proxy = {ALL_REDUCE: PROXY_EVERYWHERE, REDUCE_SCATTER: ProxyKinds("PXN_INIT", "RING")}.get(op) if pxn else NO_PROXY
    steps = ring_steps(op, len(group.members))
    made: list[_Ring] = []
    for channel, hops in enumerate(rings):
        begin = made[-1].first_id + made[-1].flow_count if made else first_id
        made.append(_Ring(channel, _slots(hops, proxy, group.server_count), steps, begin, each))
    return _schedule(made, group, first_id)


def ring_schedule(op: str, group: RankGroup, size_bytes: int, first_id: int, *, pxn: bool) -> FlowSchedule:
    """The flows of a ring collective in which every byte has its flow.

    AllReduce: `size_bytes` on every rank. AllGather: gathered, ReduceScatter: to be scattered, in total.
    """
    ranks = len(group.members)
    if size_bytes < ranks:
        return _few_bytes(op, group, size_bytes, first_id)
    channels = min(group.local_count, size_bytes // ranks)
    blocks = cut_twice(size_bytes, ranks, channels)
    place_of = {rank: place for place, rank in enumerate(group.members)}
    made: list[_Ring] = []
    for channel in range(channels):
        sizes = [block[channel] for block in blocks]
        hops = ring_hops(group, channel)
        begin = made[-1].first_id + made[-1].flow_count if made else first_id
        slots = _slots(hops, PROXY_2_30[op] if pxn else NO_PROXY, group.server_count)
        by_rank = {hop.rank: hop for hop in hops}
        owners = [place_of[_block_owner(op, by_rank[rank])] for rank in _positions(by_rank, hops[0].rank)]
        in_order = [sizes[owner] for owner in owners]
        even = min(in_order) == max(in_order)
        steps = ring_steps(op, ranks)
        made.append(_Ring(channel, slots, steps, begin, in_order[0] if even else in_order))
    return _schedule(made, group, first_id)


def _block_owner(op: str, begin: RingHop) -> int:
    """The rank whose block begins its way round the ring at this hop; a scattered block ends one hop before."""
    return begin.previous if op == REDUCE_SCATTER else begin.rank


def _schedule(rings: list[_Ring], group: RankGroup, first_id: int) -> FlowSchedule:
    sources = sorted({source for ring in rings for source in ring.of_source})
    return FlowSchedule(
        RING,
        first_id,
        sum(ring.flow_count for ring in rings),
        sum(ring.byte_count for ring in rings),
        sources,
        lambda source: [train for ring in rings for train in ring.trains(source)],
    )


def _few_bytes(op: str, group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """Fewer bytes than ranks: one ring, round which each byte goes alone; the blocks of the later ranks are empty."""
    order = ring_order(group, 0)
    places = {rank: place for place, rank in enumerate(order)}
    steps = ring_steps(op, len(order))
    trains = []
    for byte, owner in enumerate(group.members[:size_bytes]):
        begin = places[owner] + (op == REDUCE_SCATTER)
        for step in range(steps):
            source = order[(begin + step) % len(order)]
            flow_id = first_id + step * size_bytes + byte
            trains.append(
                FlowTrain(
                    source,
                    0,
                    range(flow_id, flow_id + 1),
                    order[(begin + step + 1) % len(order)],
                    1,
                    step,
                    steps,
                    "RING",
                    ((flow_id - size_bytes,),) if step else (),
                    (order[(begin + step - 1) % len(order)],),
                    ((flow_id + size_bytes,),) if step + 1 < steps else (),
                )
            )
    grouped = by_source(trains)
    return FlowSchedule(
        RING, first_id, len(trains), len(trains), sorted(grouped), lambda source: grouped.get(source, [])
    )
