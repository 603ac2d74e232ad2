"""Lays the hops of a job over the links of a network, and finds out which of them are alike."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from common.errors import input_problem
from simulation.network.flow_level.hops import Hop, hops_of
from simulation.network.flow_level.lanes import CostModel, Costs, Way, way_of_flow
from simulation.network.flow_level.refine import Likeness, Net, refine
from simulation.network.flow_level.ways import RAIL, SPREAD, Ways
from simulation.network.job import Job

WHOLE = 1 - 1e-9  # of the bytes: all ways have the link in common
SLACK = 1.0001  # a link that may be asked for no more than this much of its capacity never slows a flow down


class Laid(NamedTuple):
    """A hop's ports and costs, without the ports that never slow anybody down."""

    forward: tuple[int, ...]
    back: tuple[int, ...]
    costs: Costs


class HopNet:
    """All hops of a job: those of equal collectives are there once.

    `first_hop[k]` is the first hop of the k-th different collective, `key_of[c]` which of these collective c is.
    Parents are numbered over all hops. `apart` is the most by which flows that are taken as equal differ (bytes).
    """

    def __init__(self, job: Job, latency_ns: int) -> None:
        self.job, self.apart = job, 0
        self.hops: list[Hop] = []
        self.first_hop = [0]
        self.key_of: list[int] = []
        known: dict[tuple[int, int], int] = {}
        for collective in job.collectives:
            key = id(collective.schedules), 0
            if key not in known:
                known[key] = len(known)
                found = hops_of(collective, latency_ns, job.ranks)
                first = len(self.hops)
                self.hops += [_shifted(hop, first) for hop in found.hops]
                self.first_hop.append(len(self.hops))
                self.apart = max(self.apart, found.apart)
            self.key_of.append(known[key])

    @property
    def keys(self) -> range:
        """The numbers of the different collectives."""
        return range(len(self.first_hop) - 1)

    def of_key(self, key: int) -> range:
        """The hops of a different collective."""
        return range(self.first_hop[key], self.first_hop[key + 1])

    def key_of_hop(self) -> list[int]:
        """The different collective of each hop."""
        return [key for key in self.keys for _hop in self.of_key(key)]


def _shifted(hop: Hop, first: int) -> Hop:
    return hop._replace(parents=tuple((parent + first, shift) for parent, shift in hop.parents)) if first else hop


def check_ways(net: HopNet, ways: Ways, place: str) -> None:
    """Say which GPU another one does not reach.

    Raises:
        InputProblems: there is one.
    """
    for source, target in {(hop.source, hop.target) for hop in net.hops}:
        if not ways.next_ports(source, target) or not ways.next_ports(target, source):
            raise input_problem(place, None, f"GPU {source} does not reach GPU {target}: GPUs do not forward")


def laid_out(net: HopNet, ways: Ways, model: CostModel) -> list[Laid] | None:
    """Every hop on its way, if it is the same for all of its flows as far as it matters; else None.

    By ECMP each flow takes a way of its own. That does not matter where none of the links to choose from can be full.
    """
    fixed: dict[tuple[int, int], Way | None] = {}
    for hop in net.hops:
        pair = hop.source, hop.target
        if pair not in fixed:
            fixed[pair] = _fixed(ways, *pair)
    chosen = [pair for pair, way in fixed.items() if way is None]
    slack = _Slack(ways)
    if not all(slack.takes(*pair) for pair in chosen):
        return None
    laid = []
    for hop in net.hops:
        way = fixed[hop.source, hop.target]
        if way is not None:
            laid.append(Laid(way.forward, way.back, model.costs(way, hop.size)))
        else:
            laid.append(_without_choice(ways, hop, model))
    return laid


def _fixed(ways: Ways, source: int, target: int) -> Way | None:
    if ways.routing in (SPREAD, RAIL):
        return way_of_flow(ways, source, target, 0)
    forward, back = ways.only_path(source, target), ways.only_path(target, source)
    return None if forward is None or back is None else Way(tuple(forward), tuple(back))


def _without_choice(ways: Ways, hop: Hop, model: CostModel) -> Laid:
    """A hop on the links that all its ways have in common, with the delay of one of them."""
    way = way_of_flow(ways, hop.source, hop.target, 0)
    costs = model.costs(way, hop.size)
    sides = []
    for ports, ends in ((way.forward, (hop.source, hop.target)), (way.back, (hop.target, hop.source))):
        shares = ways.shares(*ends)
        sides.append([place for place, port in enumerate(ports) if shares[port] > WHOLE])
    forth, back = sides
    return Laid(
        tuple(way.forward[place] for place in forth),
        tuple(way.back[place] for place in back),
        Costs(
            tuple(costs.forward[place] for place in forth),
            tuple(costs.back[place] for place in back),
            tuple(costs.halves[place] for place in back),
            costs.delay,
        ),
    )


class _Slack:
    """Adds up what the links that flows choose from may be asked for at most: by their senders, by their receivers.

    ACKs do not count: on the links to choose from they take the share (under 1 %) that they also take at the ends.
    """

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self._asked: dict[tuple[int, bool], dict[int, int]] = {}

    def takes(self, source: int, target: int) -> bool:
        """Whether every link that flows of a pair may choose carries all that may come to it, these flows included."""
        ways = self.ways
        shares = ways.shares(source, target)
        fixed = [port for port, share in shares.items() if share > WHOLE]
        for port, share in shares.items():
            if share > WHOLE:
                continue
            asked = []
            for by_sender, end in ((True, fixed[0] if fixed else -1), (False, fixed[-1] if fixed else -1)):
                sums = self._asked.setdefault((port, by_sender), {})
                sums[end] = ways.link(end).bps if end >= 0 else 1 << 62
                asked.append(sum(sums.values()))
            if min(asked) > SLACK * ways.link(port).bps:
                return False
        return True


def alike(net: HopNet, laid: Sequence[Laid], ways: Ways, rank_kind: Sequence[Hashable]) -> Likeness:
    """Which hops, links and ranks do the same at the same time; `rank_kind` is what already tells ranks apart."""
    numbers: dict[Costs, int] = {}
    keys = net.key_of_hop()
    kinds = [
        (key, hop.steps, hop.size, hop.gap, numbers.setdefault(each.costs, len(numbers)))
        for key, hop, each in zip(keys, net.hops, laid, strict=True)
    ]
    return refine(
        Net(
            kinds,
            [each.forward for each in laid],
            [each.back for each in laid],
            [hop.parents for hop in net.hops],
            [hop.source for hop in net.hops],
            [hop.target for hop in net.hops],
            rank_kind,
            lambda port: ways.kind_of[port],
        )
    )


def all_different(net: HopNet, ranks: int, laid: Sequence[Laid]) -> Likeness:
    """Every hop, link and rank alone."""
    ports = {port: port for each in laid for port in (*each.forward, *each.back)}
    return Likeness([*range(len(net.hops))], ports, [*range(ranks)])
