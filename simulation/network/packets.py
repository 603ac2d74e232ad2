"""Runs a job at packet level, in slices that show progress, and says what came of it."""

import time
from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.errors import SimulationError
from common.progress import StepProgress
from simulation.network import packet_code
from simulation.network import packet_state as state
from simulation.network.conf import NetworkConf
from simulation.network.flow_level.hops import PROCESSING_NS
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.window import window_bytes
from simulation.network.job import Job
from simulation.network.outages import Outage
from simulation.network.outcome import NetworkRun
from simulation.network.request import Wishes
from simulation.network.routing import Ints, Ports, Routes, ports_of
from simulation.topology.fabric import GPU, NVSWITCH, Fabric

SLICE = 1 << 21  # events between two looks at the clock and at Ctrl-C
DRAWS = 1_000_003  # seeds between two draws


class Network(NamedTuple):
    """The facts of a network that a simulation needs, however often it runs: its ports, next hops, window and rules."""

    fabric: Fabric
    ways: PortRoutes
    ports: Ports
    routes: Routes
    window: int
    records: state.Records
    conf: NetworkConf


def network_of(fabric: Fabric, conf: NetworkConf) -> Network:
    """The network as packets see it."""
    ports, ways = ports_of(fabric, conf.error_rate), PortRoutes(fabric)
    window, _rtt = window_bytes(ways, fabric.gpus, conf.payload_bytes)
    records = state.port_records(ports, list(fabric.roles), conf)
    return Network(fabric, ways, ports, routes_of(fabric), window, records, conf)


def routes_of(fabric: Fabric, down: NDArray[np.bool_] | None = None) -> Routes:
    """The next hops of every node towards every GPU, and towards NVSwitches, which add up for NVLS.

    Ports that are `down` (shape: ports) lead nowhere.
    """
    ways = PortRoutes(fabric, closed=() if down is None else set(np.flatnonzero(down).tolist()))
    nodes = range(len(fabric.roles))
    begin = np.zeros((len(nodes), len(nodes)), dtype=np.int64)
    count = np.zeros_like(begin)
    hops: list[int] = []
    ends = [node for node in nodes if fabric.roles[node] in (GPU, NVSWITCH)]
    for end in ends:
        found = [ways.next_ports(node, end) if node != end else () for node in nodes]
        its = np.fromiter(map(len, found), np.int64, len(found))
        begin[:, end], count[:, end] = np.where(its, len(hops) + np.cumsum(its) - its, 0), its
        hops += chain.from_iterable(found)
    found_hops, peer = np.array(hops, dtype=np.int64), np.array(ways.peer, dtype=np.int64)
    longest, starts = 0, np.array(ends, dtype=np.int64)
    for end in ends:
        at, length = starts[count[starts, end] > 0], 0
        while len(at):
            at = peer[found_hops[begin[at, end]]]
            at, length = at[count[at, end] > 0], length + 1
        longest = max(longest, length)
    return Routes(begin, count, found_hops, longest)


def simulate(
    network: Network, job: Job, wishes: Wishes, finished: Callable[[NetworkRun], None] | None = None, *, less: int = 0
) -> NetworkRun:
    """Runs a job; `finished` sees the state after each slice, to write what is there.

    `less` is the number of packets that each flow is shorter.

    Raises:
        SimulationError: numba is missing.
    """
    ensure_compiled()
    sim = prepared(network, job, wishes)
    sim.flows["size"] -= less * network.conf.payload_bytes
    parents = parents_of(sim)
    began = time.perf_counter()
    packet_code.begin_ranks(sim)
    with StepProgress("flows", len(sim.flows)) as progress:
        done, outcome = 0, state.PAST_LIMIT
        while outcome in (state.PAST_LIMIT, state.NO_ROOM, state.LINKS_CHANGE):
            outcome = packet_code.run(sim, SLICE)
            if outcome == state.NO_ROOM:
                sim = state.grown(sim)
            elif outcome == state.LINKS_CHANGE:
                sim = _with_links_changed(sim, network.fabric, wishes)
            progress.advance(int(sim.totals["done"][0]) - done)
            done = int(sim.totals["done"][0])
            if finished and outcome == state.PAST_LIMIT:
                finished(_found(sim, parents, began))
    found = _found(sim, parents, began)
    if finished:
        finished(found)
    return found


def prepared(network: Network, job: Job, wishes: Wishes) -> state.Simulation:
    """The state before the first event."""
    from simulation.network.iteration import work_of

    work = work_of(job, wishes.latency_ns, wishes.slowness, apart=wishes.apart)
    rules = state.rules_of(network.conf, network.window, wishes.latency_ns + PROCESSING_NS)
    nodes = state.node_records(len(network.fabric.roles))
    sim = state.begin(
        network.records.copy(), nodes, network.routes, work, rules, seed=wishes.seed, outages=bool(wishes.outages)
    )
    draws = np.array(wishes.draws or [0] * max(len(job.collectives), 1), np.int64)
    sim.flows["luck"] = wishes.seed + DRAWS * draws[sim.flows["collective"]]
    for number, outage in enumerate(wishes.outages):
        packet_code.plan_outage(sim, outage.time_ns, number)
    return sim


def _with_links_changed(sim: state.Simulation, fabric: Fabric, wishes: Wishes) -> state.Simulation:
    """The state in which the outages up to now hold."""
    down = down_ports(wishes.outages[: int(sim.totals["outage"][0])], len(sim.ports))
    routes = routes_of(fabric, down > 0)
    sim = state.rerouted(sim, routes)
    needed = len(sim.flows) + 4 * len(sim.ports) + 64
    while int(sim.totals["heap"][0]) + needed > len(sim.events) or int(sim.totals["left"][0]) < needed:
        sim = state.grown(sim)
    packet_code.change_links(sim, down)
    return sim


def ensure_compiled() -> None:
    """Compile where nothing was compiled before, which says that it takes longer.

    Raises:
        SimulationError: what is missing for that.
    """
    try:
        packet_code.code()
    except ImportError as error:
        if error.name not in ("numba", "llvmlite"):
            raise
        raise SimulationError(
            "packets are simulated by compiled code, which needs numba: pip install -r requirements/simulation.txt"
        ) from None


def down_ports(outages: Sequence[Outage], ports: int) -> Ints:
    """How many of the outages up to now hold each port down."""
    down = np.zeros(ports, np.int64)
    for outage in outages:
        for link in outage.links:
            down[2 * link : 2 * link + 2] += 1 if outage.down else -1
    return down


def parents_of(sim: state.Simulation) -> tuple[Ints, Ints]:
    """Where the parents of each flow begin and end, and the parents."""
    counts, (heirs,) = sim.flows["child_end"] - sim.flows["child_begin"], np.nonzero(sim.flows["heir"] >= 0)
    parents = np.concatenate([np.repeat(np.arange(len(sim.flows)), counts), heirs])
    children = np.concatenate([sim.children, sim.flows["heir"][heirs]])
    order = np.argsort(children, kind="stable")
    begin = np.searchsorted(children[order], np.arange(len(sim.flows) + 1))
    return begin, parents[order]


def _found(sim: state.Simulation, parents: tuple[Ints, Ints], began: float) -> NetworkRun:
    flows, parts, totals = sim.flows, sim.parts, sim.totals[0]
    return NetworkRun(
        flows["source"],
        flows["target"],
        flows["sport"],
        flows["size"],
        flows["collective"],
        flows["start"],
        flows["end"],
        sim.path,
        parents[0],
        parents[1],
        parts["begin"],
        parts["end"],
        sim.ranks["walked"],
        sim.ranks["ended"],
        sim.usage,
        bin_ns=1 << int(totals["bin_shift"]),
        marks=int(totals["marks"]),
        rate_decreases=int(totals["decreases"]),
        pauses=int(totals["pauses"]),
        lost=int(totals["lost"]),
        resent=int(totals["resent"]),
        events=int(totals["handled"]),
        deepest_bytes=int(sim.ports["deepest"].max()),
        seconds=time.perf_counter() - began,
    )
