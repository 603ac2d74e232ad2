"""Carries out `python -m simulation network`: checks the options, simulates, writes the files, sums up."""

import argparse
from pathlib import Path
from statistics import median
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from common.summary import JsonValue, Summary, counted
from common.units import bandwidth_bps, size_bytes
from common.whole_files import write_whole
from simulation.analytical.parts import GPUS
from simulation.analytical.workload import TextWorkload
from simulation.common.dialect import SIMAI
from simulation.flows.choice import LinkSpeeds
from simulation.flows.collective import AUTO, FlowWish, make, make_original
from simulation.flows.groups import ParallelSizes, RankGroup
from simulation.flows.train import FlowSchedule
from simulation.network.conf import NetworkConf, read_conf
from simulation.network.flow_file import FlowFile
from simulation.network.job import Job, Schedules, groups_by_kind, job_of_collective, job_of_workload
from simulation.network.packets import PacketRun, Wishes, simulate
from simulation.network.routing import ports_of, routes_of
from simulation.network.tables import IterationTimes
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.reading import read

STABLE = 0.005  # a makespan that a shuffled start order changes by less is one number, not a band


class NetworkRequest(NamedTuple):
    job: Job
    fabric: Fabric
    wishes: Wishes
    seeds: int
    prefix: str
    notes: list[str]


def simulated(arguments: argparse.Namespace) -> Summary:
    """Simulate what the options ask for, write the files, and say how sure the result is."""
    request = read_request(arguments)
    flows = FlowFile(Path(f"{request.prefix}fct.txt"), request.fabric, request.wishes.conf)
    found = simulate(request.fabric, request.job, request.wishes, flows.write)
    flows.close()
    files = [str(flows.path)]
    if found.complete:
        times = IterationTimes(request.job, found.part_begin, found.part_end, int(found.finished[0]))
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


def read_request(arguments: argparse.Namespace) -> NetworkRequest:
    mistakes = MistakeList()
    fabric = read(arguments.network).fabric
    gpus = _gpus(fabric, arguments.network)
    original = arguments.dialect == SIMAI
    if (arguments.workload is None) == (arguments.op is None):
        mistakes.add("-w, --op", None, "exactly one of the two says what is sent")
    if arguments.output is not None:
        mistakes.add("--output", arguments.output, "two files are written: -r PREFIX names them")
    if arguments.send_lat < 0 or arguments.send_lat > 1e6:
        mistakes.add("--send-lat", arguments.send_lat, "allowed is 0 to 1000000 us")
    for flag, value in (("--seed", arguments.seed), ("--seeds", arguments.seeds)):
        if value is not None and not 0 < value < 1 << 31:
            mistakes.add(flag, value, "allowed is a whole number from 1")
    if arguments.seed and arguments.seeds:
        mistakes.add("--seed, --seeds", None, "one of the two")
    mistakes.check()
    schedules = _schedules(arguments, fabric, original=original)
    if arguments.op:
        job = _collective(arguments, gpus, fabric, schedules, original=original)
    else:
        job = _workload(arguments, gpus, fabric, schedules, original=original)
    conf = read_conf(arguments.conf) if arguments.conf else NetworkConf()
    wishes = Wishes(round(arguments.send_lat * 1000), conf, arguments.seed or 0)
    _check_routes(job, fabric, arguments.network)
    notes = _idle(job, gpus)
    return NetworkRequest(job, fabric, wishes, arguments.seeds or 0, arguments.result, notes)


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


def _gpus(fabric: Fabric, path: Path) -> int:
    """The number of GPUs, whose ids have to be those of the ranks."""
    count = fabric.gpus
    if any(role != GPU for role in fabric.roles[:count]):
        raise input_problem(f"{path}, line 2", None, "the ids of the GPUs must come before those of the switches")
    return count


def _idle(job: Job, gpus: int) -> list[str]:
    return [f"{job.ranks} ranks on {gpus} GPUs: the others send nothing"] if job.ranks < gpus else []


def _collective(
    arguments: argparse.Namespace, gpus: int, fabric: Fabric, schedules: Schedules, *, original: bool
) -> Job:
    try:
        size = size_bytes(arguments.size or "")
    except ValueError as error:
        raise input_problem("--size", arguments.size or "is missing", str(error)) from None
    tp = arguments.tp or (gpus if arguments.group == "TP" else 1)
    sizes = ParallelSizes(ranks=gpus, per_server=fabric.gpus_per_server, tp=tp, ep=arguments.ep)
    sizes.mistakes().check()
    groups = groups_by_kind(sizes, original=original).get(arguments.group)
    if not groups:
        raise input_problem("--group", arguments.group, f"its groups have one rank with --tp {tp} --ep {arguments.ep}")
    return job_of_collective(arguments.op, arguments.group, size, groups, schedules)


def _workload(arguments: argparse.Namespace, gpus: int, fabric: Fabric, schedules: Schedules, *, original: bool) -> Job:
    for flag, value in (("--size", arguments.size), ("--tp", arguments.tp)):
        if value is not None:
            raise input_problem(flag, value, "is for --op; a workload says it itself")
    workload = TextWorkload(arguments.workload, lenient=original)
    header = workload.header
    if header.all_gpus > gpus:
        raise input_problem(
            f"{workload.path}, line 1", f"all_gpus: {header.all_gpus}", f"{arguments.network} has {gpus} GPUs"
        )
    ranks = gpus if original else header.all_gpus or gpus
    sizes = ParallelSizes(ranks=ranks, per_server=fabric.gpus_per_server, tp=header.tp, ep=header.ep)
    sizes.mistakes().check()
    return job_of_workload(workload, groups_by_kind(sizes, original=original), schedules, ranks)


def _schedules(arguments: argparse.Namespace, fabric: Fabric, *, original: bool) -> Schedules:
    """Makes the flows of a collective in the dialect of the command line."""
    nvls, pxn = arguments.algorithm == "nvls", arguments.pxn
    if original:
        return lambda op, group, size: _checked(
            make_original(op, group, size, 0, nvls=nvls, pxn=pxn, gpu_type=fabric.gpu_type).schedule, fabric
        )
    nvlink, nic = _speeds(fabric)
    part = GPUS.get(fabric.gpu_type)
    machine = LinkSpeeds(nvlink, nic, part.nvls_at(nvlink) if part else None, fabric.gpu_type)

    def schedules(op: str, group: RankGroup, size: int) -> FlowSchedule:
        algorithm = arguments.algorithm if op == "AllReduce" else AUTO
        return _checked(make(op, group, size, 0, FlowWish(algorithm, pxn, AUTO, machine)).schedule, fabric)

    return schedules


def _speeds(fabric: Fabric) -> tuple[float, float]:
    """GB/s of the fastest and the slowest kind of link."""
    speeds = [bandwidth_bps(text.bandwidth) / 8e9 for text in fabric.texts]
    return max(speeds), min(speeds)


def _checked(schedule: FlowSchedule, fabric: Fabric) -> FlowSchedule:
    """The schedule, if its NVSwitches are where it takes them to be."""
    for source in schedule.sources:
        if source >= fabric.gpus and (source >= len(fabric.roles) or fabric.roles[source] != NVSWITCH):
            raise input_problem("--algorithm", "nvls", f"node {source} of the topology is no NVSwitch")
    return schedule


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
