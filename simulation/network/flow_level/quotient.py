"""Makes the state of a simulation: one hop for all that are alike, for each time that a collective takes place."""

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from simulation.network.flow_level.fluid_state import Fluid, HopColumns, Whole, begin
from simulation.network.flow_level.hops import Hop
from simulation.network.flow_level.lanes import CostModel, LaneBook, SentFlows, Way, way_of_flow
from simulation.network.flow_level.net import HopNet, Laid
from simulation.network.flow_level.refine import Likeness

EMPTY: Mapping[int, float] = MappingProxyType({})
NOBODY = -1  # the kind of an NVSwitch, and its part of a collective


class Classes:
    """The kinds of hops and ranks of a partition, each with its first member.

    `hops_of_key[k]` are the kinds of hops of the k-th different collective; `leaving[h]` and `entering[h]` say how many
    hops of a kind begin at one rank of the sender's kind and end at one of the receiver's. `late`: see turn_taking.
    """

    def __init__(self, net: HopNet, likeness: Likeness, late: Mapping[int, float] = EMPTY) -> None:
        self.net, self.likeness, self.late = net, likeness, late
        self.first_hop: dict[int, int] = {}
        self._steps: int | None = None
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
        hop = self.net.hops[self.first_hop[colour]]
        return hop if self._steps is None else hop._replace(steps=self._steps)

    def shortened(self, steps: int) -> "Classes":
        """The same kinds, each hop with so many steps."""
        found = copy.copy(self)
        found._steps = steps
        return found

    def kind(self, node: int) -> int:
        """The kind of a rank, NOBODY for an NVSwitch."""
        return self.likeness.ranks[node] if node < len(self.likeness.ranks) else NOBODY

    def kinds_at(self, colour: int) -> set[int]:
        """The kinds of the ranks at both ends of hops of a kind."""
        hop = self.hop(colour)
        return {self.kind(hop.source), self.kind(hop.target)} - {NOBODY}


class Built(NamedTuple):
    """A state, the hops in it by the number of their collective and then by kind, the parts by both, and the port of
    each link.

    `issued` are the hops that a rank of a kind begins; `free`: see LaneBook; `sent` are the columns of flows whose
    lanes were found at once, in the order of the state.
    """

    state: Fluid
    hops: dict[int, dict[int, int]]
    parts: dict[tuple[int, int], int]
    issued: dict[tuple[int, int], Whole]
    ports: list[int]
    free: bool
    sent: SentFlows | None


Filled = Callable[[object, int], Whole]


class Builder:
    """Collects hops of collectives as columns."""

    def __init__(self, classes: Classes) -> None:
        self.classes, self.book = classes, LaneBook()
        self.columns = HopColumns([], [], [], [], [], [], [], [], [], [], [], [])
        self.hops: dict[int, dict[int, int]] = {}
        self.parts: dict[tuple[int, int], int] = {}
        self.issued: dict[tuple[int, int], list[int]] = {}
        self.pending: list[int] = []
        self.flow_lane: Whole = []
        self.sent: SentFlows | None = None

    def add(self, number: int, lane_of: Callable[[int], int], colours: Sequence[int]) -> None:
        """The hops of collective `number` that have one of these kinds; `lane_of` gives the lane of a kind."""
        columns, classes = self.columns, self.classes
        first = len(columns.steps)
        self.hops[number] = dict(zip(colours, range(first, first + len(colours)), strict=True))
        hops = [classes.hop(colour) for colour in colours]
        counts = [classes.leaving.get(colour, 0) for colour in colours]
        senders = [classes.kind(hop.source) for hop in hops]
        columns.steps.extend([hop.steps for hop in hops])
        columns.size.extend([float(hop.size) for hop in hops])
        columns.lane.extend([lane_of(colour) for colour in colours])
        columns.gap.extend([float(hop.gap) for hop in hops])
        columns.release_gap.extend([float(hop.release_gap) for hop in hops])
        columns.out_part.extend(self._parts(number, senders, hops, counts))
        columns.out_count.extend(counts)
        counts = [classes.entering.get(colour, 0) for colour in colours]
        columns.in_part.extend(self._parts(number, [classes.kind(hop.target) for hop in hops], hops, counts))
        columns.in_count.extend(counts)
        columns.late.extend(self._late(colours))
        its = zip(colours, hops, strict=True)
        columns.parents.extend([self._parents(number, colour, hop) for colour, hop in its])
        columns.issued.extend([int(sender != NOBODY) for sender in senders])
        for place, sender in enumerate(senders, first):
            if sender != NOBODY:
                self.issued.setdefault((number, sender), []).append(place)

    def _late(self, colours: Sequence[int]) -> list[float]:
        """How much later than its fair end each hop of these kinds ends."""
        return [self.classes.late.get(self.classes.first_hop[colour], 0.0) for colour in colours]

    def _parents(self, number: int, colour: int, hop: Hop) -> Sequence[tuple[int, int]]:
        if not hop.parents:
            return ()
        of_hop, places, own = self.classes.likeness.hops, self.hops[number], self.classes.first_hop[colour]
        parents = sorted({(of_hop[own + behind], shift) for behind, shift in hop.parents})
        return [(places[parent], shift) for parent, shift in parents]

    def _parts(self, number: int, kinds: Sequence[int], hops: Sequence[Hop], counts: Sequence[int]) -> list[int]:
        """The part of each hop's rank of a kind, which sends or receives so many of its flows at once."""
        known, pending, found = self.parts, self.pending, []
        for kind, hop, count in zip(kinds, hops, counts, strict=True):
            part = NOBODY if kind == NOBODY else known.setdefault((number, kind), len(known))
            if part == len(pending):
                pending.append(0)
            if kind != NOBODY:
                pending[part] += hop.steps * count
            found.append(part)
        return found

    def built(self, filled: Filled) -> Built:
        """The state before the first event."""
        state = begin(self.columns, self.book.columns(), self.pending, self.flow_lane, filled)
        book = self.book
        return Built(state, self.hops, self.parts, dict(self.issued), list(book.numbers), book.free, self.sent)


class AlikeLanes:
    """The lanes of kinds of hops: on each link as many flows as hops of this kind use one link of its kind."""

    def __init__(self, classes: Classes, laid: Sequence[Laid], window: int) -> None:
        self.classes, self._laid, self._window = classes, laid, window
        of_hop, of_link = classes.likeness.hops, classes.likeness.links
        self._first_port: dict[int, int] = {}
        for number in classes.first_hop.values():
            for port in (*laid[number].forward, *laid[number].back):
                self._first_port.setdefault(of_link[port], port)
        ports = set(self._first_port.values())
        self._data: dict[int, dict[int, tuple[float, int]]] = {}
        self._acks: dict[int, dict[int, float]] = {}
        for colour, each in zip(of_hop, laid, strict=True):
            if not ports.isdisjoint(each.forward):
                data = self._data.setdefault(colour, {})
                for port, cost in zip(each.forward, each.costs.forward, strict=True):
                    if port in ports:
                        took, count = data.get(of_link[port], (0.0, 0))
                        data[of_link[port]] = took + cost, count + 1
            if not ports.isdisjoint(each.back):
                acks = self._acks.setdefault(colour, {})
                for port, cost in zip(each.back, each.costs.back, strict=True):
                    if port in ports:
                        acks[of_link[port]] = acks.get(of_link[port], 0.0) + cost

    def of(self, builder: Builder) -> Callable[[int], int]:
        """Gives the lane of a kind in a builder's book."""
        return cache(lambda colour: self._lane(builder.book, colour))

    def _lane(self, book: LaneBook, colour: int) -> int:
        of_link, first_port = self.classes.likeness.links, self._first_port
        own = self._laid[self.classes.first_hop[colour]]
        burst = min(self.classes.hop(colour).size, self._window)
        data, links = self._data.get(colour, {}), dict.fromkeys([of_link[port] for port in own.forward])
        return book.add(
            [(first_port[link], data[link][0], burst * data[link][1]) for link in links],
            [(first_port[link], cost) for link, cost in self._acks.get(colour, {}).items()],
            [(first_port[of_link[port]], pace) for port, pace in zip(own.back, own.costs.paces, strict=True)],
            own.costs,
            burst,
        )


def repeated_pairs(hops: Sequence[Hop]) -> dict[tuple[int, int], int]:
    """How many of these hops there are of each sender and receiver that have several."""
    counts = Counter([hop[:2] for hop in hops])
    return {} if len(counts) == len(hops) else {pair: count for pair, count in counts.items() if count > 1}


class FlowLanes:
    """Gives every flow a way of its own: the k-th flow of a pair has the k-th port number."""

    def __init__(self, builder: Builder, model: CostModel) -> None:
        self._builder, self._model = builder, model
        self._sent: dict[tuple[int, int], int] = {}  # by the collectives before the last one
        self._last: list[Hop] = []
        self._flows = SentFlows([], [], [], [], [], [])

    def add(self, colours: Iterable[int]) -> None:
        """The flows of one more collective, in the order of its hops."""
        sent, flows, before = self._sent, self._flows, dict[tuple[int, int], int]()
        for hop in self._last:
            sent[hop[:2]] = sent.get(hop[:2], 0) + hop.steps
        hops = self._last = [self._builder.classes.hop(colour) for colour in colours]
        together = repeated_pairs(hops)
        for hop in hops:
            pair = hop[:2]
            flows.first.append(sent.get(pair, 0) + before.get(pair, 0))
            if pair in together:
                before[pair] = before.get(pair, 0) + 1
        flows.source.extend([hop.source for hop in hops])
        flows.target.extend([hop.target for hop in hops])
        flows.stride.extend([together.get(hop[:2], 1) for hop in hops] if together else [1] * len(hops))
        flows.steps.extend([hop.steps for hop in hops])
        flows.size.extend([hop.size for hop in hops])

    def finish(self, *, at_once: bool) -> None:
        """Put the lanes of all flows into the book, with numpy (`at_once`) or one by one."""
        builder, model = self._builder, self._model
        if at_once:
            from simulation.network.flow_level.many_lanes import add_lanes

            builder.flow_lane, builder.sent = add_lanes(builder.book, model, self._flows), self._flows
            return
        known: dict[tuple[Way, int], int] = {}
        for source, target, first, stride, steps, size in zip(*self._flows, strict=True):
            for step in range(steps):
                key = way_of_flow(model.ways, source, target, first + stride * step), size
                if key not in known:
                    known[key] = self._lane(*key)
                builder.flow_lane.append(known[key])

    def _lane(self, way: Way, size: int) -> int:
        costs, burst = self._model.costs(way, size), min(size, self._model.window)
        return self._builder.book.add(
            [(port, cost, burst) for port, cost in zip(way.forward, costs.forward, strict=True)],
            list(zip(way.back, costs.back, strict=True)),
            list(zip(way.back, costs.paces, strict=True)),
            costs,
            burst,
        )
