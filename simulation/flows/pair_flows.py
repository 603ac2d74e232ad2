"""Makes the flows between pairs of ranks: AllToAll, Broadcast round a ring, and neighbours of a pipeline."""

from itertools import pairwise

from simulation.flows.groups import RankGroup
from simulation.flows.pieces import cut, unit_bytes
from simulation.flows.rings import ring_order
from simulation.flows.train import RING, FlowSchedule, FlowTrain

PAIR = "PTP"


def original_all_to_all(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """The flows of SimAI 1.6: size // ranks bytes from every rank to every other, whatever PXN is set to."""
    return _all_pairs(group, [size_bytes // len(group.members)] * len(group.members), first_id, original=True)


def all_to_all(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """One flow from every rank to every other; every rank's `size_bytes` are cut into a block for each rank."""
    count = len(group.members)
    blocks = [size for size in cut(size_bytes, count, unit_bytes(size_bytes, count)) if size]
    return _all_pairs(group, blocks, first_id, original=False)


def _all_pairs(group: RankGroup, blocks: list[int], first_id: int, *, original: bool) -> FlowSchedule:
    """Flows to the first len(blocks) ranks of the group; `blocks` are bytes."""
    members = group.members
    place_of = {rank: place for place, rank in enumerate(members)}
    receivers, live = members[: len(blocks)], len(blocks)
    even = blocks[0] if min(blocks) == max(blocks) else None

    def trains(source: int) -> list[FlowTrain]:
        place = place_of[source]
        targets = receivers[:place] + receivers[place + 1 :]
        if not targets:
            return []
        sizes = even if even is not None else blocks[:place] + blocks[place + 1 :]
        begin = first_id + place * live - min(place, live)
        previous = targets if original else ()
        kind = "RING" if original else PAIR
        return [FlowTrain(source, 0, range(begin, begin + len(targets)), targets, sizes, 0, 1, kind, (), previous)]

    count = len(members)
    return FlowSchedule(RING, first_id, live * (count - 1), sum(blocks) * (count - 1), members, trains)


def broadcast(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """The group's first rank sends to all others round every ring, each carrying its share in one piece."""
    channels = min(group.local_count, size_bytes)
    shares = cut(size_bytes, channels, unit_bytes(size_bytes, channels))
    hops = len(group.members) - 1
    orders = [_from_first(ring_order(group, channel), group.members[0]) for channel in range(channels)]
    places = [{rank: place for place, rank in enumerate(order)} for order in orders]

    def trains(source: int) -> list[FlowTrain]:
        made = []
        for channel, (order, share) in enumerate(zip(orders, shares, strict=True)):
            hop = places[channel][source]
            if hop == hops:
                continue
            flow_id = first_id + channel * hops + hop
            parents = ((flow_id - 1,),) if hop else ()
            ids, previous = range(flow_id, flow_id + 1), (order[hop - 1],)
            made.append(FlowTrain(source, channel, ids, order[hop + 1], share, hop, hops, "RING", parents, previous))
        return made

    sources = sorted({source for order in orders for source in order[:-1]})
    return FlowSchedule(RING, first_id, channels * hops, size_bytes * hops, sources, trains)


def _from_first(order: list[int], first: int) -> list[int]:
    begin = order.index(first)
    return order[begin:] + order[:begin]


def neighbours(group: RankGroup, size_bytes: int, first_id: int, rounds: int = 1) -> FlowSchedule:
    """A pipeline's transfers: every stage sends to the next on channel 0 and to the one before on channel 1.

    With several rounds (virtual stages) the last stage of a round sends to the first of the next.
    """
    hops = [(turn, source, target) for turn, (source, target) in enumerate(pairwise(group.members * rounds))]
    stages = len(group.members)
    trains: dict[int, list[FlowTrain]] = {rank: [] for rank in group.members}
    for channel in (0, 1):
        for turn, *ends in hops:
            source, target = ends if channel == 0 else reversed(ends)
            flow_id = first_id + channel * len(hops) + turn
            ids = range(flow_id, flow_id + 1)
            trains[source].append(FlowTrain(source, channel, ids, target, size_bytes, turn // stages, rounds, PAIR))
    flows = 2 * len(hops)
    return FlowSchedule(RING, first_id, flows, flows * size_bytes, sorted(group.members), lambda source: trains[source])
