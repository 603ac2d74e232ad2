"""Sends packets over ports: a GPU's flows in their turn, a switch's queues with ECN and PFC; compiled by numba.

A transmission takes whole ns, truncated. ACKs go first at a GPU and in order at a switch; the flows of a GPU's port
take turns, packet by packet, within their window and at their rate.
"""

import numpy as np

from simulation.network.event_heap import ARRIVED, SEND_AGAIN, TRANSMITTED, inlined, jit, plan
from simulation.network.event_wheel import plan_soon
from simulation.network.packet_state import (
    ACK_BYTES,
    BINS,
    DATA,
    HEADER_BYTES,
    NONE,
    PAUSE,
    PAUSE_BYTES,
    RESERVED_BYTES,
    RESUME,
    Record,
    Simulation,
)
from simulation.network.rank_steps import settle

MIX = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
RESUME_OFFSET = 3072  # bytes below the pause threshold at which a sender may go on


@inlined
def new_packet(sim: Simulation, flow: int, kind: int, number: int, size: int) -> int:
    """A packet of `size` bytes from the list of free ones."""
    totals = sim.totals[0]
    place = totals.free
    packet = sim.packets[place]
    totals.free = packet.following
    totals.left -= 1
    packet.flow, packet.kind, packet.number, packet.size = flow, kind, number, size
    packet.hop, packet.marked, packet.following = 0, 0, NONE
    return place


@inlined
def free_packet(sim: Simulation, packet: int) -> None:
    """Give a packet back to the list of free ones."""
    totals = sim.totals[0]
    sim.packets[packet].following = totals.free
    totals.free = packet
    totals.left += 1


@inlined
def transmit(sim: Simulation, number: int, packet: int) -> None:
    """Begin to send a packet over a port."""
    port, now = sim.ports[number], sim.totals[0].now
    size = sim.packets[packet].size
    if size == ACK_BYTES:
        took = port.ack_time
    elif size == sim.rules.payload + HEADER_BYTES:
        took = port.data_time
    else:
        took = size * 8_000_000_000 // port.bps
    port.busy = 1
    port.sent += size
    count_usage(sim, number, size)
    sim.packets[packet].port = number
    plan_soon(sim, now + took, TRANSMITTED, number)
    plan_soon(sim, now + took + port.delay, ARRIVED, packet)


@jit
def widen_bins(sim: Simulation) -> None:
    """Make bins twice as long until they reach to this moment."""
    totals = sim.totals[0]
    while totals.now >> totals.bin_shift >= BINS:
        totals.bin_shift += 1
        for port in range(len(sim.usage)):
            for place in range(BINS // 2):
                sim.usage[port, place] = sim.usage[port, 2 * place] + sim.usage[port, 2 * place + 1]
            sim.usage[port, BINS // 2 :] = 0


@inlined
def count_usage(sim: Simulation, number: int, size: int) -> None:
    """Count the bytes of a port in the bin of this moment."""
    totals = sim.totals[0]
    if totals.now >> totals.bin_shift >= BINS:
        widen_bins(sim)
    sim.usage[number, totals.now >> totals.bin_shift] += size


@inlined
def enqueue(sim: Simulation, port: Record, packet: int) -> None:
    """Put a packet at the end of a port's queue."""
    sim.packets[packet].following = NONE
    if port.tail == NONE:
        port.head = packet
    else:
        sim.packets[port.tail].following = packet
    port.tail = packet


@inlined
def dequeue(sim: Simulation, port: Record) -> int:
    """Take the first packet off a port's queue."""
    packet = port.head
    port.head = sim.packets[packet].following
    if port.head == NONE:
        port.tail = NONE
    return packet


@inlined
def window_open(sim: Simulation, flow: Record, port: Record) -> bool:
    """Whether a flow has bytes left to send and room for them in its window."""
    if flow.next_byte >= flow.size:
        return False
    window = sim.rules.window
    if sim.rules.variable_window and flow.slowed:
        window = max(np.int64(window * (flow.rate / port.bps)), 1)
    return flow.next_byte - flow.acked < window


@inlined
def whose_turn(sim: Simulation, port: Record) -> int:
    """The place of the flow whose turn it is, NONE if none may send now; finished ones leave the turn."""
    now, count = sim.totals[0].now, port.member_count
    chosen, finished, place = NONE, False, port.last
    for _turn in range(count):
        place += 1
        if place >= count:
            place %= count
        flow = sim.flows[sim.members[port.member_begin + place]]
        if window_open(sim, flow, port):
            if flow.available <= now:
                chosen = place
                break
        elif flow.acked >= flow.size:
            finished = True
    return remove_finished(sim, port, chosen) if finished else chosen


@jit
def remove_finished(sim: Simulation, port: Record, chosen: int) -> int:
    """Take finished flows out of the turn; returns the new place of the chosen one."""
    first, kept, result = port.member_begin, 0, chosen
    for place in range(port.member_count):
        member = sim.members[first + place]
        if sim.flows[member].acked < sim.flows[member].size:
            if place == chosen:
                result = kept
            sim.members[first + kept] = member
            kept += 1
    port.member_count = kept
    return result


@inlined
def take_turn(sim: Simulation, number: int) -> int:
    """The next packet of the flow whose turn it is; NONE if none may send, and the port looks again when one may."""
    port = sim.ports[number]
    chosen = whose_turn(sim, port)
    if chosen == NONE:
        wake_later(sim, number)
        return NONE
    port.last = chosen
    member = sim.members[port.member_begin + chosen]
    packet = next_packet(sim, member)
    if sim.flows[member].heir != NONE and sim.flows[member].next_byte == sim.flows[member].size:
        hand_over(sim, member, sim.packets[packet].size * 8_000_000_000 // port.bps)
    return packet


@jit
def hand_over(sim: Simulation, number: int, took: int) -> None:
    """The last byte of a flow leaves its GPU in `took` ns: from then on the flow that waits for it may start."""
    heir = sim.flows[number].heir
    sim.flows[number].heir = np.int64(NONE)
    settle(sim, heir, took + sim.flows[heir].gap)


@jit
def wake_later(sim: Simulation, number: int) -> None:
    """Plan to look again when the first of the flows that wait for their rate may send."""
    port, now = sim.ports[number], sim.totals[0].now
    never = np.int64(1 << 62)
    earliest = never
    for place in range(port.member_begin, port.member_begin + port.member_count):
        flow = sim.flows[sim.members[place]]
        if flow.next_byte < flow.size:
            earliest = min(earliest, flow.available)
    if port.next_send <= now and now < earliest < never:
        port.next_send = earliest
        plan(sim, earliest, SEND_AGAIN, number)


@inlined
def next_packet(sim: Simulation, number: int) -> int:
    """The next packet of a flow, which may go on after the time that its rate takes for it."""
    flow = sim.flows[number]
    payload = min(sim.rules.payload, flow.size - flow.next_byte)
    packet = new_packet(sim, number, DATA, flow.next_byte, payload + HEADER_BYTES)
    flow.next_byte += payload
    flow.available = sim.totals[0].now + np.int64((payload + HEADER_BYTES) * 8e9 / flow.rate)
    return packet


@inlined
def pause_limit(sim: Simulation, port: Record) -> int:
    """Shared bytes above which a switch pauses the sender at a port."""
    return (port.shared - sim.nodes[port.owner].used) >> port.pause_shift


@inlined
def over_reserve(port: Record) -> int:
    """Shared bytes that entered by a port and are still in the switch."""
    return max(port.in_shared - RESERVED_BYTES, 0)


@jit
def send_pause(sim: Simulation, number: int, kind: int) -> None:
    """Tell the sender at a port to pause, or to go on."""
    packet = new_packet(sim, NONE, kind, 0, PAUSE_BYTES)
    port = sim.ports[number]
    if port.urgent == NONE:
        port.urgent = packet
    else:
        last = port.urgent
        while sim.packets[last].following != NONE:
            last = sim.packets[last].following
        sim.packets[last].following = packet
    sim.totals[0].pauses += kind == PAUSE
    port.asked_pause = kind == PAUSE
    if not (port.busy or port.down):
        transmit(sim, number, take_urgent(sim, port))


@inlined
def take_urgent(sim: Simulation, port: Record) -> int:
    """Take the first of the pauses and resumes that wait at a port."""
    packet = port.urgent
    port.urgent = sim.packets[packet].following
    return packet


@inlined
def enter_buffer(sim: Simulation, number: int, size: int) -> None:
    """Count a packet of `size` bytes that enters a switch by a port; pause its sender where too much of it is there."""
    port = sim.ports[number]
    there = port.in_shared + size
    if there <= RESERVED_BYTES:
        port.in_shared += size
    elif there - RESERVED_BYTES > pause_limit(sim, port):
        port.in_headroom += size
    else:
        port.in_shared += size
        sim.nodes[port.owner].used += min(size, there - RESERVED_BYTES)
    if not port.asked_pause and (port.in_headroom > 0 or over_reserve(port) >= pause_limit(sim, port)):
        send_pause(sim, number, PAUSE)


@inlined
def leave_buffer(sim: Simulation, number: int, size: int) -> None:
    """Count a packet of `size` bytes that leaves a switch, which it entered by a port; its sender may go on then."""
    port = sim.ports[number]
    from_headroom = min(port.in_headroom, size)
    from_shared = min(size - from_headroom, over_reserve(port))
    port.in_headroom -= from_headroom
    port.in_shared -= size - from_headroom
    sim.nodes[port.owner].used -= from_shared
    used = over_reserve(port)
    if port.asked_pause and port.in_headroom == 0 and (used == 0 or used + RESUME_OFFSET <= pause_limit(sim, port)):
        send_pause(sim, number, RESUME)


@jit
def chance(sim: Simulation, packet: Record, place: int) -> float:
    """From 0 to 1, for a packet at a place: what other flows send does not change it.

    A hash by the finaliser of splitmix64 (Steele et al., OOPSLA 2014).
    """
    flow = sim.flows[packet.flow]
    ends = flow.source, flow.target, flow.sport, place
    own = flow.luck, flow.begun_again, packet.number, packet.kind + 8 * (packet.marked >> 2)
    mixed = np.uint64(0)
    for part in ends + own:
        mixed = (mixed ^ np.uint64(part)) + MIX[0]
        mixed = (mixed ^ (mixed >> SHIFTS[0])) * MIX[1]
        mixed = (mixed ^ (mixed >> SHIFTS[1])) * MIX[2]
        mixed ^= mixed >> SHIFTS[2]
    return float(mixed >> SHIFTS[3]) / (1 << 53)


@inlined
def mark(sim: Simulation, number: int, packet: Record) -> None:
    """Mark a packet, or an ACK, that leaves a port by ECN, as the depth of the queue behind it says."""
    port = sim.ports[number]
    depth = port.queued
    if depth <= port.kmin:
        return
    if depth > port.kmax or chance(sim, packet, ~number) < port.pmax * (depth - port.kmin) / (port.kmax - port.kmin):
        sim.totals[0].marks += 1
        packet.marked |= 1


@inlined
def send(sim: Simulation, number: int) -> None:
    """Let a port send if it is free: a pause, a queued packet (at a GPU an ACK), a packet of its own flows."""
    port = sim.ports[number]
    if port.busy or port.down:
        return
    entered = NONE
    if port.urgent != NONE:
        place = take_urgent(sim, port)
    elif port.paused:
        return
    elif port.head != NONE:
        place = dequeue(sim, port)
        packet = sim.packets[place]
        if packet.hop > 0:  # else an ACK that begins here
            entered = packet.port ^ 1
            port.queued -= packet.size
            mark(sim, number, packet)
    elif port.member_count:
        place = take_turn(sim, number)
        if place == NONE:
            return
    else:
        return
    # A resume for the sender may want this port, too: the port is taken first.
    transmit(sim, number, place)
    if entered != NONE:
        leave_buffer(sim, entered, sim.packets[place].size)
