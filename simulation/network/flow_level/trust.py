"""Says where a result of the flow level cannot be trusted: queues that would be marked, rings that drift apart."""

from collections.abc import Iterator
from typing import NamedTuple

from simulation.network.conf import NetworkConf
from simulation.network.flow_level.files import round_trip
from simulation.network.flow_level.lanes import BITS
from simulation.network.flow_level.simulate import FlowRun
from simulation.network.flow_level.ways import Ways
from simulation.topology.fabric import SWITCH

ALL_PAIRS = 64  # GPUs up to which the window is looked for among all pairs
# What recorded runs of ns-3 took beyond the flow level, in percent (docs/data/simulation/levels.csv): least and most.
MARKED_PERCENT = (15, 70)
DRIFT_PERCENT = (3, 12)


class Queue(NamedTuple):
    """A full port, the flows that share it, the queue that their windows can make, its ECN threshold (bytes)."""

    port: int
    flows: int
    queue: int
    threshold: int


class Window(NamedTuple):
    """The window of every flow (bytes), and the longest round trip (ns)."""

    size: int
    rtt_ns: int


def window_of(ways: Ways, gpus: int, payload: int) -> Window:
    """The largest product of round trip and slowest link, over all pairs of GPUs; of a large network, over some."""
    chosen = range(0, gpus, max(gpus // ALL_PAIRS, 1))
    sources = chosen if gpus <= ALL_PAIRS else [0, 1, gpus - 1]
    best = Window(0, 0)
    for source in sources:
        for target in (*chosen, gpus - 1):
            if source != target and ways.next_ports(source, target):
                rtt, bps = round_trip(ways, source, target, payload)
                best = Window(max(best.size, rtt * bps // BITS), max(best.rtt_ns, rtt))
    return best


def queues(run: FlowRun, ways: Ways, conf: NetworkConf) -> list[Queue]:
    """The ports of switches where ECN would mark: so many flows share them that their windows make a long queue."""
    window = window_of(ways, run.job.ranks, conf.payload_bytes)
    found: dict[int, Queue] = {}
    for port, flows in _full_ports(run):
        bps = ways.link(port).bps
        if ways.roles[ways.owner(port)] != SWITCH or not conf.ecn or bps not in conf.kmin:
            continue
        queue = flows * window.size - window.rtt_ns * bps // BITS
        threshold = int(conf.kmin[bps] * 1000)
        if queue > threshold:
            found[port] = Queue(port, flows, queue, threshold)
    return sorted(found.values(), key=lambda each: -each.queue)


def _full_ports(run: FlowRun) -> Iterator[tuple[int, int]]:
    """The ports that are full at some moment, with the most flows that share one then."""
    for built in (run.work.built, *run.known.values()):
        for port, flows in zip(built.ports, built.state.peak_flows, strict=False):
            if flows:
                yield port, int(flows)


def drifts(run: FlowRun, ways: Ways) -> bool:
    """Whether rings have hops of several speeds: a small delay then grows, which no flow model shows."""
    net = run.classes.net
    slowest: dict[tuple[int, int], int] = {}
    for colour in run.classes.first_hop:
        hop = run.classes.hop(colour)
        for parent, _shift in hop.parents:
            speeds = set()
            for each in (hop, net.hops[parent]):
                pair = each.source, each.target
                if pair not in slowest:
                    slowest[pair] = round_trip(ways, *pair, 1)[1]
                speeds.add(slowest[pair])
            if len(speeds) > 1:
                return True
    return False
