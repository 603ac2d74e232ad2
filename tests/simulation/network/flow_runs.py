"""Our runs at flow level of the recorded commands, and how far they are from what ns-3 measured."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from simulation.network.conf import NetworkConf
from simulation.network.flow_level.port_routes import ECMP, PortRoutes
from simulation.network.flow_level.simulate import FlowRun, simulate
from simulation.network.flow_level.trust import judged
from simulation.network.flow_level.verb import flow_wishes
from simulation.topology.fabric import Fabric
from tests.simulation.network.recordings import Recording, Times, arguments, recorded, request


class FlowLevelRun(NamedTuple):
    """A run, the network's ways, and the configuration that says which queues are marked."""

    run: FlowRun
    ways: PortRoutes
    fabric: Fabric
    conf: NetworkConf

    @property
    def weakness(self) -> str:
        """What the flow level cannot follow in it."""
        return judged(self.run, self.ways, self.fabric, self.conf)[0]


class Errors(NamedTuple):
    """Percent by which our figures are above ns-3's."""

    makespan: float
    mean: float
    zero: float
    durations: float


def flow_level(recording: Recording, folder: Path, *, apart: bool = False, routing: str = ECMP) -> FlowLevelRun:
    """Our run of a recorded command; `apart` simulates every flow, also those that are alike."""
    asked = request(arguments(recording, folder))
    ways = PortRoutes(asked.fabric, routing)
    run = simulate(ways, asked.job, flow_wishes(asked, ways)._replace(apart=apart), "network")
    return FlowLevelRun(run, ways, asked.fabric, asked.wishes.conf)


def times_of(run: FlowRun) -> Times:
    """What is compared, of our run."""
    ends, first = run.rank_ends(), run.first_start()
    took = [end - start for each in run.groups() for start, end in zip(*run.times(each.number, each.kind), strict=True)]
    return Times(max(ends) - first, float(np.mean(ends)) - first, ends[0] - first, np.sort(np.round(took)).astype(int))


def errors(name: str, run: FlowRun) -> Errors:
    """How far a run is from the recorded one of this name."""
    found, wanted = times_of(run), recorded(name)
    figures = zip(
        (found.makespan, found.mean, found.zero, float(found.durations.mean())),
        (wanted.makespan, wanted.mean, wanted.zero, float(wanted.durations.mean())),
        strict=True,
    )
    return Errors._make(100 * (ours / theirs - 1) for ours, theirs in figures)
