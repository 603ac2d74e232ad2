"""Makes the state of a simulation: one hop for all that are alike, for each time that a collective takes place."""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from simulation.network.flow_level.fluid_state import Fluid, HopColumns, Whole, begin
from simulation.network.flow_level.hops import Hop
from simulation.network.flow_level.lanes import CostModel, LaneBook, Way, way_of_flow
from simulation.network.flow_level.net import HopNet, Laid
from simulation.network.flow_level.refine import Likeness

NOBODY = -1  # the kind of an NVSwitch, and its part of a collective


class Classes:
    """The kinds of hops and ranks of a partition, each with its first member.

    `hops_of_key[k]` are the kinds of hops of the k-th different collective; `leaving[h]` and `entering[h]` say how many
    hops of a kind begin at one rank of the sender's kind and end at one of the receiver's.
    """

    def __init__(self, net: HopNet, likeness: Likeness) -> None:
        self.net, self.likeness = net, likeness
        self.first_hop: dict[int, int] = {}
        for number, colour in enumerate(likeness.hops):
            self.first_hop.setdefault(colour, number)
        self.first_rank: dict[int, int] = {}
        for rank, colour in enumerate(likeness.ranks):
            self.first_rank.setdefault(colour, rank)
        self.hops_of_key = [list(dict.fromkeys(likeness.hops[hop] for hop in net.of_key(key))) for key in net.keys]
        self.leaving: dict[int, int] = {}
        self.entering: dict[int, int] = {}
        firsts = set(self.first_rank.values())
        for hop, colour in zip(net.hops, likeness.hops, strict=True):
            if hop.source in firsts:
                self.leaving[colour] = self.leaving.get(colour, 0) + 1
            if hop.target in firsts:
                self.entering[colour] = self.entering.get(colour, 0) + 1

    def hop(self, colour: int) -> Hop:
        """The first hop of a kind."""
        return self.net.hops[self.first_hop[colour]]

    def kind(self, node: int) -> int:
        """The kind of a rank, NOBODY for an NVSwitch."""
        return self.likeness.ranks[node] if node < len(self.likeness.ranks) else NOBODY

    def kinds_at(self, colour: int) -> set[int]:
        """The kinds of the ranks at both ends of hops of a kind."""
        hop = self.hop(colour)
        return {self.kind(hop.source), self.kind(hop.target)} - {NOBODY}


class Built(NamedTuple):
    """A state, the hops and parts in it by the number of their collective and their kind, and the port of each link.

    `issued` are the hops that a rank of a kind begins.
    """

    state: Fluid
    hops: dict[tuple[int, int], int]
    parts: dict[tuple[int, int], int]
    issued: dict[tuple[int, int], list[int]]
    ports: list[int]


Filled = Callable[[object, int], Whole]


class Builder:
    """Collects hops of collectives as columns."""

    def __init__(self, classes: Classes) -> None:
        self.classes, self.book = classes, LaneBook()
        self.columns = HopColumns([], [], [], [], [], [], [], [], [], [], [])
        self.hops: dict[tuple[int, int], int] = {}
        self.parts: dict[tuple[int, int], int] = {}
        self.issued: dict[tuple[int, int], list[int]] = {}
        self.pending: list[int] = []
        self.flow_lane: list[int] = []

    def add(self, number: int, lane_of: Callable[[int], int], colours: Sequence[int]) -> None:
        """The hops of collective `number` that have one of these kinds; `lane_of` gives the lane of a kind."""
        columns, classes = self.columns, self.classes
        first = len(columns.steps)
        for place, colour in enumerate(colours):
            self.hops[number, colour] = first + place
        for colour in colours:
            hop, place = classes.hop(colour), len(columns.steps)
            sender, receiver = classes.kind(hop.source), classes.kind(hop.target)
            counts = classes.leaving.get(colour, 0), classes.entering.get(colour, 0)
            columns.steps.append(hop.steps)
            columns.size.append(float(hop.size))
            columns.lane.append(lane_of(colour))
            columns.gap.append(float(hop.gap))
            columns.release_gap.append(float(hop.release_gap))
            columns.out_part.append(self._part(number, sender, hop.steps * counts[0]))
            columns.out_count.append(counts[0])
            columns.in_part.append(self._part(number, receiver, hop.steps * counts[1]))
            columns.in_count.append(counts[1])
            parents = {(classes.likeness.hops[parent], shift) for parent, shift in hop.parents}
            columns.parents.append([(self.hops[number, parent], shift) for parent, shift in sorted(parents)])
            columns.issued.append(int(sender != NOBODY))
            if sender != NOBODY:
                self.issued.setdefault((number, sender), []).append(place)

    def _part(self, number: int, kind: int, flows: int) -> int:
        if kind == NOBODY:
            return NOBODY
        part = self.parts.setdefault((number, kind), len(self.parts))
        if part == len(self.pending):
            self.pending.append(0)
        self.pending[part] += flows
        return part

    def built(self, filled: Filled) -> Built:
        """The state before the first event."""
        state = begin(self.columns, self.book.columns(), self.pending, self.flow_lane, filled)
        return Built(state, self.hops, self.parts, self.issued, list(self.book.numbers))


def alike_lanes(builder: Builder, laid: Sequence[Laid], window: int) -> Callable[[int], int]:
    """The lane of each kind of hops: on each link as many flows as hops of this kind use one link of its kind."""
    classes, book = builder.classes, builder.book
    of_hop, of_link = classes.likeness.hops, classes.likeness.links
    first_port: dict[int, int] = {}
    for number in classes.first_hop.values():
        for port in (*laid[number].forward, *laid[number].back):
            first_port.setdefault(of_link[port], port)
    ports = set(first_port.values())
    data: dict[int, dict[int, tuple[float, int]]] = {}
    acks: dict[int, dict[int, float]] = {}
    for colour, each in zip(of_hop, laid, strict=True):
        for port, cost in zip(each.forward, each.costs.forward, strict=True):
            if port in ports:
                link = of_link[port]
                took, count = data.setdefault(colour, {}).get(link, (0.0, 0))
                data[colour][link] = took + cost, count + 1
        for port, cost in zip(each.back, each.costs.back, strict=True):
            if port in ports:
                its = acks.setdefault(colour, {})
                its[of_link[port]] = its.get(of_link[port], 0.0) + cost
    known: dict[int, int] = {}

    def lane_of(colour: int) -> int:
        if colour not in known:
            own = laid[classes.first_hop[colour]]
            halves = [(first_port[of_link[port]], half) for port, half in zip(own.back, own.costs.halves, strict=True)]
            links = dict.fromkeys(of_link[port] for port in own.forward)
            burst = min(classes.hop(colour).size, window)
            known[colour] = book.add(
                [(first_port[link], data[colour][link][0], burst * data[colour][link][1]) for link in links],
                [(first_port[link], cost) for link, cost in acks.get(colour, {}).items()],
                halves,
                own.costs.delay,
            )
        return known[colour]

    return lane_of


class FlowLanes:
    """Gives every flow a way of its own: the k-th flow of a pair has the k-th port number."""

    def __init__(self, builder: Builder, model: CostModel) -> None:
        self._builder, self._model = builder, model
        self._sent: dict[tuple[int, int], int] = {}
        self._known: dict[tuple[Way, int], int] = {}

    def add(self, colours: Iterable[int]) -> None:
        """Lanes for the flows of one more collective, in the order of its hops."""
        hops = [self._builder.classes.hop(colour) for colour in colours]
        together: dict[tuple[int, int], int] = {}
        for hop in hops:
            pair = hop.source, hop.target
            together[pair] = together.get(pair, 0) + 1
        before: dict[tuple[int, int], int] = {}
        for hop in hops:
            pair = hop.source, hop.target
            first, stride = self._sent.get(pair, 0) + before.get(pair, 0), together[pair]
            before[pair] = before.get(pair, 0) + 1
            for step in range(hop.steps):
                self._builder.flow_lane.append(self._lane(pair, first + stride * step, hop.size))
        for hop in hops:
            pair = hop.source, hop.target
            self._sent[pair] = self._sent.get(pair, 0) + hop.steps

    def _lane(self, pair: tuple[int, int], number: int, size: int) -> int:
        way = way_of_flow(self._model.ways, *pair, number)
        key = way, size
        if key not in self._known:
            costs, burst = self._model.costs(way, size), min(size, self._model.window)
            self._known[key] = self._builder.book.add(
                [(port, cost, burst) for port, cost in zip(way.forward, costs.forward, strict=True)],
                list(zip(way.back, costs.back, strict=True)),
                list(zip(way.back, costs.halves, strict=True)),
                costs.delay,
            )
        return self._known[key]
