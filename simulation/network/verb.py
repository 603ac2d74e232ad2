"""Carries out `python -m simulation network`: checks the options, simulates, writes the files, sums up."""

import argparse
from pathlib import Path
from statistics import median

from common.errors import input_problem
from common.summary import JsonValue, Summary, counted
from common.whole_files import write_whole
from simulation.network.flow_file import FlowFile
from simulation.network.job import Job
from simulation.network.packets import PacketRun, simulate
from simulation.network.request import NetworkRequest, read_request
from simulation.network.routing import ports_of, routes_of
from simulation.network.tables import IterationTimes
from simulation.topology.fabric import Fabric

STABLE = 0.005  # a makespan that a shuffled start order changes by less is one number, not a band


def simulated(arguments: argparse.Namespace) -> Summary:
    """Simulate what the options ask for, write the files, and say how sure the result is."""
    request = read_request(arguments)
    _check_routes(request.job, request.fabric, request.topology)
    flows = FlowFile(Path(f"{request.prefix}fct.txt"), request.fabric, request.wishes.conf)
    found = simulate(request.fabric, request.job, request.wishes, flows.write)
    flows.close()
    files = [str(flows.path)]
    if found.complete:
        times = IterationTimes(request.job, found.part_begin.tolist(), found.part_end.tolist(), int(found.finished[0]))
        write_whole(Path(f"{request.prefix}EndToEnd.csv"), (line.encode() for line in times.lines()))
        files.append(f"{request.prefix}EndToEnd.csv")
    others = _others(request, found) if found.complete else []
    return _summary(request, found, others, files)


def _others(request: NetworkRequest, found: PacketRun) -> list[float]:
    """The makespans (us) of shuffled orders: of `--seeds`, else of one probe, which says whether there is a band."""
    if request.wishes.seed:
        return []
    seeds = range(1, 1 + (request.seeds or 1))
    runs = (simulate(request.fabric, request.job, request.wishes._replace(seed=seed)) for seed in seeds)
    return [makespan_us(each) for each in runs]


def makespan_us(run: PacketRun) -> float:
    """From the start of the first flow to the end of the last one."""
    return float(run.end.max() - run.start.min()) / 1000 if len(run.end) else 0.0


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


def _summary(request: NetworkRequest, found: PacketRun, others: list[float], files: list[str]) -> Summary:
    ended = int((found.end >= 0).sum())
    first = int(found.start[found.start >= 0].min()) if ended else 0
    data: dict[str, JsonValue] = {
        "files": files,
        "complete": found.complete,
        "flows": len(found.end),
        "flows_completed": ended,
        "marks": found.marks,
        "rate_decreases": found.rate_decreases,
        "pauses": found.pauses,
        "lost_packets": found.lost,
        "retransmissions": found.resent,
        "deepest_queue_bytes": found.deepest_bytes,
        "events": found.events,
        "seconds": round(found.seconds, 3),
    }
    lines = [
        f"{' and '.join(files)}: {counted(len(found.end), 'flow')}, {found.events} events in {found.seconds:.2f} s"
    ]
    lines += request.notes
    if not found.complete:
        lines.append(f"did not complete: {ended} of {len(found.end)} flows ended")
        return Summary("\n".join(lines), data, failed=True)
    ends = found.rank_ends
    makespan = makespan_us(found)
    mean = float(ends.mean() - first) / 1000 if len(ends) else 0.0
    zero = float(found.finished[0]) / 1000
    data |= {"makespan_us": makespan, "mean_over_ranks_us": mean, "iteration_of_rank_0_us": zero}
    lines.append(f"flows {makespan:.3f} us, mean over ranks {mean:.3f} us; iteration of rank 0 {zero:.3f} us")
    lines.append(
        f"ECN marks {found.marks}, pauses {found.pauses}, lost packets {found.lost}, sent again {found.resent}, "
        f"deepest queue {found.deepest_bytes} bytes"
    )
    lines += _band(makespan, others, request.seeds, data)
    return Summary("\n".join(lines), data)


def _band(makespan: float, others: list[float], seeds: int, data: dict[str, JsonValue]) -> list[str]:
    """Whether the order of simultaneous starts changes the result, and by how much."""
    if not others or not makespan:
        return []
    every = sorted([makespan, *others])
    spread = every[-1] / every[0] - 1
    data |= {"stable": spread < STABLE, "makespans_us": every}
    if spread < STABLE:
        return [f"stable: another order of simultaneous starts changes it by {100 * spread:.2f} %"]
    typical = median(every)
    data |= {"median_us": typical}
    band = (
        f"{every[0]:.3f} to {every[-1]:.3f} us, median {typical:.3f} us over {counted(len(every), 'order')} of starts"
    )
    text = f"unstable: {band}; typical is {100 * (typical / every[0] - 1):.1f} % above the best case"
    return [text if seeds else f"{text}; --seeds 8 gives the band"]
