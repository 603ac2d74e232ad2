"""Makes the flows of an AllReduce that NVSwitches add up: within one server, and between servers by tree or ring.

Channels take the NVSwitches of a server in turn, as every GPU has links to each.
"""

from collections.abc import Sequence
from itertools import accumulate

from simulation.flows.groups import RankGroup
from simulation.flows.pieces import cut_twice
from simulation.flows.train import NVLS, NVLS_TREE, FlowSchedule, FlowTrain, by_source, empty_schedule
from simulation.flows.trees import server_tree
from simulation.flows.waves import Numbering, WaveStep, fan

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
        self.server_of_switch = {
            switch: (server, channel)
            for channel in range(min(group.planes, len(shares)))
            for server, switch in enumerate(group.switches_of(channel))
        }

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
                server, first = self.server_of_switch[source]
                if channel % self.group.planes == first:
                    made += self._of_switch(channel, server)
                continue
            server, local = self.place[source]
            switch = self.group.switches_of(channel)[server]
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
        ranks, switch = self.group.servers[server], self.group.switches_of(channel)[server]
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
        switch, last = self.group.switches_of(channel)[server], self.servers - 2
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


CHUNKS = 4
BETWEEN_TREE = "NVLS_TREE"


def original_nvls_schedule(group: RankGroup, size_bytes: int, first_id: int) -> FlowSchedule:
    """The flows of SimAI 1.6: four chunks of size // 4 bytes, what is left over is lost; none for several servers.

    The original keeps a chunk's size in a signed 32-bit integer, so that from 8 GiB on it wraps round.
    """
    if group.server_count > 1:
        return empty_schedule(NVLS, first_id)
    size = size_bytes // CHUNKS % (1 << 32)
    if size >= 1 << 31:
        size += (1 << 64) - (1 << 32)
    numbering = Numbering(first_id)
    for chunk in range(CHUNKS):
        for switch in group.switches:
            numbering.add(0, _one_server(group.members, switch), [size], chunk, CHUNKS)
    return _with_children(numbering.schedule(NVLS))


def _with_children(schedule: FlowSchedule) -> FlowSchedule:
    """The same flows, few of them, each naming the flows that wait for it."""
    trains = [train for source in schedule.sources for train in schedule.trains(source)]
    children: dict[int, list[tuple[int]]] = {}
    for train in trains:
        for (parent,) in train.parents:
            children.setdefault(parent, []).append((train.ids[0],))
    named = [train._replace(children=tuple(children.get(train.ids[0], ()))) for train in trains]
    grouped = by_source(named)
    return schedule._replace(trains=lambda source: grouped[source])


def _one_server(ranks: Sequence[int], switch: int) -> list[WaveStep]:
    """Every rank sends to the switch, and the switch the sum to every rank."""
    ups = tuple(range(len(ranks)))
    return fan(ranks, [switch], (), INSIDE) + fan([switch], ranks, ups, INSIDE)


def nvls_schedule(group: RankGroup, size_bytes: int, first_id: int, between: str) -> FlowSchedule:
    """An AllReduce in which switches add inside servers, and `between` (tree, ring) joins the servers' sums."""
    numbering = Numbering(first_id)
    if group.server_count == 1:
        channels = min(group.planes, size_bytes)
        for channel, sizes in enumerate(cut_twice(size_bytes, channels, min(CHUNKS, size_bytes // channels))):
            numbering.add(channel, _one_server(group.members, *group.switches_of(channel)), sizes)
        return numbering.schedule(NVLS)
    if between == "tree":
        channels = min(2 * group.local_count, size_bytes)
        chunks = min(CHUNKS, size_bytes // channels)
        for channel, sizes in enumerate(cut_twice(size_bytes, channels, chunks)):
            its = group._replace(switches=group.switches_of(channel))
            numbering.add(channel, _tree_steps(its, channel // 2, channel % 2), sizes)
        return numbering.schedule(NVLS_TREE)
    channels = min(group.local_count, size_bytes)
    chunks = min(group.server_count, size_bytes // channels)
    return NvlsRings(group, cut_twice(size_bytes, channels, chunks), first_id).schedule()


def _gather(group: RankGroup, head: int) -> tuple[list[WaveStep], list[int]]:
    """In every server all ranks send to the switch, which sends the sum to local rank `head`; returns that step too."""
    steps: list[WaveStep] = []
    sums = []
    for ranks, switch in zip(group.servers, group.switches, strict=True):
        begin = len(steps)
        steps += fan(ranks, [switch], (), INSIDE)
        sums.append(len(steps))
        steps.append(WaveStep(switch, ranks[head], tuple(range(begin, len(steps))), INSIDE))
    return steps, sums


def _spread(steps: list[WaveStep], group: RankGroup, head: int, totals: Sequence[tuple[int, ...]]) -> None:
    """In every server local rank `head`, once it has the total, sends it over the switch to all ranks."""
    for ranks, switch, parents in zip(group.servers, group.switches, totals, strict=True):
        steps.append(WaveStep(ranks[head], switch, parents, INSIDE))
        steps += fan([switch], ranks, (len(steps) - 1,), INSIDE)


def _tree_steps(group: RankGroup, head: int, shift: int) -> list[WaveStep]:
    """Sums of servers go up a binary tree over the servers' heads, and the total comes down."""
    steps, sums = _gather(group, head)
    heads = [ranks[head] for ranks in group.servers]
    root, children = server_tree(len(heads), shift)
    top_down = [root]
    for server in top_down:  # grows
        top_down += children[server]
    above = {child: server for server, below in enumerate(children) for child in below}
    received = [[number] for number in sums]
    for server in reversed(top_down[1:]):
        received[above[server]].append(len(steps))
        steps.append(WaveStep(heads[server], heads[above[server]], tuple(received[server]), BETWEEN_TREE))
    totals = {root: tuple(received[root])}
    for server in top_down:
        for child in children[server]:
            parents = totals[server]
            totals[child] = (len(steps),)
            steps.append(WaveStep(heads[server], heads[child], parents, BETWEEN_TREE))
    _spread(steps, group, head, [totals[server] for server in range(len(heads))])
    return steps
