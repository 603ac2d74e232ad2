"""Lets links go down and come back in the midst of a run: packets on them are lost, flows take another way or wait.

As in SimAI's ns-3, all next hops are computed anew at once, and every flow is hashed among them again. Packets that are
under way go on from where they are. Compiled by numba.
"""

import numpy as np

from simulation.network.event_heap import LOOKED, jit, plan
from simulation.network.packet_state import NONE, Record, Simulation
from simulation.network.paths import find_path
from simulation.network.port_queues import dequeue, free_packet, leave_buffer, send
from simulation.network.routing import Ints

FIRST_SPORT, DPORT = 10_000, 100
PATIENCE = 2_000_000  # ns without an ACK after which a sender begins again at the first byte that was not acknowledged
PARKED = -2  # `seen` of a flow that no way leads to its target: nothing is planned for it


@jit
def join(sim: Simulation, number: int) -> None:
    """A flow takes its path and joins those of its GPU's port; without a path it is parked."""
    flow = sim.flows[number]
    path, back = sim.path[number], sim.back[number]
    path[:] = NONE
    back[:] = NONE
    find_path(sim, path, flow.source, flow.target, flow.sport, DPORT)
    find_path(sim, back, flow.target, flow.source, DPORT, flow.sport)
    if path[0] == NONE or back[0] == NONE:
        flow.seen = PARKED
        return
    port = sim.ports[path[0]]
    if flow.rate == 0:
        flow.rate = port.bps
    sim.members[port.member_begin + port.member_count] = number
    port.member_count += 1


@jit
def go_back(sim: Simulation, flow: Record) -> None:
    """A sender begins again at the first byte that was not acknowledged."""
    payload = sim.rules.payload
    sim.totals[0].resent += (flow.next_byte - flow.acked + payload - 1) // payload
    flow.next_byte = flow.acked
    flow.begun_again += 1


@jit
def lose_queue(sim: Simulation, number: int) -> None:
    """All that waits at a port is lost."""
    port = sim.ports[number]
    while port.urgent != NONE:
        packet = port.urgent
        port.urgent = sim.packets[packet].following
        free_packet(sim, packet)
    while port.head != NONE:
        place = dequeue(sim, port)
        packet = sim.packets[place]
        if packet.hop > 0:
            port.queued -= packet.size
            leave_buffer(sim, packet.port ^ 1, packet.size)
        sim.totals[0].lost += 1
        free_packet(sim, place)


@jit
def change_links(sim: Simulation, down: Ints) -> None:
    """Take the ports down for which `down` is above 0, the others up; give every flow that is under way its path."""
    for number in range(len(sim.ports)):
        port = sim.ports[number]
        port.member_count, port.last = 0, 0
        if port.down == (down[number] > 0):
            continue
        port.down = down[number] > 0
        port.paused = port.asked_pause = 0
        if port.down:
            lose_queue(sim, number)
    for number in range(len(sim.flows)):
        flow = sim.flows[number]
        if flow.start == NONE or flow.end != NONE:
            continue
        parked = flow.seen == PARKED
        join(sim, number)
        if parked and sim.path[number, 0] != NONE and sim.back[number, 0] != NONE:
            flow.seen = np.int64(NONE)
            go_back(sim, flow)
            plan(sim, sim.totals[0].now + PATIENCE, LOOKED, number)
    for number in range(len(sim.ports)):
        send(sim, number)


@jit
def find_all_paths(sim: Simulation) -> None:
    """Give all flows the paths that they get if those of a pair of GPUs start in the order of their numbers."""
    for number in range(len(sim.flows)):
        flow = sim.flows[number]
        flow.sport = FIRST_SPORT + sim.pair_count[flow.pair]
        sim.pair_count[flow.pair] += 1
        find_path(sim, sim.path[number], flow.source, flow.target, flow.sport, DPORT)
        find_path(sim, sim.back[number], flow.target, flow.source, DPORT, flow.sport)
