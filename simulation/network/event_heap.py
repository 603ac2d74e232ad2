"""Keeps far and rare events in a binary heap, by time and then by order of planning; compiled by numba."""

from typing import Any

import numba

from simulation.network.packet_state import Record, Simulation

# ALPHA to RECOVER are timers of DCQCN, which a flow that is not complete sets again for ever.
TRANSMITTED, ARRIVED, STARTED, SEND_AGAIN, ALPHA, DECREASE, RECOVER, RELEASED, LOOKED, ADVANCED, LINKS = range(11)
# Without counts of references (_nrt), which took half of the time: compiled code makes no array. It raises nothing.
_OPTIONS: dict[str, Any] = {"_nrt": False, "error_model": "numpy"}
jit = numba.njit(**_OPTIONS)
inlined = numba.njit(forceinline=True, **_OPTIONS)  # for what takes a state of many columns


@jit
def earlier(one: Record, other: Record) -> bool:
    """Whether an event comes before another."""
    return one.time < other.time or (one.time == other.time and one.order < other.order)


@jit
def plan(sim: Simulation, time: int, what: int, about: int) -> None:
    """Put an event on the heap; `time` is in ns."""
    events, totals = sim.events, sim.totals[0]
    place = totals.heap
    totals.heap += 1
    totals.timers += ALPHA <= what <= RECOVER
    totals.planned += 1
    # The place at the end of the heap holds the new event while it looks for its own.
    new = events[len(events) - 1]
    new.time, new.order, new.what, new.about = time, totals.planned, what, about
    if what == STARTED and totals.shuffled:
        new.order = sim.orders[totals.drawn % len(sim.orders)]
        totals.drawn += 1
    while place > 0:
        above = (place - 1) >> 1
        if earlier(events[above], new):
            break
        events[place] = events[above]
        place = above
    events[place] = new


@jit
def drop_first(sim: Simulation) -> None:
    """Take the first event off the heap."""
    events, totals = sim.events, sim.totals[0]
    totals.heap -= 1
    totals.timers -= ALPHA <= events[0].what <= RECOVER
    count, place = totals.heap, 0
    while True:
        child = 2 * place + 1
        if child >= count:
            break
        if child + 1 < count and earlier(events[child + 1], events[child]):
            child += 1
        if earlier(events[count], events[child]):
            break
        events[place] = events[child]
        place = child
    events[place] = events[count]
