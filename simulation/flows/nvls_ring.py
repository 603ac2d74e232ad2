"""Makes the flows of an NVLS AllReduce whose servers are joined by rings, without keeping them."""

from itertools import accumulate

from simulation.flows.groups import RankGroup
from simulation.flows.train import NVLS, FlowSchedule, FlowTrain

INSIDE, BETWEEN = "NVLS", "RING"


class NvlsRings:
    """Channel h goes over local rank h of every server, its head, in one chunk for each server at most.

    A chunk's flows, in the order of their numbers: in every server all ranks to the switch, and the switch's sum to the
    head; round the heads from server number `chunk` on, once to be added up and once to be handed out; in every server
    the head to the switch, and the switch to all ranks. `shares` are the bytes of each channel's chunks.
    """

    def __init__(self, group: RankGroup, shares: list[list[int]], first_id: int) -> None:
        self.group, self.shares, self.first_id = group, shares, first_id
        self.servers, self.chunks = len(group.servers), len(shares[0])
        lengths = [len(ranks) + 1 for ranks in group.servers]
        self.gather = [0, *accumulate(lengths)]
        self.ring = self.gather[-1]
        self.spread = [self.ring + 2 * (self.servers - 1) + begin for begin in self.gather]
        self.width = self.spread[-1]
        self.place = {
            rank: (server, local) for server, ranks in enumerate(group.servers) for local, rank in enumerate(ranks)
        }
        self.server_of_switch = {switch: server for server, switch in enumerate(group.switches)}

    def schedule(self) -> FlowSchedule:
        """The whole collective."""
        flows = len(self.shares) * self.chunks * self.width
        size_bytes = sum(map(sum, self.shares)) * self.width
        sources = sorted([*self.place, *self.server_of_switch])
        return FlowSchedule(NVLS, self.first_id, flows, size_bytes, sources, self.trains)

    def trains(self, source: int) -> list[FlowTrain]:
        """The flows that leave a rank or a switch."""
        made = []
        for channel in range(len(self.shares)):
            if source in self.server_of_switch:
                made += self._of_switch(channel, self.server_of_switch[source])
                continue
            server, local = self.place[source]
            switch = self.group.switches[server]
            made.append(self._train(channel, self.gather[server] + local, source, switch, (), (switch,)))
            if local == channel:
                made += self._of_head(channel, server, source)
        return made

    def _ids(self, channel: int, number: int) -> range:
        """The ids of a flow of every chunk, by its number in the chunk."""
        begin = self.first_id + channel * self.chunks * self.width
        return range(begin + number, begin + self.chunks * self.width, self.width)

    def _train(
        self,
        channel: int,
        number: int,
        source: int,
        target: int,
        parents: tuple[int, ...],
        previous: tuple[int, ...],
    ) -> FlowTrain:
        """A flow of every chunk between two nodes of a server; `parents` are numbers in the chunk."""
        waits = tuple(self._ids(channel, parent) for parent in parents)
        ids, sizes, chunks = self._ids(channel, number), self.shares[channel], range(self.chunks)
        return FlowTrain(source, channel, ids, target, sizes, chunks, self.chunks, INSIDE, waits, previous)

    def _of_switch(self, channel: int, server: int) -> list[FlowTrain]:
        ranks, switch = self.group.servers[server], self.group.switches[server]
        ups = tuple(range(self.gather[server], self.gather[server] + len(ranks)))
        head, total = ranks[channel], self.spread[server]
        made = [self._train(channel, ups[-1] + 1, switch, head, ups, ranks)]
        for local, rank in enumerate(ranks):
            made.append(self._train(channel, total + 1 + local, switch, rank, (total,), (head,)))
        return made

    def _of_head(self, channel: int, server: int, head: int) -> list[FlowTrain]:
        """The head's hops of the ring, and its total for the switch, chunk by chunk."""
        before = self.group.servers[server - 1][channel]
        after = self.group.servers[(server + 1) % self.servers][channel]
        switch, last = self.group.switches[server], self.servers - 2
        local_sum = self.gather[server + 1] - 1
        made = []
        for chunk in range(self.chunks):
            turn = (server - chunk) % self.servers
            for hop in (turn, turn + self.servers):
                if hop > 2 * last + 1:
                    continue
                waits = {self.ring + hop - 1: before} if hop else {}
                waits |= {local_sum: switch} if hop < self.servers else {}
                made.append(self._single(channel, chunk, self.ring + hop, (head, after), BETWEEN, waits))
            arrival = (turn - 1) % self.servers
            arrival += 0 if arrival >= last else self.servers
            waits = {self.ring + arrival: before} | ({local_sum: switch} if arrival == last else {})
            made.append(self._single(channel, chunk, self.spread[server], (head, switch), INSIDE, waits))
        return made

    def _single(
        self, channel: int, chunk: int, number: int, ends: tuple[int, int], kind: str, waits: dict[int, int]
    ) -> FlowTrain:
        """One flow of one chunk; `waits` are the numbers of its parents, each with the node it comes from."""
        source, target = ends
        ids, size = self._ids(channel, number)[chunk : chunk + 1], self.shares[channel][chunk]
        parents = tuple(self._ids(channel, parent)[chunk : chunk + 1] for parent in waits)
        return FlowTrain(source, channel, ids, target, size, chunk, self.chunks, kind, parents, tuple(waits.values()))
