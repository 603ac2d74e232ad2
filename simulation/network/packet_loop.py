"""Simulates packets in one event loop, compiled by numba: arrivals, ACKs, losses, the start and end of flows.

The rules are those of the RDMA model of SimAI's ns-3 (HPCC's): store and forward, an ACK for each packet. Numbers of
ports, flows and packets are their places in the arrays of Simulation.
"""

from simulation.network.event_heap import (
    ADVANCED,
    ALPHA,
    ARRIVED,
    DECREASE,
    LINKS,
    LOOKED,
    RECOVER,
    RELEASED,
    SEND_AGAIN,
    STARTED,
    TRANSMITTED,
    inlined,
    jit,
    plan,
)
from simulation.network.event_wheel import take_next
from simulation.network.link_changes import DPORT, FIRST_SPORT, PARKED, PATIENCE, go_back, join
from simulation.network.packet_state import (
    ACK,
    ACK_BYTES,
    DATA,
    FINISHED,
    HEADER_BYTES,
    LINKS_CHANGE,
    NACK,
    NO_ROOM,
    NONE,
    PAST_LIMIT,
    PAUSE,
    RESUME,
    STALLED,
    Record,
    Simulation,
)
from simulation.network.paths import LOST, port_from
from simulation.network.port_queues import chance, enqueue, enter_buffer, free_packet, new_packet, send
from simulation.network.rank_steps import advance, count_down, settle
from simulation.network.rates import decrease_rate, recover, slow_down, update_alpha

NACK_INTERVAL = 500_000  # ns between NACKs for the same byte


@inlined
def arrive(sim: Simulation, place: int) -> int:
    """A packet is at the other end of its port; returns the port that may send now, NONE if there is none."""
    packet = sim.packets[place]
    port, kind = packet.port, packet.kind
    if sim.ports[port].down:
        return lose(sim, place)
    if kind in (PAUSE, RESUME):
        sim.ports[port ^ 1].paused = kind == PAUSE
        free_packet(sim, place)
        return port ^ 1 if kind == RESUME else NONE
    error_rate = sim.ports[port].error_rate
    if error_rate > 0 and chance(sim, packet, packet.port) < error_rate:
        return lose(sim, place)
    packet.hop += 1
    if sim.totals[0].outages:
        onwards = after_changes(sim, packet)
    else:
        onwards = sim.path[packet.flow, packet.hop] if kind == DATA else sim.back[packet.flow, packet.hop]
    if onwards == NONE:
        return receive(sim, place)
    if onwards == LOST:
        return lose(sim, place)
    forward(sim, place, onwards)
    return onwards


@inlined
def lose(sim: Simulation, place: int) -> int:
    """A packet is gone; no port may send for it."""
    sim.totals[0].lost += 1
    free_packet(sim, place)
    return NONE


@jit
def after_changes(sim: Simulation, packet: Record) -> int:
    """The port by which a packet goes on where links went down or came back; see `port_from`.

    A packet that was sent on by another way has more hops behind it than its flow's path may have.
    """
    flow, node = sim.flows[packet.flow], sim.ports[packet.port].peer
    path = sim.path[packet.flow] if packet.kind == DATA else sim.back[packet.flow]
    cached = path[packet.hop] if packet.hop < len(path) else NONE
    if packet.kind == DATA:
        return port_from(sim, node, cached, (flow.source, flow.target, flow.sport, DPORT))
    return port_from(sim, node, cached, (flow.target, flow.source, DPORT, flow.sport))


@inlined
def forward(sim: Simulation, place: int, number: int) -> None:
    """A packet is at a switch, which queues it at the port to its next hop."""
    packet, port = sim.packets[place], sim.ports[number]
    enter_buffer(sim, packet.port ^ 1, packet.size)
    port.queued += packet.size
    port.deepest = max(port.deepest, port.queued)
    enqueue(sim, port, place)


@inlined
def receive(sim: Simulation, place: int) -> int:
    """A packet is at its GPU; returns the port that may send now, NONE if there is none."""
    packet = sim.packets[place]
    port = NONE
    if packet.kind == DATA:
        port = answer(sim, packet)
    elif sim.flows[packet.flow].end == NONE:
        port = acknowledge(sim, packet)
    free_packet(sim, place)
    return port


@inlined
def answer(sim: Simulation, packet: Record) -> int:
    """Queue the ACK of a packet, or a NACK for the bytes that are missing before it; returns the port, NONE if none."""
    flow, now = sim.flows[packet.flow], sim.totals[0].now
    kind = ACK
    if packet.number == flow.expected:
        flow.expected += packet.size - HEADER_BYTES
        flow.replies = 0
    elif packet.number > flow.expected:
        if now < flow.nack_time and flow.nack_byte == flow.expected:
            return NONE
        flow.nack_time, flow.nack_byte = now + NACK_INTERVAL, flow.expected
        sim.totals[0].nacks += 1
        kind = NACK
    elif flow.expected < flow.size and not sim.totals[0].outages:
        return NONE  # a second copy; once all are there, or after an outage, an ACK may be what is missing
    port = sim.back[packet.flow, 0]
    if port == NONE:
        return NONE
    reply = new_packet(sim, packet.flow, kind, flow.expected, ACK_BYTES)
    # The mark travels back as a flag of the ACK (2), which may be marked itself (1); above it stands how many replies
    # with this byte went before, so that each has a fate of its own.
    sim.packets[reply].marked = 4 * flow.replies + 2 * (packet.marked & 1)
    flow.replies += 1
    enqueue(sim, sim.ports[port], reply)
    return port


@inlined
def acknowledge(sim: Simulation, packet: Record) -> int:
    """A sender has an ACK: the flow is complete, or its window moves, and its rate falls if the packet was marked.

    Returns the port that it sends by, which is not the one by which the ACK came where a GPU has several.
    """
    flow = sim.flows[packet.flow]
    flow.acked = max(flow.acked, packet.number)
    if flow.acked >= flow.size:
        complete(sim, packet.flow)
    else:
        if packet.kind == NACK:
            go_back(sim, flow)
        if packet.marked & 2:
            slow_down(sim, packet.flow)
    return sim.path[packet.flow, 0]


@jit
def complete(sim: Simulation, number: int) -> None:
    """A flow's last ACK is back: its receipt is handled, unless one before it is still missing."""
    flow = sim.flows[number]
    flow.end = sim.totals[0].now
    sim.totals[0].done += 1
    count_down(sim, flow.collective, flow.source)
    if flow.before == NONE or sim.flows[flow.before].released:
        release(sim, number)


@jit
def release(sim: Simulation, number: int) -> None:
    """Handle a receipt: flows that waited for it may start, and the next receipt that was held back follows."""
    flow, now = sim.flows[number], sim.totals[0].now
    flow.released, added = 1, 0
    for place in range(flow.child_begin, flow.child_end):
        added = max(added, settle(sim, sim.children[place], sim.flows[sim.children[place]].gap))
    count_down(sim, flow.collective, flow.target)
    after = flow.after
    if after != NONE and sim.flows[after].end != NONE and not sim.flows[after].released:
        receiver = sim.nodes[flow.target]
        receiver.released_at = max(now, receiver.released_at) + flow.release_gap + added
        plan(sim, receiver.released_at, RELEASED, after)


@jit
def start(sim: Simulation, number: int) -> int:
    """A flow begins: it gets a port number of its own, with it a path, and joins those of a port, the result."""
    flow, now = sim.flows[number], sim.totals[0].now
    flow.sport, flow.start = FIRST_SPORT + sim.pair_count[flow.pair], now
    sim.pair_count[flow.pair] += 1
    join(sim, number)
    if flow.seen == PARKED:
        return NONE
    if sim.totals[0].errors:
        flow.seen = NONE
        plan(sim, now + PATIENCE, LOOKED, number)
    return sim.path[number, 0]


@jit
def look(sim: Simulation, number: int) -> int:
    """With errors a flow is looked at now and then: where nothing moved, it is sent again from the first lost byte.

    Returns the port that may send now, NONE if there is none.
    """
    flow = sim.flows[number]
    if flow.seen == PARKED:
        return NONE
    stuck = flow.seen == flow.acked and flow.next_byte > flow.acked
    if stuck:
        go_back(sim, flow)
    flow.seen = flow.acked
    plan(sim, sim.totals[0].now + PATIENCE, LOOKED, number)
    return sim.path[number, 0] if stuck else NONE


@jit
def handle_timer(sim: Simulation, what: int, number: int) -> int:
    """An event that a flow planned for itself; a finished flow needs none. Returns the port that may send now."""
    if sim.flows[number].end != NONE:
        return NONE
    if what == ALPHA:
        update_alpha(sim, number)
    elif what == DECREASE:
        decrease_rate(sim, number)
    elif what == RECOVER:
        recover(sim, number)
    else:
        return look(sim, number)
    return NONE


@jit
def handle_rare(sim: Simulation, what: int, about: int) -> int:
    """An event of a flow or a rank; returns the port that may send now, NONE if there is none."""
    if what == STARTED:
        return start(sim, about)
    if what == SEND_AGAIN:
        return about
    if what == RELEASED:
        release(sim, about)
    elif what == ADVANCED:
        advance(sim, about)
    elif what == LINKS:
        sim.totals[0].outage = about + 1
    else:
        return handle_timer(sim, what, about)
    return NONE


@jit
def begin_ranks(sim: Simulation) -> None:
    """Let all ranks begin their steps at time 0."""
    for rank in range(len(sim.ranks)):
        advance(sim, rank)


@jit
def run(sim: Simulation, most: int) -> int:
    """Handle at most `most` events; returns FINISHED, PAST_LIMIT, STALLED, NO_ROOM (call `grown` and go on).

    LINKS_CHANGE: the outages up to number `totals.outage` are to be applied.
    """
    totals = sim.totals[0]
    for _turn in range(most):
        if totals.ended == len(sim.ranks) and totals.done == len(sim.flows):
            return FINISHED
        if totals.heap + totals.near == totals.timers:
            return STALLED
        if totals.heap + len(sim.flows) + 64 > len(sim.events) or totals.left < 64:
            return NO_ROOM
        what, about = take_next(sim)
        totals.handled += 1
        if what == ARRIVED:
            port = arrive(sim, about)
        elif what == TRANSMITTED:
            sim.ports[about].busy = 0
            port = about
        else:
            port = handle_rare(sim, what, about)
        if port != NONE:
            send(sim, port)
        if what == LINKS:
            return LINKS_CHANGE
    return PAST_LIMIT
