"""Finds the ports that a flow takes, in plain Python and only where one is asked for.

Rules of SimAI's ns-3 front end: shortest paths by hops, over NVSwitches inside a server, which is the set of GPUs that
share one; GPUs do not forward; equal next hops stand in descending order of node id, and a flow takes the one that a
hash of its addresses and ports names.
"""

from collections.abc import Collection, Sequence
from functools import cache, cached_property
from itertools import chain
from typing import NamedTuple

from common.units import bandwidth_bps, time_seconds
from simulation.network.hashing import HOST_SEED, address, hashed
from simulation.topology.fabric import GPU, NVSWITCH, Fabric

ECMP, RAIL, SPREAD = "ecmp", "rail", "spread"
ROUTINGS = (ECMP, RAIL, SPREAD)
DPORT, FIRST_SPORT = 100, 10_000

Shares = dict[int, float]  # by port: the share of a flow's bytes that it carries


class Link(NamedTuple):
    """One direction of a link: bit/s, and ns of propagation."""

    bps: int
    delay_ns: int


@cache
def round_trip(links: tuple[Link, ...], payload: int) -> tuple[int, int]:
    """The round trip over one link or more (ns), twice their delays and a payload's transmission on each; the slowest
    (bit/s).
    """
    return sum(2 * link.delay_ns + payload * 8_000_000_000 // link.bps for link in links), min(links).bps


class PortRoutes:
    """The ports of a network (2k and 2k + 1 are the directions of link k), and the ways over them."""

    def __init__(self, fabric: Fabric, routing: str = ECMP, closed: Collection[int] = ()) -> None:
        """closed: the ports that lead nowhere."""
        self.roles, self.routing, self.gpus = fabric.roles, routing, fabric.gpus
        kinds = [
            Link(int(bandwidth_bps(each.bandwidth)), round(time_seconds(each.latency) * 1e9)) for each in fabric.texts
        ]
        self.kinds = kinds
        self.kind_of = [*chain.from_iterable(zip(fabric.kinds, fabric.kinds, strict=True))]
        self.peer = [*chain.from_iterable(zip(fabric.second, fabric.first, strict=True))]
        leaving: list[list[int]] = [[] for _node in fabric.roles]
        self._leaving = leaving
        for port, owner in enumerate(chain.from_iterable(zip(fabric.first, fabric.second, strict=True))):
            if port not in closed:
                leaving[owner].append(port)
        self._peers: list[frozenset[int] | None] = [None] * len(fabric.roles)
        self._neighbours: list[dict[int, list[int]] | None] = [None] * len(fabric.roles)
        self._levels: dict[frozenset[int], list[frozenset[int]]] = {}
        self._entries_of: dict[int, frozenset[int]] = {}
        self._same_entries: dict[frozenset[int], frozenset[int]] = {}
        self._far: dict[tuple[int, frozenset[int]], list[int]] = {}
        self._kinds_to: dict[tuple[int, int], tuple[int, ...]] = {}
        self._first_ways: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}
        self._like: dict[int, int] = {}
        self._same_like: dict[tuple[tuple[int, int], ...], int] = {}
        self._trips: dict[tuple[tuple[int, ...], int], tuple[int, int]] = {}
        self._places: dict[int, int] = {}
        self._shares: dict[tuple[int, frozenset[int]], tuple[Shares, Shares]] = {}
        self._steps: dict[tuple[tuple[int, ...], frozenset[int]], tuple[list[Sequence[int]], tuple[int, ...]]] = {}

    def link(self, port: int) -> Link:
        """The link of a port."""
        return self.kinds[self.kind_of[port]]

    def ports_at(self, node: int) -> Sequence[int]:
        """All ports of a node."""
        return self._leaving[node]

    def owner(self, port: int) -> int:
        """The node whose port it is."""
        return self.peer[port ^ 1]

    def next_ports(self, node: int, target: int) -> Sequence[int]:
        """The ports by which a node forwards to a GPU or NVSwitch, of all shortest ways; none if there is no way."""
        ports_to = self._neighbours[node] or self._ports_to(node)
        direct = ports_to.get(target)
        if direct is not None:
            return direct
        own, others = self._peers[node] or self.switches_of(node), self._peers[target] or self.switches_of(target)
        if not own.isdisjoint(others):
            common = own & others
            if len(common) == 1:
                (nearest,) = common
                return ports_to[nearest]
            return self._ports_by(node, common)
        key = node, self._entries_of.get(target) or self._entries(target)
        found = self._far.get(key)
        if found is None:
            found = self._far[key] = self._ports_by(node, self._nearer(*key))
        return found

    def reaches(self, source: int, target: int) -> bool:
        """Whether there are ways between two nodes: a link, or switches that are linked with each other."""
        return not self.islands_at(source).isdisjoint(self.islands_at(target)) or target in self._ports_to(source)

    def meet(self, nodes: Collection[int]) -> bool:
        """Whether one island is next to all of some nodes."""
        for island in self.islands_at(next(iter(nodes))):
            members = {switch for switch, its in self._island_of.items() if its == island}
            if not any(members.isdisjoint(self.switches_of(node)) for node in nodes):
                return True
        return False

    def islands_at(self, node: int) -> frozenset[int]:
        """The islands of the switches next to a node; an island is a set of linked switches."""
        return frozenset(map(self._island_of.__getitem__, self.switches_of(node)))

    @cached_property
    def _island_of(self) -> dict[int, int]:
        """For each switch the first of all that are linked with it over switches."""
        found: dict[int, int] = {}
        for node, role in enumerate(self.roles):
            waiting = [] if role == GPU or node in found else [node]
            while waiting:
                each = waiting.pop()
                if each not in found:
                    found[each] = node
                    waiting += self.switches_of(each)
        return found

    def _ports_by(self, node: int, following: frozenset[int]) -> list[int]:
        """The ports of a node to neighbours of equal worth; inside a server those to NVSwitches alone."""
        ports_to = self._ports_to(node)
        if len(following) == 1:
            (nearest,) = following
            return ports_to[nearest]
        nearer = sorted(following, reverse=True)
        if self.roles[node] == GPU:
            nearer = [each for each in nearer if self.roles[each] == NVSWITCH] or nearer
        return [port for each in nearer for port in ports_to[each]]

    def _entries(self, target: int) -> frozenset[int]:
        """The neighbours of a target that forward to it from other switches; one object for targets that share them."""
        found = self._entries_of.get(target)
        if found is None:
            found = frozenset([each for each in self.switches_of(target) if self.switches_of(each)])
            found = self._entries_of[target] = self._same_entries.setdefault(found, found)
        return found

    def _ports_to(self, node: int) -> dict[int, list[int]]:
        """The ports of a node by the neighbour to which they lead."""
        found = self._neighbours[node]
        if found is None:
            found, peer = {}, self.peer
            self._neighbours[node] = found
            for port in self._leaving[node]:  # in ascending order
                found.setdefault(peer[port], []).append(port)
        return found

    def _nearer(self, node: int, entries: frozenset[int]) -> frozenset[int]:
        """The neighbours of a node, none of which is among a target's entries, that are nearest to these.

        Those k links away are next to some that are k - 1 links away.
        """
        around, peers = self.switches_of(node), self._peers
        levels = self._levels.setdefault(entries, [entries])
        level = 0
        while True:
            if level == len(levels):
                grown = frozenset[int]().union(*map(self.switches_of, levels[-1]))
                levels.append(grown.difference(*levels))
            if not levels[level]:
                return frozenset()
            nearer = [each for each in around if not levels[level].isdisjoint(peers[each] or self.switches_of(each))]
            if nearer:  # the level of the neighbours themselves, all leaves of a fabric, is never needed
                return frozenset(nearer)
            level += 1

    def switches_of(self, node: int) -> frozenset[int]:
        """The neighbours of a node that forward."""
        found = self._peers[node]
        if found is None:
            roles = self.roles
            found = self._peers[node] = frozenset([each for each in self._ports_to(node) if roles[each] != GPU])
        return found

    def path(self, source: int, target: int, sport: int, dport: int) -> list[int]:
        """The ports of one flow: by ns-3's hash, or by `rail` by the place of its GPU at its switch."""
        node, path = source, []
        word = sport | (dport << 16)
        while node != target:
            ports = self.next_ports(node, target)
            choice = 0
            if len(ports) > 1:
                if self.routing == RAIL:
                    choice = self._place(source if sport >= FIRST_SPORT else target)
                else:
                    seed = HOST_SEED if node == source else node
                    choice = hashed(address(source), address(target), word, seed)
            path.append(ports[choice % len(ports)])
            node = self.peer[path[-1]]
        return path

    def _place(self, gpu: int) -> int:
        """The place of a GPU among those of its first switch that is no NVSwitch."""
        if gpu not in self._places:
            switch = min((each for each in self.switches_of(gpu) if self.roles[each] != NVSWITCH), default=-1)
            gpus = [self.peer[port] for port in self._leaving[switch]] if switch >= 0 else [gpu]
            self._places.update({each: place for place, each in enumerate(sorted(gpus)) if self.roles[each] == GPU})
            self._places.setdefault(gpu, 0)
        return self._places[gpu]

    def only_path(self, source: int, target: int) -> list[int] | None:
        """The ports between two nodes where every node has one next port; None where one has several, or none."""
        node, path, peer = source, [], self.peer
        while node != target:
            ports = self.next_ports(node, target)
            if len(ports) != 1:
                return None
            path.append(ports[0])
            node = peer[ports[0]]
        return path

    def first_links(self, source: int, target: int) -> tuple[Link, ...]:
        """The links of these kinds."""
        return tuple([self.kinds[kind] for kind in self.first_kinds(source, target)])

    def first_kinds(self, source: int, target: int) -> tuple[int, ...]:
        """The kinds of the links between two nodes on the first of the shortest ways; none between a node and itself,
        and where there is no way.
        """
        return self.first_way(source, target)[1] if source != target else ()

    def first_way(self, source: int, target: int) -> tuple[int, tuple[int, ...]]:
        """The first port of the first of the shortest ways to another node, and the kinds of its links, which switches
        remember; -1 and none where there is no way.
        """
        own = self._peers[source] or self.switches_of(source)
        if not own.isdisjoint(self._peers[target] or self.switches_of(target)) or target in self._ports_to(source):
            return self._first_way(source, target)
        key = source, self._like.get(target) or self._entered(target)
        found = self._first_ways.get(key)
        if found is None:
            found = self._first_ways[key] = self._first_way(source, target)
        return found

    def _first_way(self, source: int, target: int) -> tuple[int, tuple[int, ...]]:
        ports = self.next_ports(source, target)
        if not ports:
            return -1, ()
        port = ports[0]
        following = self.peer[port]
        rest = self._kinds_to.get((following, target))
        if rest is None:
            rest = self._kinds_to[following, target] = self.first_kinds(following, target)
        return port, (self.kind_of[port], *rest)

    def _entered(self, target: int) -> int:
        """A number above 0 that targets share whose links lead, in order, to the same entries and are of equal kinds.

        Ways to these from afar differ in their last ports alone.
        """
        entries, peer = self._entries(target), self.peer
        its = tuple([(peer[port], self.kind_of[port]) for port in self._leaving[target] if peer[port] in entries])
        found = self._like[target] = self._same_like.setdefault(its, len(self._same_like) + 1)
        return found

    def ideal_trip(self, source: int, target: int, payload: int) -> tuple[int, int]:
        """The round trip (ns) and the slowest link (bit/s) from which ns-3 computes the ideal time of a flow.

        It knows round trips between GPUs alone. Of several switches next to both it takes that with the highest id,
        though NVSwitches are the way: a leaf on which a whole server is.
        """
        own = self._peers[source] or self.switches_of(source)
        others = self._peers[target] or self.switches_of(target)
        if not own.isdisjoint(others) and len(own & others) > 1:
            over = self._ports_to(max(own & others))
            rtt, bps = round_trip((self.link(over[source][0] ^ 1), self.link(over[target][0])), payload)
        else:
            kinds = self.first_way(source, target)[1] if source != target else ()
            found = self._trips.get((kinds, payload))
            if found is None:
                links = tuple([self.kinds[kind] for kind in kinds])
                found = self._trips[kinds, payload] = round_trip(links, payload)
            rtt, bps = found
        return 0 if NVSWITCH in (self.roles[source], self.roles[target]) else rtt, bps

    def steps(self, source: int, target: int) -> list[Sequence[int]]:
        """The ports of all ways between two nodes, step by step: every way takes one port of each step."""
        ports = self.next_ports(source, target)
        nodes = self._behind(ports)
        if nodes == (target,):
            return [ports]
        if target in self._ports_to(nodes[0]):
            between, last = list[Sequence[int]](), nodes
        else:
            between, last = self._steps_of(nodes, target)
        return [ports, *between, [port for node in last for port in self._ports_to(node)[target]]]

    def _steps_of(self, nodes: tuple[int, ...], target: int) -> tuple[list[Sequence[int]], tuple[int, ...]]:
        """The steps from switches to the neighbours of a target, and these; the same for all targets with the same
        neighbours.
        """
        key = nodes, self._entries(target)
        if key not in self._steps:
            found: list[Sequence[int]] = []
            while target not in self._ports_to(nodes[0]):
                found.append([port for node in nodes for port in self.next_ports(node, target)])
                nodes = self._behind(found[-1])
            self._steps[key] = found, nodes
        return self._steps[key]

    def _behind(self, ports: Sequence[int]) -> tuple[int, ...]:
        """The nodes to which ports lead."""
        return tuple(dict.fromkeys([self.peer[port] for port in ports]))

    def shares(self, source: int, target: int) -> Shares:
        """All ports between two nodes, with the share of the bytes of each if equal next ports share evenly."""
        found: Shares = {}
        last: Shares = {}  # by the node next to the target
        ports = self.next_ports(source, target)
        for port in ports:
            part, node = 1.0 / len(ports), self.peer[port]
            found[port] = part
            if node != target:
                passed, ends = self._shares_of(node, target)
                for each, share in passed.items():
                    found[each] = found.get(each, 0.0) + part * share
                for each, share in ends.items():
                    last[each] = last.get(each, 0.0) + part * share
        for node, share in last.items():
            ports = self._ports_to(node)[target]
            for port in ports:
                found[port] = found.get(port, 0.0) + share / len(ports)
        return found

    def _shares_of(self, node: int, target: int) -> tuple[Shares, Shares]:
        """The shares of the ports from a switch up to the neighbours of a target, and of these; the same for all
        targets with the same neighbours.
        """
        if target in self._ports_to(node):
            return {}, {node: 1.0}
        key = node, self._entries(target)
        if key not in self._shares:
            passed: Shares = {}
            ends: Shares = {}
            waiting = {node: 1.0}
            while waiting:
                onwards: dict[int, float] = {}
                for each, share in waiting.items():
                    if target in self._ports_to(each):
                        ends[each] = ends.get(each, 0.0) + share
                        continue
                    ports = self.next_ports(each, target)
                    part = share / len(ports)
                    for port in ports:
                        passed[port] = passed.get(port, 0.0) + part
                        onwards[self.peer[port]] = onwards.get(self.peer[port], 0.0) + part
                waiting = onwards
            self._shares[key] = passed, ends
        return self._shares[key]
