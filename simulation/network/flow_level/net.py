"""Lays the hops of a job over the links of a network."""

from collections.abc import Collection, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from common.errors import input_problem
from common.summary import counted
from simulation.network.flow_level.hops import Hop, hops_of
from simulation.network.flow_level.lanes import CostModel, Costs, Way, way_of_flow
from simulation.network.flow_level.port_routes import RAIL, SPREAD, PortRoutes
from simulation.network.flow_level.refine import Likeness
from simulation.network.job import Job
from simulation.network.memory_room import MemoryRoom

NOWHERE = -1  # instead of the port that all of a pair's ways begin or end with
PORT_BYTES = 80  # of memory that each port of a hop's way takes, measured
ADVICE = "fewer GPUs or rows take less; by ecmp each flow has its own way, of alike ones --routing rail simulates one"
OVER_ONE_SWITCH = 2  # ports of a way, which is then the only way back, too
_UNKNOWN = Way((), ())
SLACK = 1.0001  # a link that may be asked for no more than this much of its capacity never slows a flow down


class Laid(NamedTuple):
    """A hop's ports and costs, without the ports that never slow anybody down."""

    forward: tuple[int, ...]
    back: tuple[int, ...]
    costs: Costs


class HopNet:
    """All hops of a job: those of equal collectives are there once.

    `first_hop[k]` is the first hop of the k-th different collective, `key_of[c]` which of these collective c is.
    `groups_of_key[k]` are the groups of its HopSet; parents are numbered over all hops. `apart` is the most by which
    flows that are taken as equal differ (bytes).
    """

    def __init__(self, job: Job, latency_ns: int, place: str = "") -> None:
        self.job, self.apart = job, 0
        self.room = MemoryRoom(place, ADVICE)
        self.hops: list[Hop] = []
        self.first_hop = [0]
        self.key_of: list[int] = []
        self.groups_of_key: list[list[tuple[int, range]]] = []
        known: dict[tuple[int, int], int] = {}
        for collective in job.collectives:
            key = id(collective.schedules), 0
            if key not in known:
                known[key] = len(known)
                found = hops_of(collective, latency_ns, job.ranks, self.room, len(self.hops))
                self.hops += found.hops
                self.first_hop.append(len(self.hops))
                self.groups_of_key.append(found.groups)
                self.apart = max(self.apart, found.apart)
            self.key_of.append(known[key])

    @cached_property
    def flows(self) -> int:
        """The number of flows of all collectives."""
        steps = [sum(self.hops[hop].steps for hop in self.of_key(key)) for key in self.keys]
        return sum(steps[key] for key in self.key_of)

    @property
    def keys(self) -> range:
        """The numbers of the different collectives."""
        return range(len(self.first_hop) - 1)

    def of_key(self, key: int) -> range:
        """The numbers of the hops of a different collective."""
        return range(self.first_hop[key], self.first_hop[key + 1])

    def hops_of_key(self, key: int) -> list[Hop]:
        """The hops of a different collective."""
        return self.hops[self.first_hop[key] : self.first_hop[key + 1]]

    def key_of_hop(self) -> list[int]:
        """The different collective of each hop."""
        return [key for key in self.keys for _hop in self.of_key(key)]


def check_ways(pairs: Collection[tuple[int, int]], ways: PortRoutes, place: str) -> None:
    """Say which GPU another one does not reach, and how many pairs there are of such.

    Raises:
        InputProblems: there is one.
    """
    nodes = set(chain.from_iterable(pairs))
    if nodes and ways.meet(nodes):
        return
    apart = sorted(pair for pair in pairs if not ways.reaches(*pair))
    if apart:
        source, target = apart[0]
        pairs_said = counted(len(apart), "such pair")
        raise input_problem(
            place, None, f"GPU {source} does not reach GPU {target} ({pairs_said}): GPUs do not forward"
        )


def laid_out(net: HopNet, ways: PortRoutes, model: CostModel) -> list[Laid] | None:
    """Every hop on its way, if it is the same for all of its flows as far as it matters; else None.

    By ECMP each flow takes a way of its own. That does not matter where none of the links to choose from can be full.
    """
    fixed: dict[tuple[int, int], Way | None] = {}
    slack, ways_of_hops = _Slack(ways), list[Way | None]()
    for hop in net.hops:
        pair = hop[:2]
        way = fixed.get(pair, _UNKNOWN)
        if way is _UNKNOWN:
            way = fixed[pair] = fixed_way(ways, *pair)
            if way is None and not slack.takes(*pair):
                return None
        ways_of_hops.append(way)
    known: dict[tuple[int, int, int], Laid] = {}
    laid = []
    for hop, way in zip(net.hops, ways_of_hops, strict=True):
        key = hop.source, hop.target, hop.size
        its = known.get(key)
        if its is None:
            if way is not None:
                its = Laid(way.forward, way.back, model.costs(way, hop.size))
            else:
                its = _without_choice(ways, hop, model, slack.common[hop.source, hop.target])
            known[key] = its
            net.room.take(len(its.forward) + len(its.back), PORT_BYTES, "ports")
        laid.append(its)
    return laid


def fixed_way(ways: PortRoutes, source: int, target: int) -> Way | None:
    """The way of all flows from one GPU to another; None if each takes its own."""
    if ways.routing in (SPREAD, RAIL):
        return way_of_flow(ways, source, target, 0)
    forward = ways.only_path(source, target)
    if not forward:
        return None
    if len(forward) == OVER_ONE_SWITCH and ways.roles[source] == ways.roles[target]:
        there, on = forward
        return Way((there, on), (on ^ 1, there ^ 1))
    back = ways.only_path(target, source)
    return Way(tuple(forward), tuple(back)) if back else None


def _without_choice(ways: PortRoutes, hop: Hop, model: CostModel, common: Collection[int]) -> Laid:
    """A hop on the ports that all its ways have in `common`, forward as back, with the delay of one of them."""
    way = way_of_flow(ways, hop.source, hop.target, 0)
    costs = model.costs(way, hop.size)
    forth = [place for place, port in enumerate(way.forward) if port in common]
    back = [place for place, port in enumerate(way.back) if port ^ 1 in common]
    return Laid(
        tuple(way.forward[place] for place in forth),
        tuple(way.back[place] for place in back),
        Costs(
            tuple(costs.forward[place] for place in forth),
            tuple(costs.back[place] for place in back),
            tuple(costs.paces[place] for place in back),
            costs.delay,
            costs.half,
            costs.window,
        ),
    )


class _Slack:
    """Adds up what the links that flows choose from may be asked for at most: by their senders, by their receivers.

    ACKs do not count: on the links to choose from they take the share (under 1 %) that they also take at the ends.
    `common` are the ports that all ways of a pair have in common.
    """

    def __init__(self, ways: PortRoutes) -> None:
        self.ways = ways
        self._most = [SLACK * link.bps for link in ways.kinds]
        self.common: dict[tuple[int, int], list[int]] = {}
        self._ends: tuple[dict[int, int | set[int]], ...] = {}, {}  # of a port: one alone, or several
        self._sums: dict[tuple[int, int], int] = {}

    def takes(self, source: int, target: int) -> bool:
        """Whether every link that flows of a pair may choose carries all that may come to it, these flows included."""
        ways = self.ways
        steps = ways.steps(source, target)
        fixed = self.common[source, target] = [ports[0] for ports in steps if len(ports) == 1]
        first, last = (fixed[0], fixed[-1]) if fixed else (NOWHERE, NOWHERE)
        first_bps, last_bps = self._bps(first), self._bps(last)
        asked, kind_of, most = self._asked, ways.kind_of, self._most
        (senders, receivers), alone = self._ends, min(first_bps, last_bps)
        for port in chain.from_iterable(ports for ports in steps if len(ports) > 1):
            if senders.setdefault(port, first) == first and receivers.setdefault(port, last) == last:
                rate = alone
            else:
                rate = min(asked(0, port, first, first_bps), asked(1, port, last, last_bps))
            if rate > most[kind_of[port]]:
                return False
        return True

    def _asked(self, side: int, port: int, end: int, bps: int) -> int:
        """The rate that a port may be asked for by its senders (side 0) or receivers (1).

        `end` is one of these, and `bps` its rate.
        """
        ends = self._ends[side]
        known = ends.setdefault(port, end)
        if known == end:
            return bps
        if isinstance(known, int):
            self._sums[port, side] = self._bps(known)
            known = ends[port] = {known}
        if end not in known:
            known.add(end)
            self._sums[port, side] += bps
        return self._sums[port, side]

    def _bps(self, end: int) -> int:
        return self.ways.link(end).bps if end != NOWHERE else 1 << 62


def all_different(net: HopNet, ranks: int, laid: Sequence[Laid]) -> Likeness:
    """Every hop, link and rank alone."""
    ports = {port: port for each in laid for port in (*each.forward, *each.back)}
    return Likeness([*range(len(net.hops))], ports, [*range(ranks)])
