"""Keeps the ends of transmissions on a wheel with a slot for each of the next ns; compiled by numba.

A port has one transmission at a time and a packet is on one link, so that each has one event, linked into its slot:
events of port p have number p, those of packet k number k + ports. Other events are on the heap; both together have the
order of one heap.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from simulation.network.event_heap import ARRIVED, TRANSMITTED, drop_first, inlined, plan
from simulation.network.packet_state import NONE, SLOTS, WORD, Simulation


@intrinsic
def trailing_zeros(_typing: object, _bits: object) -> tuple[Any, Callable[..., Any]]:
    """The zeros below the lowest bit of a word that has one: an instruction of the processor."""

    def emitted(_context: object, builder: Any, _signature: object, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), emitted


@inlined
def plan_soon(sim: Simulation, time: int, what: int, about: int) -> None:
    """Plan TRANSMITTED of a port or ARRIVED of a packet; `time` is in ns."""
    totals = sim.totals[0]
    if time - totals.now >= SLOTS:
        plan(sim, time, what, about)
        return
    totals.planned += 1
    totals.near += 1
    number = about if what == TRANSMITTED else about + len(sim.ports)
    link = sim.links[number]
    link.order, link.following = totals.planned, NONE
    place = time & (SLOTS - 1)
    slot = sim.wheel[place]
    if slot.first == NONE:
        slot.first = number
        sim.filled[place // WORD] |= np.uint64(1) << np.uint64(place % WORD)
    else:
        sim.links[slot.last].following = number
    slot.last = number


@inlined
def next_time(sim: Simulation) -> int:
    """The time of the first event on the wheel, which holds one (ns)."""
    now = sim.totals[0].now
    place = now & (SLOTS - 1)
    bits = sim.filled[place // WORD] >> np.uint64(place % WORD)
    if bits:
        return now + trailing_zeros(bits)
    begin = now - place % WORD
    for step in range(1, SLOTS // WORD + 1):
        bits = sim.filled[(place // WORD + step) & (SLOTS // WORD - 1)]
        if bits:
            return begin + step * WORD + trailing_zeros(bits)
    return now


@inlined
def take_next(sim: Simulation) -> tuple[int, int]:
    """Take the next event off, and set the time to it; returns what happens, and to what."""
    totals, first = sim.totals[0], sim.events[0]
    if totals.near > 0:
        time = next_time(sim)
        slot = sim.wheel[time & (SLOTS - 1)]
        number = slot.first
        link = sim.links[number]
        if totals.heap == 0 or time < first.time or (time == first.time and link.order < first.order):
            totals.now = time
            totals.near -= 1
            slot.first = link.following
            if link.following == NONE:
                place = time & (SLOTS - 1)
                sim.filled[place // WORD] &= ~(np.uint64(1) << np.uint64(place % WORD))
            ports = len(sim.ports)
            return (TRANSMITTED, number) if number < ports else (ARRIVED, number - ports)
    what, about = first.what, first.about
    totals.now = first.time
    drop_first(sim)
    return what, about
