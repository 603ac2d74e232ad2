"""Makes the flows of an AllToAll over proxies (PXN): a block leaves its server on the rail of its receiver."""

from collections.abc import Iterator
from typing import NamedTuple

from simulation.flows.groups import RankGroup
from simulation.flows.pieces import cut, unit_bytes
from simulation.flows.train import RING, FlowSchedule, FlowTrain

DIRECT, TO_PROXY, FROM_PROXY = "PTP", "PTP_PXN_START", "PTP_PXN_END"


class _Member(NamedTuple):
    rank: int
    place: int
    server: int
    slot: int
    local: int  # place among the members on its server


class _Pairs:
    """Who sends to whom, over which proxy, under which ids."""

    def __init__(self, group: RankGroup, blocks: list[int], first_id: int) -> None:
        self.blocks = blocks
        self.widest = max(map(len, group.servers))
        place_of = {rank: place for place, rank in enumerate(group.members)}
        self.servers = [
            [
                _Member(rank, place_of[rank], server, slot, local)
                for local, (rank, slot) in enumerate(zip(ranks, slots, strict=True))
            ]
            for server, (ranks, slots) in enumerate(zip(group.servers, group.slots, strict=True))
        ]
        self.members = sorted((each for members in self.servers for each in members), key=lambda each: each.place)
        self.by_rank = {each.rank: each for each in self.members}
        self.on_rail = [{each.slot: each.rank for each in members} for members in self.servers]
        self.starts: dict[int, int] = {}
        self.byte_count = 0
        for sender in self.members:
            self.starts[sender.rank] = first_id
            for receiver, proxy in self._ways(sender):
                flows = 1 if proxy is None else 2
                first_id += flows
                self.byte_count += flows * blocks[receiver.place]
        self.end = first_id
        self._cached: tuple[int, dict[int, list[FlowTrain]]] = (-1, {})

    def _ways(self, sender: _Member) -> Iterator[tuple[_Member, int | None]]:
        """Each receiver with a block, and the proxy on the way to it."""
        rails = self.on_rail[sender.server]
        for receiver in self.members[: len(self.blocks)]:
            if receiver is sender:
                continue
            away = receiver.server != sender.server and receiver.slot != sender.slot
            yield receiver, rails.get(receiver.slot) if away else None

    def trains(self, source: int) -> list[FlowTrain]:
        """The flows that leave a rank: its own, and the second halves of those it is the proxy of."""
        server = self.by_rank[source].server
        if self._cached[0] != server:
            self._cached = (server, self._leaving(server))
        return self._cached[1][source]

    def _leaving(self, server: int) -> dict[int, list[FlowTrain]]:
        """The flows that leave each rank of a server."""
        leaving: dict[int, list[FlowTrain]] = {member.rank: [] for member in self.servers[server]}
        for sender in self.servers[server]:
            rank, flow_id = sender.rank, self.starts[sender.rank]
            for receiver, proxy in self._ways(sender):
                target, size = receiver.rank, self.blocks[receiver.place]
                ids = range(flow_id, flow_id + 1)
                flow_id += 1
                if proxy is None:
                    leaving[rank].append(FlowTrain(rank, 0, ids, target, size, 0, 1, DIRECT))
                    continue
                channel = self._channel(sender, receiver)
                leaving[rank].append(FlowTrain(rank, channel, ids, proxy, size, 0, 1, TO_PROXY))
                second = range(flow_id, flow_id + 1)
                flow_id += 1
                leaving[proxy].append(
                    FlowTrain(proxy, channel, second, target, size, 0, 1, FROM_PROXY, (ids,), (rank,))
                )
        for trains in leaving.values():
            trains.sort(key=lambda train: (train.channel, train.ids[0]))
        return leaving

    def _channel(self, sender: _Member, receiver: _Member) -> int:
        """By distance in servers and in local ranks, as SimCCL 2.30 numbers the channels of proxied flows."""
        servers = (receiver.server - sender.server) % len(self.servers)
        return (servers - 1) * self.widest + (receiver.local - sender.local) % self.widest


def proxied_all_to_all(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """An AllToAll in which a block for another server and rail first goes to the sender's neighbour on that rail.

    Where the sender's server has no member on the receiver's rail, the block goes directly. `size_bytes` are sent by
    every rank, its own block included.
    """
    count = len(group.members)
    blocks = [size for size in cut(size_bytes, count, unit_bytes(size_bytes, count)) if size]
    pairs = _Pairs(group, blocks, first_id)
    return FlowSchedule(RING, first_id, pairs.end - first_id, pairs.byte_count, group.members, pairs.trains)
