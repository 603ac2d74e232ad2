"""Checks the options of `python -m simulation network`, and reads what they name."""

import argparse
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from common.units import bandwidth_bps, size_bytes
from simulation.analytical.parts import GPUS
from simulation.analytical.workload import TextWorkload
from simulation.common.dialect import SIMAI
from simulation.flows.choice import LinkSpeeds
from simulation.flows.collective import AUTO, FlowWish, make, make_original
from simulation.flows.groups import ParallelSizes, RankGroup
from simulation.flows.train import FlowSchedule
from simulation.network.conf import NetworkConf, read_conf
from simulation.network.job import Job, Schedules, groups_by_kind, job_of_collective, job_of_workload
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.reading import read


class Wishes(NamedTuple):
    """How to simulate: the time before each send (ns), the behaviour of the network, and the seed of random choices.

    Seed 0 keeps simultaneous starts in the order of the flows; any other shuffles them.
    """

    latency_ns: int
    conf: NetworkConf
    seed: int = 0


class NetworkRequest(NamedTuple):
    job: Job
    fabric: Fabric
    topology: Path
    wishes: Wishes
    seeds: int
    prefix: str
    notes: list[str]


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
    notes = _idle(job, gpus)
    return NetworkRequest(job, fabric, arguments.network, wishes, arguments.seeds or 0, arguments.result, notes)


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
