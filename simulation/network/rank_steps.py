"""Lets ranks work through their steps: compute, take part in collectives, wait for them; compiled by numba.

Rules of SimAI's training loop: a rank computes, and waits for collectives that block; those that do not block queue up,
of which one runs at a time and then the latest, in one order for all ranks of a team (see turns). A rank's part of a
collective ends with its last flow. A send to the next stage of a pipeline neither blocks nor queues; its receiver has a
part of it that blocks.
"""

import numpy as np

from simulation.network.event_heap import ADVANCED, STARTED, jit, plan
from simulation.network.packet_state import COMPUTE, END, NONE, QUEUE, SEND, SENDS_ON, TURNS, Record, Simulation
from simulation.network.routing import Ints

ADDING_NS = 30  # that a rank takes besides for a piece which it adds to its own before it sends it on


@jit
def settle(sim: Simulation, number: int, gap: int) -> int:
    """One of those that a flow waits for is there; after the last one it starts. Returns how long a rank adds (ns)."""
    flow = sim.flows[number]
    flow.waiting -= 1
    if flow.waiting > 0:
        return 0
    added = adding(sim, flow)
    plan(sim, sim.totals[0].now + gap + added, STARTED, number)
    return added


@jit
def adding(sim: Simulation, flow: Record) -> int:
    """How long a rank adds before it sends a flow (ns), as in SimAI: one bit of its part of a ring's AllReduce says so.

    The first flow of every round on each of its channels turns the bit over and is not added to: with one channel the
    flows of the first round carry sums, with several those that start while an odd number of them is a round ahead.
    """
    if flow.turn == SENDS_ON:
        return 0
    part = sim.parts[flow.collective, flow.source]
    if flow.turn == TURNS:
        part.adds = 1 - part.adds
        return 0
    return ADDING_NS * part.adds


@jit
def issue(sim: Simulation, rank: int, collective: int) -> bool:
    """A rank begins its part of a collective; returns whether it has none, and so is done with it."""
    part = sim.parts[collective, rank]
    if part.begin == NONE:
        part.begin = sim.totals[0].now
    for place in range(part.issue_begin, part.issue_end):
        settle(sim, sim.issued[place], sim.rules.first_gap)
    if part.pending == 0 and part.end == NONE:
        part.end = sim.totals[0].now
    return part.pending == 0


@jit
def queue_up(sim: Simulation, rank: int, collective: int) -> None:
    """Put a collective at the end of a rank's queue; the only one runs at once."""
    queue = sim.queues[rank]
    sim.parts[collective, rank].begin = sim.totals[0].now
    queue[0] += 1
    queue[queue[0]] = collective
    if queue[0] == 1 or sim.ranks[rank].idle:
        run_queue(sim, rank)


@jit
def run_queue(sim: Simulation, rank: int) -> None:
    """Begin the next collective of a queue of which none runs, and those after it while they have nothing to send."""
    queue = sim.queues[rank]
    while queue[0] > 0 and take(sim, rank) and issue(sim, rank, queue[1]):
        drop_first(queue)


@jit
def take(sim: Simulation, rank: int) -> bool:
    """Bring to the front what the team takes next, or the latest if nobody has; returns whether it is in the queue."""
    queue, state = sim.queues[rank], sim.ranks[rank]
    order, place = sim.taken[state.team], queue[0]
    if state.took == order[0]:
        order[0] += 1
        order[order[0]] = queue[place]
    wanted = order[state.took + 1]
    while place > 0 and queue[place] != wanted:
        place -= 1
    state.idle = place == 0
    if state.idle:
        return False
    for behind in range(place, 1, -1):
        queue[behind] = queue[behind - 1]
    queue[1] = wanted
    state.took += 1
    return True


@jit
def drop_first(queue: Ints) -> None:
    """The first collective of a queue is done."""
    for place in range(1, queue[0]):
        queue[place] = queue[place + 1]
    queue[0] -= 1


@jit
def count_down(sim: Simulation, collective: int, rank: int) -> None:
    """A flow of a rank is complete; after its last one its part of the collective is done."""
    if rank >= len(sim.ranks):
        return  # an NVSwitch
    part, now = sim.parts[collective, rank], sim.totals[0].now
    part.pending -= 1
    if part.pending > 0:
        return
    part.end = now
    queue = sim.queues[rank]
    if queue[0] > 0 and queue[1] == collective and not sim.ranks[rank].idle:
        drop_first(queue)
        run_queue(sim, rank)
    if sim.ranks[rank].waits_for == collective:
        sim.ranks[rank].waits_for = NONE
        plan(sim, now + part.end_gap, ADVANCED, rank)


@jit
def advance(sim: Simulation, rank: int) -> None:
    """Carry out the steps of a rank up to the next one that takes time."""
    state, now = sim.ranks[rank], sim.totals[0].now
    while True:
        step = sim.steps[state.place]
        if step.kind == END:
            if state.walked == NONE:
                state.walked = now
            if sim.queues[rank, 0] > 0:
                state.waits_for = sim.queues[rank, 1]
            else:
                state.ended = now
                sim.totals[0].ended += 1
            return
        state.place += 1
        if step.kind == COMPUTE:
            plan(sim, now + np.int64(step.value * state.slowness), ADVANCED, rank)
            return
        if step.kind == QUEUE:
            queue_up(sim, rank, step.value)
        elif step.kind == SEND:
            issue(sim, rank, step.value)
        elif not issue(sim, rank, step.value):
            state.waits_for = step.value
            return
