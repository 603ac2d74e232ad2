"""Runs a job at packet level, in slices that show progress, and says what came of it."""

import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from common.errors import SimulationError
from common.progress import StepProgress
from simulation.network import packet_state as state
from simulation.network.job import Job
from simulation.network.request import Wishes
from simulation.network.routing import Ints, ports_of, routes_of, window_bytes
from simulation.topology.fabric import Fabric

SLICE = 1 << 21  # events between two looks at the clock and at Ctrl-C


class PacketRun(NamedTuple):
    """What a simulation found. Times are ns; `end` is -1 for what did not end.

    Columns of the flows: `source`, `target`, `sport`, `size` (bytes), `start`, `end`. `part_begin` and `part_end` are
    those of rank 0's part of each collective, `finished` the end of each rank's iteration.
    """

    source: Ints
    target: Ints
    sport: Ints
    size: Ints
    start: Ints
    end: Ints
    part_begin: Ints
    part_end: Ints
    finished: Ints
    marks: int
    rate_decreases: int
    pauses: int
    lost: int
    resent: int
    events: int
    deepest_bytes: int
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether every flow and every rank came to its end."""
        return bool((self.end >= 0).all() and (self.finished >= 0).all())

    @property
    def rank_ends(self) -> Ints:
        """The end of the last flow of each rank that has flows (ns)."""
        ends = np.full(len(self.finished), -1, np.int64)
        for nodes in (self.source, self.target):
            ranks = nodes < len(ends)
            np.maximum.at(ends, nodes[ranks], self.end[ranks])
        return ends[ends >= 0]


def simulate(
    fabric: Fabric, job: Job, wishes: Wishes, finished: Callable[[PacketRun], None] | None = None
) -> PacketRun:
    """Runs a job; `finished` sees the state after each slice, to write what is there.

    Raises:
        SimulationError: numba is missing.
    """
    _check_numba()
    from simulation.network import iteration
    from simulation.network import packet_loop as loop

    ports = ports_of(fabric, wishes.conf.error_rate)
    routes = routes_of(fabric, ports)
    window, _rtt = window_bytes(ports, routes, job.ranks, wishes.conf.payload_bytes)
    work = iteration.work_of(job.phases, job.collectives, job.ranks, wishes.latency_ns)
    rules = state.rules_of(wishes.conf, window, wishes.latency_ns + iteration.PROCESSING_NS)
    records = state.port_records(ports, list(fabric.roles), wishes.conf)
    sim = state.begin(records, state.node_records(len(fabric.roles)), routes, work, rules, wishes.seed)
    began = time.perf_counter()
    loop.begin_ranks(sim, wishes.seed + 1)
    with StepProgress("flows", len(sim.flows)) as progress:
        done, outcome = 0, loop.PAST_LIMIT
        while outcome in (loop.PAST_LIMIT, loop.NO_ROOM):
            outcome = loop.run(sim, SLICE)
            if outcome == loop.NO_ROOM:
                sim = state.grown(sim)
            progress.advance(int(sim.totals["done"][0]) - done)
            done = int(sim.totals["done"][0])
            if finished:
                finished(_found(sim, began))
    return _found(sim, began)


def _check_numba() -> None:
    """Say what is missing, and that the first call takes longer."""
    try:
        from simulation.network.event_heap import COMPILED
    except ImportError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise SimulationError(
            "packets are simulated by compiled code, which needs numba: pip install -r requirements/simulation.txt"
        ) from None
    if not COMPILED.exists():
        print(f"compiling the packet level once, into {COMPILED} (about a minute)", file=sys.stderr)


def _found(sim: state.Simulation, began: float) -> PacketRun:
    flows, parts, totals = sim.flows, sim.parts[:, 0], sim.totals[0]
    return PacketRun(
        flows["source"],
        flows["target"],
        flows["sport"],
        flows["size"],
        flows["start"],
        flows["end"],
        parts["begin"],
        parts["end"],
        sim.ranks["ended"],
        marks=int(totals["marks"]),
        rate_decreases=int(totals["decreases"]),
        pauses=int(totals["pauses"]),
        lost=int(totals["lost"]),
        resent=int(totals["resent"]),
        events=int(totals["handled"]),
        deepest_bytes=int(sim.ports["deepest"].max()),
        seconds=time.perf_counter() - began,
    )
