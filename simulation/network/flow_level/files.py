"""Writes what the flow level found: a line for each flow, and how busy each link was."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache, partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from common.whole_files import write_whole
from simulation.network.flow_level.fluid_state import Fluid
from simulation.network.flow_level.lanes import BITS, SentFlows, Way, on_wire, way_of_flow
from simulation.network.flow_level.net import fixed_way
from simulation.network.flow_level.port_routes import DPORT, FIRST_SPORT, PortRoutes
from simulation.network.flow_level.simulate import FlowGroup, FlowRun
from simulation.network.tables import address_text
from simulation.network.view import BusyLink, LinkUse, fitted

LINES = 4096  # of fct.txt, written at once
SLICES = 20  # of the makespan, of each of which a link's load is told


def write_flows(path: Path, run: FlowRun, ways: PortRoutes, payload: int) -> None:
    """Write all flows in order of their ends, in the form of ns-3's fct.txt."""
    if run.work.built.sent is not None:
        write_whole(path, _lines_at_once(run.work.built.sent, run.work.built.state, ways, payload))
        return
    lines: list[tuple[float, str]] = []
    known: dict[tuple[int, int], list[tuple[float, str]]] = {}
    text_of, ideal_of = cache(address_text), cache(partial(_ideal, payload))
    for group in run.groups():
        number, kind, source, target, size, sport, stride = group
        tails = known.get((number, kind))
        if tails is None:
            tails = _tails(run, group, ideal_of(ways.ideal_trip(source, target, payload), size))
            if not run.collide:  # else no other hop is of its kind
                known[number, kind] = tails
        ends = f"{text_of(source)} {text_of(target)}"
        its = zip(range(sport, sport + stride * len(tails), stride), tails, strict=True)
        lines += [(end, f"{ends} {port} {tail}") for port, (end, tail) in its if end >= 0]
    lines.sort(key=itemgetter(0))
    starts = range(0, len(lines), LINES)
    write_whole(path, ("".join([line for _end, line in lines[at : at + LINES]]).encode("ascii") for at in starts))


def _lines_at_once(sent: SentFlows, state: Fluid, ways: PortRoutes, payload: int) -> Iterator[bytes]:
    """The lines of flows that have columns."""
    from simulation.network.flow_level.many_lanes import lines_of_flows  # needs numpy

    ideal_of, trip = cache(partial(_ideal, payload)), ways.ideal_trip
    ends = zip(sent.source, sent.target, sent.size, strict=True)
    ideals = [ideal_of(trip(source, target, payload), size) for source, target, size in ends]
    names = [address_text(node) for node in range(len(ways.roles))]
    return lines_of_flows(sent, state, names, ideals, LINES)


def _tails(run: FlowRun, group: FlowGroup, ideal: int) -> list[tuple[float, str]]:
    """The end of each flow of a hop, and its line from the receiver's port on."""
    starts, ends = run.times(group.number, group.kind)
    before = f"{DPORT} {group.size}"
    return [
        (end, f"{before} {(begun := round(start))} {round(end) - begun} {ideal}\n")
        for start, end in zip(starts, ends, strict=True)
    ]


def _ideal(payload: int, trip: tuple[int, int], size: int) -> int:
    """ns of a flow alone: round trip, and its bytes with headers over the slowest link (bit/s)."""
    rtt, bps = trip
    sent: int = on_wire(size, payload)[0]
    return rtt + sent * BITS // bps


def _sent(way: Way, data: int, acks: int) -> list[tuple[int, float]]:
    """The bytes of a flow on each port, there and back."""
    sides = (way.forward, way.forward_shares, data), (way.back, way.back_shares, acks)
    return [
        (port, share * size)
        for ports, shares, size in sides
        for port, share in zip(ports, shares or (1.0,) * len(ports), strict=True)
    ]


class LinkLoads:
    """Bytes on the wire by port, headers and ACKs included, in slices from the first flow's start to the last one's
    end.

    The bytes of a flow count evenly over its time, and so do its ACKs.
    """

    def __init__(self, run: FlowRun, ways: PortRoutes, begin: float, end: float, payload: int) -> None:
        self.ways, self.begin, self.slice_ns = ways, begin, max(end - begin, 1.0) / SLICES
        self.loads: dict[int, list[float]] = {}
        built = run.work.built
        if run.collide and not built.free and not isinstance(built.state.end, list):
            from simulation.network.flow_level.many_lanes import loads_of_lanes  # needs numpy

            self.loads = loads_of_lanes(built.state, built.ports, payload, begin, self.slice_ns, SLICES)
            return
        known: dict[tuple[int, int], list[list[float]]] = {}
        alike = Counter[tuple[int, int, Way, int]]()  # hops on a fixed way, by their bytes
        fixed_ways = cache(partial(fixed_way, ways))
        for group in run.groups():
            where = group.number, group.kind
            if where not in known:
                times = zip(*run.times(*where), strict=True)
                known[where] = [self._parts(float(start), float(end)) for start, end in times]
            fixed = fixed_ways(group.source, group.target)
            if fixed is not None:
                alike[*where, fixed, group.size] += 1
                continue
            data, acks = on_wire(group.size, payload)
            for step, parts in enumerate(known[where]):
                number = group.sport - FIRST_SPORT + step * group.stride
                for port, size in _sent(way_of_flow(ways, group.source, group.target, number), data, acks):
                    self._add(port, size, parts)
        totals = {where: [sum(column) for column in zip(*parts, strict=True)] for where, parts in known.items()}
        self._add_alike(alike, totals, payload)

    def _add_alike(
        self, alike: Counter[tuple[int, int, Way, int]], totals: dict[tuple[int, int], list[float]], payload: int
    ) -> None:
        """The bytes of hops on fixed ways; `totals` are the parts of all flows of one by collective and kind."""
        fixed_on = defaultdict[int, Counter[tuple[int, int, float]]](Counter)
        for (number, kind, way, flow_size), count in alike.items():
            for port, size in _sent(way, *on_wire(flow_size, payload)):
                fixed_on[port][number, kind, size] += count
        for port, hops in fixed_on.items():
            for (number, kind, size), count in hops.items():
                self._add(port, count * size, totals[number, kind])

    def _add(self, port: int, size: float, parts: list[float]) -> None:
        its = self.loads.setdefault(port, [0.0] * SLICES)
        for place, part in enumerate(parts):
            its[place] += size * part

    def _parts(self, start: float, end: float) -> list[float]:
        """The part of a flow's bytes in each slice."""
        found = [0.0] * SLICES
        if end < 0:
            return found
        first, last = (min(int((each - self.begin) / self.slice_ns), SLICES - 1) for each in (start, end))
        if first == last or end <= start:
            found[first] = 1.0
            return found
        edges = [start, *(self.begin + place * self.slice_ns for place in range(first + 1, last + 1)), end]
        for place, (since, until) in enumerate(pairwise(edges), first):
            found[place] = (until - since) / (end - start)
        return found

    def busiest(self) -> list[tuple[int, float]]:
        """The ports that carry some, with the share of the time in which their bytes fill them, the busiest first."""
        full = [(port, self._share(port, sum(its), SLICES)) for port, its in self.loads.items()]
        return sorted(full, key=lambda each: (-each[1], each[0]))

    def _share(self, port: int, size: float, slices: int) -> float:
        return size * BITS / (self.ways.link(port).bps * self.slice_ns * slices)

    def use(self, names: list[str]) -> LinkUse:
        """All links that carry bytes, by the names of their ports."""
        links = []
        for port, _share in self.busiest():
            its = self.loads[port]
            shares = fitted(self._share(port, size, 1) for size in its)
            links.append(BusyLink(names[port], self.ways.link(port).bps / 1e9, round(sum(its)), shares))
        return LinkUse(links, self.begin, self.slice_ns, names)
