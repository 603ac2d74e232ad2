"""Writes what the flow level found: a line for each flow, and how busy each link was."""

import itertools
from collections import Counter
from functools import cache
from itertools import pairwise
from operator import itemgetter
from pathlib import Path

from common.whole_files import write_whole
from simulation.network.flow_level.lanes import BITS, HEADER_BYTES, way_of_flow
from simulation.network.flow_level.port_routes import DPORT, FIRST_SPORT, PortRoutes, round_trip
from simulation.network.flow_level.simulate import FlowGroup, FlowRun
from simulation.network.tables import address_text
from simulation.network.view import BusyLink, LinkUse, fitted

LINES = 4096  # of fct.txt, written at once
SLICES = 20  # of the makespan, of each of which a link's load is told


def write_flows(path: Path, run: FlowRun, ways: PortRoutes, payload: int) -> None:
    """Write all flows in order of their ends, in the form of ns-3's fct.txt."""
    lines: list[tuple[float, str]] = []
    known: dict[tuple[int, int], list[tuple[float, str]]] = {}
    text_of = cache(address_text)
    for group in run.groups():
        where = group.number, group.kind
        if where not in known:
            known[where] = _tails(run, group, _ideal(ways, group, payload))
        ends = f"{text_of(group.source)} {text_of(group.target)}"
        sports = itertools.count(group.sport, group.stride)
        its = zip(sports, known[where], strict=False)
        lines += [(end, f"{ends} {sport} {tail}") for sport, (end, tail) in its if end >= 0]
    lines.sort(key=itemgetter(0))
    starts = range(0, len(lines), LINES)
    write_whole(path, ("".join(line for _end, line in lines[at : at + LINES]).encode("ascii") for at in starts))


def _tails(run: FlowRun, group: FlowGroup, ideal: int) -> list[tuple[float, str]]:
    """The end of each flow of a hop, and its line from the receiver's port on."""
    tails = []
    for start, end in zip(*run.times(group.number, group.kind), strict=True):
        begun = round(start)
        tails.append((end, f"{DPORT} {group.size} {begun} {round(end) - begun} {ideal}\n"))
    return tails


def _ideal(ways: PortRoutes, group: FlowGroup, payload: int) -> int:
    """ns of a flow alone: round trip, and its bytes with headers over the slowest link."""
    rtt, bps = round_trip(ways.first_links(group.source, group.target), payload)
    return rtt + (group.size + -(-group.size // payload) * HEADER_BYTES) * BITS // bps


class LinkLoads:
    """Bytes of data on each port, in slices of the time from the first flow's start to the last one's end.

    The bytes of a flow count evenly over its time.
    """

    def __init__(self, run: FlowRun, ways: PortRoutes, begin: float, end: float) -> None:
        self.ways, self.begin, self.slice_ns = ways, begin, max(end - begin, 1.0) / SLICES
        self.loads: dict[int, list[float]] = {}
        built = run.work.built
        if run.collide and not built.free and not isinstance(built.state.end, list):
            from simulation.network.flow_level.many_lanes import loads_of_lanes  # needs numpy

            self.loads = loads_of_lanes(built.state, built.ports, begin, self.slice_ns, SLICES)
            return
        known: dict[tuple[int, int], list[list[float]]] = {}
        fixed_on: dict[int, Counter[tuple[int, int]]] = {}
        for group in run.groups():
            where = group.number, group.kind
            if where not in known:
                times = zip(*run.times(*where), strict=True)
                known[where] = [self._parts(float(start), float(end), group.size) for start, end in times]
            fixed = ways.only_path(group.source, group.target)
            if fixed is not None:
                for port in fixed:
                    fixed_on.setdefault(port, Counter())[where] += 1
                continue
            for step, parts in enumerate(known[where]):
                number = group.sport - FIRST_SPORT + step * group.stride
                way = way_of_flow(ways, group.source, group.target, number)
                shares = way.forward_shares or (1.0,) * len(way.forward)
                self._add(list(zip(way.forward, shares, strict=True)), parts)
        totals = {where: [sum(column) for column in zip(*parts, strict=True)] for where, parts in known.items()}
        for port, hops in fixed_on.items():
            for where, count in hops.items():
                self._add([(port, count)], totals[where])

    def _add(self, way: list[tuple[int, float]], parts: list[float]) -> None:
        for port, share in way:
            its = self.loads.setdefault(port, [0.0] * SLICES)
            for place, size in enumerate(parts):
                its[place] += share * size

    def _parts(self, start: float, end: float, size: int) -> list[float]:
        """The bytes of a flow in each slice."""
        found = [0.0] * SLICES
        if end < 0:
            return found
        first, last = (min(int((each - self.begin) / self.slice_ns), SLICES - 1) for each in (start, end))
        if first == last or end <= start:
            found[first] = float(size)
            return found
        edges = [start, *(self.begin + place * self.slice_ns for place in range(first + 1, last + 1)), end]
        for place, (since, until) in enumerate(pairwise(edges), first):
            found[place] = size * (until - since) / (end - start)
        return found

    def busiest(self) -> list[tuple[int, float]]:
        """The ports that carry data, with the share of the time in which their bytes fill them, the busiest first."""
        full = [(port, self._share(port, sum(its), SLICES)) for port, its in self.loads.items()]
        return sorted(full, key=lambda each: (-each[1], each[0]))

    def _share(self, port: int, size: float, slices: int) -> float:
        return size * BITS / (self.ways.link(port).bps * self.slice_ns * slices)

    def use(self, names: list[str]) -> LinkUse:
        """All links that carry data, by the names of their ports."""
        links = []
        for port, _share in self.busiest():
            its = self.loads[port]
            shares = fitted(self._share(port, size, 1) for size in its)
            links.append(BusyLink(names[port], self.ways.link(port).bps / 1e9, round(sum(its)), shares))
        return LinkUse(links, self.begin, self.slice_ns)
