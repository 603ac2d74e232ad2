"""Carries out `python -m simulation network`: simulates what is asked for, writes the files, says how sure it is."""

import argparse
from pathlib import Path

from common.errors import input_problem
from common.summary import Summary
from simulation.network.answer import Sureness, summary
from simulation.network.flow_file import FlowFile
from simulation.network.job import Job
from simulation.network.outcome import NetworkRun
from simulation.network.packets import simulate
from simulation.network.request import NetworkRequest, read_request
from simulation.network.routing import ports_of, routes_of
from simulation.network.row_files import RowFiles
from simulation.topology.fabric import Fabric

PROBES = 2  # shuffled orders of starts that say whether there is a band


def simulated(arguments: argparse.Namespace) -> Summary:
    """Simulate what the options ask for, write the files, and say how sure the result is."""
    request = read_request(arguments)
    _check_routes(request.job, request.fabric, request.topology)
    flows = FlowFile(Path(f"{request.prefix}fct.txt"), request.fabric, request.wishes.conf)
    rows = RowFiles(request.job, request.prefix, request.wishes.slowness)

    def write(run: NetworkRun) -> None:
        flows.write(run)
        rows.write(run)

    found = simulate(request.fabric, request.job, request.wishes, write)
    flows.close()
    others = _others(request) if found.complete else []
    return summary(request, found, Sureness(found, others, request.seeds), [flows.path, *rows.paths])


def _others(request: NetworkRequest) -> list[NetworkRun]:
    """The runs of shuffled orders: of `--seeds`, else of the probes."""
    if request.wishes.seed:
        return []
    seeds = range(1, 1 + (request.seeds or PROBES))
    return [simulate(request.fabric, request.job, request.wishes._replace(seed=seed)) for seed in seeds]


def _check_routes(job: Job, fabric: Fabric, path: Path) -> None:
    """Every flow has a way; the first that has none is named."""
    routes = routes_of(fabric, ports_of(fabric))
    ends = {
        (train.source, target)
        for collective in job.collectives
        for schedule in collective.schedules
        for source in schedule.sources
        for train in schedule.trains(source)
        for target in ((train.targets,) if isinstance(train.targets, int) else train.targets)
    }
    for source, target in sorted(ends):
        if not routes.counts[source, target]:
            raise input_problem(str(path), None, f"GPU {source} does not reach GPU {target}: GPUs do not forward")
