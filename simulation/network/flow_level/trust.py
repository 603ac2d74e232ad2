"""Says where a result of the flow level cannot be trusted: queues that would be marked, rings that drift apart."""

from collections.abc import Iterator
from typing import NamedTuple

from simulation.network.conf import NetworkConf
from simulation.network.flow_level.files import round_trip
from simulation.network.flow_level.lanes import BITS
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.simulate import FlowRun
from simulation.topology.fabric import SWITCH, Fabric

ALL_PAIRS = 64  # GPUs up to which the window is looked for among all pairs
MARKS, LOSSES, SHORT, COLLISIONS, DRIFT, SURE = "marks", "losses", "short", "collisions", "drift", "sure"
FEW_PACKETS, FEW_AT_ONCE = 16, 4  # of the longest flow; of a window: the turns of single packets decide
# By how much recorded runs of ns-3 took longer at most, in percent (docs/data/simulation/levels.csv). None is SHORT:
# there the packet level takes up to so much longer or shorter.
LONGER_PERCENT = {MARKS: 61, LOSSES: 1, SHORT: 35, COLLISIONS: 26, DRIFT: 9, SURE: 1}


class Queue(NamedTuple):
    """A full port, the queue that the windows of its flows can make, and its ECN threshold (bytes)."""

    port: int
    queue: int
    threshold: int


def window_of(ways: PortRoutes, gpus: int, payload: int) -> int:
    """The largest product of round trip and slowest link (bytes), over all pairs of GPUs; of a large network, some."""
    chosen = range(0, gpus, max(gpus // ALL_PAIRS, 1))
    sources = chosen if gpus <= ALL_PAIRS else [0, 1, gpus - 1]
    best = 0
    for source in sources:
        for target in (*chosen, gpus - 1):
            if source != target and ways.next_ports(source, target):
                rtt, bps = round_trip(ways, source, target, payload)
                best = max(best, rtt * bps // BITS)
    return best


def queues(run: FlowRun, ways: PortRoutes, conf: NetworkConf) -> list[Queue]:
    """The ports of switches where ECN would mark: the windows of the flows that share them make a long queue."""
    found: dict[int, Queue] = {}
    for port, held in _full_ports(run):
        bps = ways.link(port).bps
        if ways.roles[ways.owner(port)] != SWITCH or not conf.ecn:
            continue
        threshold = int(conf.kmin[conf.speed_of(bps)] * 1000)
        if held > threshold:
            found[port] = Queue(port, held, threshold)
    return sorted(found.values(), key=lambda each: -each.queue)


def _full_ports(run: FlowRun) -> Iterator[tuple[int, int]]:
    """The ports that are full at some moment, with the most bytes that may queue up before one."""
    for built in (run.work.built, *run.known.values()):
        for port, held in zip(built.ports, built.state.peak_held, strict=False):
            if held:
                yield port, int(held)


def judged(run: FlowRun, ways: PortRoutes, fabric: Fabric, conf: NetworkConf) -> tuple[str, list[Queue]]:
    """The effect that a flow model cannot follow in a run, or SURE where there is none, and the marked queues."""
    window = window_of(ways, run.job.ranks, conf.payload_bytes)
    marked = queues(run, ways, conf)
    if marked:
        return MARKS, marked
    if conf.error_rate > 0 or any(float(text.error_rate) > 0 for text in fabric.texts):
        return LOSSES, []
    longest = max((run.classes.hop(colour).size for colour in run.classes.first_hop), default=0)
    few = longest < FEW_PACKETS * conf.payload_bytes or window < FEW_AT_ONCE * conf.payload_bytes
    found = _of_rings(run, ways)
    return SHORT if few and found == SURE else found, []


def _of_rings(run: FlowRun, ways: PortRoutes) -> str:
    """COLLISIONS or DRIFT of flows that wait for each other, else SURE."""
    net, waits = run.classes.net, False
    slowest: dict[tuple[int, int], int] = {}
    drifting = False
    for colour in run.classes.first_hop:
        hop = run.classes.hop(colour)
        for parent, _shift in hop.parents:
            waits = True
            speeds = set()
            for each in (hop, net.hops[parent]):
                pair = each.source, each.target
                if pair not in slowest:
                    slowest[pair] = round_trip(ways, *pair, 1)[1]
                speeds.add(slowest[pair])
            drifting = drifting or len(speeds) > 1
    if (waits and run.collide) or run.best_case:
        return COLLISIONS
    return DRIFT if drifting else SURE
