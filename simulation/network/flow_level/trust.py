"""Says where a result of the flow level cannot be trusted: marks, pauses, queues, rings that drift apart."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import NamedTuple

from simulation.network.conf import NetworkConf
from simulation.network.flow_level.fluid_state import BEHIND, TIGHT
from simulation.network.flow_level.lanes import BITS
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.quotient import Built
from simulation.network.flow_level.simulate import FlowRun
from simulation.network.flow_level.window import window_bytes
from simulation.topology.fabric import GPU, SWITCH, Fabric

MARKS, PAUSES, LOSSES, SHORT, COLLISIONS = "marks", "pauses", "losses", "short", "collisions"
DRIFT, QUEUES, WINDOWS, SURE = "drift", "queues", "windows", "sure"
RESERVED_BYTES, PAUSE_SHIFT = 4096, 3  # PFC's, see packet_state
BEHIND_FEW = 0.1  # of a window's ACKs in queues change no rate
# Packets of the longest flow; if all flows begin at once; of a window: fewer, and the turns of single ones decide.
FEW_PACKETS, FEW_OF_MANY, FEW_AT_ONCE = 16, 100, 4
# By how much the worst took longer and shorter, in percent, of the runs recorded of ns-3
# (docs/data/simulation/levels.csv) and of packets on some 300 random networks (test_mixed_networks.py keeps the worst).
# Where packets are lost there is no such limit: one that nothing follows is sent again after a timeout.
LONGER_PERCENT = {
    MARKS: 285, PAUSES: 65, SHORT: 20, COLLISIONS: 30, DRIFT: 25, QUEUES: 25, WINDOWS: 15, SURE: 1,
}  # fmt: skip
SHORTER_PERCENT = {
    MARKS: 15, PAUSES: 40, SHORT: 20, COLLISIONS: 10, DRIFT: 15, QUEUES: 10, WINDOWS: 10, SURE: 1,
}  # fmt: skip


class Queue(NamedTuple):
    """A full port, the queue that the windows of its flows can make, and its ECN threshold (bytes)."""

    port: int
    queue: int
    threshold: int


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
    for built in _built(run):
        for port, held in zip(built.ports, built.state.peak_held, strict=False):
            if held:
                yield port, int(held)


def judged(run: FlowRun, ways: PortRoutes, fabric: Fabric, conf: NetworkConf) -> tuple[str, list[Queue]]:
    """The effect that a flow model cannot follow in a run, or SURE where there is none, and the marked queues."""
    window, _rtt = window_bytes(ways, fabric.gpus, conf.payload_bytes, some=True)
    marked = queues(run, ways, conf)
    if marked:
        return MARKS, marked
    if _is_paused(run, ways, conf):
        return PAUSES, []
    if loses(fabric, conf):
        return LOSSES, []
    longest = max((run.classes.hop(colour).size for colour in run.classes.first_hop), default=0)
    least = FEW_PACKETS if _wait(run) else FEW_OF_MANY
    few = longest < least * conf.payload_bytes or window < FEW_AT_ONCE * conf.payload_bytes
    found = _of_rings(run, ways)
    return SHORT if few and found in (SURE, WINDOWS) else found, []


def counts(weakness: str, *, are_lost: bool) -> dict[str, int | None]:
    """Marks, pauses, and packets that are sent again: 0, or None where some are expected, which no fair rate counts."""
    return {
        "marks": None if weakness == MARKS else 0,
        "pauses": None if weakness in (MARKS, PAUSES) else 0,
        "retransmissions": None if are_lost else 0,
    }


def loses(fabric: Fabric, conf: NetworkConf) -> bool:
    """Whether links lose packets."""
    return conf.error_rate > 0 or any(float(text.error_rate) > 0 for text in fabric.texts)


def _is_paused(run: FlowRun, ways: PortRoutes, conf: NetworkConf) -> bool:
    """Whether a switch holds so much of what came by a port that PFC pauses the sender there (packet_state)."""
    held: dict[int, int] = {}
    entered: dict[int, int] = {}
    for built in _built(run):
        state = built.state
        found = dict(zip(built.ports, zip(state.peak_held, state.peak_entered, strict=True), strict=False))
        if any(state.peak_held):  # those of the ports that are alike count, too
            of_link = run.classes.likeness.links
            alike = {of_link[port]: its for port, its in found.items() if port in of_link}
            found |= {port: alike[colour] for port, colour in of_link.items() if colour in alike}
        for port, (queue, came) in found.items():
            node, sender = ways.peer[port], ways.peer[port ^ 1]
            if queue:
                held[sender] = held.get(sender, 0) + int(queue)
            if came > entered.get(node, -1):
                entered[node] = int(came)
    reserved = _reserved(ways)
    return any(
        came + conf.payload_bytes > conf.buffer_bytes - reserved(node) - held.get(node, 0) >> PAUSE_SHIFT
        for node, came in entered.items()
        if ways.roles[node] != GPU
    )


def _reserved(ways: PortRoutes) -> Callable[[int], int]:
    """The bytes of a switch's buffer that its ports do not share: 4 KiB each, and thrice what is on the wire."""
    of_kind = [RESERVED_BYTES + 3 * link.bps * link.delay_ns // BITS for link in ways.kinds]
    return lambda node: sum([of_kind[ways.kind_of[port]] for port in ways.ports_at(node)])


def _of_rings(run: FlowRun, ways: PortRoutes) -> str:
    """COLLISIONS or DRIFT of flows that wait for each other; QUEUES or WINDOWS that hold flows back; else SURE."""
    if run.best_case or (run.collide and _wait(run)):
        return COLLISIONS
    if _drift(run, ways):
        return DRIFT
    tight, behind = (max(float(built.state.clock[place]) for built in _built(run)) for place in (TIGHT, BEHIND))
    if behind > BEHIND_FEW:
        return QUEUES
    return WINDOWS if tight > 1 else SURE


def _wait(run: FlowRun) -> bool:
    """Whether flows wait for others."""
    return any(run.classes.hop(colour).parents for colour in run.classes.first_hop)


def _drift(run: FlowRun, ways: PortRoutes) -> bool:
    """Whether hops wait for hops of another speed."""

    @cache
    def slowest(source: int, target: int) -> int:
        return min(ways.first_links(source, target)).bps

    hops = run.classes.net.hops
    return any(
        slowest(*hops[hop][:2]) != slowest(*hops[hop + behind][:2])
        for hop in run.classes.first_hop.values()
        for behind, _shift in hops[hop].parents
    )


def _built(run: FlowRun) -> list[Built]:
    return [run.work.built, *run.known.values()]
