"""Checks the options of `python -m simulation network`, and reads what they name."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from common.errors import MistakeList, input_problem
from common.units import size_bytes
from common.whole_files import STDOUT_NAMES
from simulation.analytical.schedules import INTERLEAVED, ONE_F_ONE_B
from simulation.analytical.workload import TextWorkload
from simulation.common.dialect import SIMAI
from simulation.flows.choice import nvls_missing
from simulation.flows.collective import FlowWish, make, make_original
from simulation.flows.copies import Schedules, in_copies
from simulation.flows.groups import ParallelSizes, RankGroup
from simulation.flows.names import ALL_REDUCE, AUTO, SEND_RECEIVE
from simulation.flows.train import ALGORITHM_NAMES, NVLS, NVLS_TREE, TREE, FlowSchedule
from simulation.network.conf import NetworkConf, read_conf
from simulation.network.job import Job, ScheduleMaker
from simulation.network.job_reading import (
    MOST_BYTES,
    JobGroups,
    job_of_collective,
    job_of_workload,
    read_rows,
    together,
)
from simulation.network.memory_room import MemoryRoom
from simulation.network.outages import Outage, parse
from simulation.network.placing import groups_by_kind, link_speeds
from simulation.network.row_files import refuse_names
from simulation.topology import whatif
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.reading import read

if TYPE_CHECKING:
    from simulation.network.measured import MeasuredFaults  # which needs pydantic

_PLACED = re.compile(r"(?P<path>.+)@(?P<first>\d+)-(?P<last>\d+)")
_STRAGGLER = re.compile(r"(?P<rank>\d+):(?P<factor>\d+(\.\d+)?)")
MOST_SLOWNESS, MOST_NUMBER = 1000.0, 1 << 31
ROW_BYTES, LEAST_ROW_BYTES = 2500, 24  # of memory that a row takes, measured; of a file
MOST_COMPUTE_NS = 10**15  # of a rank that is not slowed down


class Wishes(NamedTuple):
    """How to simulate: the time before each send (ns), the behaviour of the network, and the seed of random choices.

    Seed 0 keeps simultaneous starts in the order of the flows; any other shuffles them. `slowness` is how many times as
    long as others a rank computes. `apart`: port numbers begin anew for each collective. `draws[c]`
    is mixed into the hash that decides which packets of collective c are lost.
    """

    latency_ns: int
    conf: NetworkConf
    seed: int = 0
    slowness: Mapping[int, float] = MappingProxyType({})
    outages: Sequence[Outage] = ()
    apart: bool = False
    draws: Sequence[int] = ()


class NetworkRequest(NamedTuple):
    """The jobs to simulate, where the files go, and the network as a run found it, if one was named.

    `make` makes flows of other groups as those of the jobs were made.
    """

    job: Job
    fabric: Fabric
    topology: Path
    wishes: Wishes
    seeds: int
    fast_forward: bool
    prefix: str
    notes: list[str]
    make: ScheduleMaker
    faults: "MeasuredFaults | None" = None

    def with_faults(self, faults: "MeasuredFaults") -> "NetworkRequest":
        """The same on the network as a run found it."""
        slowness = {**self.wishes.slowness}
        for rank, factor in faults.slowness.items():
            slowness[rank] = slowness.get(rank, 1.0) * factor
        wishes = self.wishes._replace(slowness=slowness)
        return self._replace(fabric=faults.fabric, wishes=wishes, notes=self.notes + faults.notes)


def read_request(arguments: argparse.Namespace, mistakes: MistakeList, *, packets: bool = True) -> NetworkRequest:
    """Read the files that the options name, and check options and files against each other; `mistakes` are those that
    were found before, `packets` says whether links lose some.

    Raises:
        InputProblems: a file cannot be read or would be overwritten, or options and files do not fit together; all
            mistakes are named.
    """
    _check_options(arguments, mistakes)
    conf, said, fabric, notes, faults = NetworkConf(), list[str](), None, list[str](), None
    with mistakes.noted():
        conf, said = read_conf(arguments.conf) if arguments.conf else (conf, said)
    with mistakes.noted():
        fabric, notes = _fabric(arguments.network)
    slowness = _slowness(arguments, fabric, mistakes)
    outages = parse(arguments.outage, fabric, mistakes)
    if arguments.what_if:
        from simulation.network.measured import measured_faults  # which needs pydantic

        faults = measured_faults(arguments.what_if, fabric, mistakes, packets=packets)
    jobs = _jobs(arguments, fabric, mistakes)
    if len(jobs) == len(arguments.workload or ()):
        _check_of_use(arguments, jobs, mistakes)
    if fabric and jobs:
        _check_stragglers(arguments, jobs, fabric.gpus, mistakes)
    with mistakes.noted():
        refuse_names(_names(arguments), arguments.result, arguments.trace)
    mistakes.check()
    if fabric is None:
        raise AssertionError("a network that was not read is no mistake")
    wishes = Wishes(round(arguments.send_lat * 1000), conf, arguments.seed or 0, slowness, outages)
    job, gpus = together(jobs), fabric.gpus
    idle = gpus - sum(part.ranks for part in job.parts)
    notes += said
    notes += [f"{gpus - idle} ranks on {gpus} GPUs: the others send nothing"] if idle else []
    return NetworkRequest(
        job, fabric, arguments.network, wishes, arguments.seeds or 0, arguments.fast_forward, arguments.result, notes,
        _maker(arguments, fabric), faults,
    )  # fmt: skip


def _fabric(path: Path) -> tuple[Fabric, list[str]]:
    """The network of a file and its oddities; SimAI's generator promises too few links, but a cut file is refused."""
    fabric, oddities, promised = read(path)
    links = len(fabric.kinds)
    if not links or links < promised:
        raise input_problem(f"{path}, line 1", None, f"promises {promised} links, the file has {links}")
    if any(role != GPU for role in fabric.roles[: fabric.gpus]):
        raise input_problem(f"{path}, line 2", None, "the ids of the GPUs must come before those of the switches")
    return fabric, oddities


def _names(arguments: argparse.Namespace) -> list[str]:
    """The names of the jobs."""
    return [_placed(text)[0].stem for text in arguments.workload or ()] or [arguments.op or ""]


def _check_options(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    if (arguments.workload is None) == (arguments.op is None):
        mistakes.add("-w, --op", None, "exactly one of the two says what is sent")
    folder = Path(f"{arguments.result}x").parent
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        mistakes.add("-r", arguments.result, f"{there} is no folder")
    if arguments.trace is not None and arguments.trace.is_dir():
        mistakes.add("--trace", arguments.trace, "is a folder")
    if arguments.trace in STDOUT_NAMES:
        mistakes.add("--trace", arguments.trace, "is where the summary goes: name a file")
    if arguments.output is not None:
        mistakes.add("--output", arguments.output, "several files are written: -r PREFIX names them")
    _check_numbers(arguments, mistakes)
    _check_engine(arguments, mistakes)
    _check_together(arguments, mistakes)


def _check_numbers(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    if not 0 <= arguments.send_lat <= 1e6:
        mistakes.add("--send-lat", arguments.send_lat, "allowed is 0 to 1000000 us")
    for flag in ("--seed", "--seeds", "--vpp"):
        value = getattr(arguments, flag[2:])
        if value is not None and not 0 < value < MOST_NUMBER:
            mistakes.add(flag, value, f"allowed is a whole number from 1 to {MOST_NUMBER - 1}")


def _check_together(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    """Options that would have no effect beside others."""
    if arguments.fast_forward and arguments.outage:
        mistakes.add("--fast-forward", None, "skips what --outage would meet: one of the two")
    if arguments.dialect == SIMAI and arguments.algorithm in (AUTO, "tree"):
        mistakes.add("--algorithm", arguments.algorithm, "the original has ring and nvls: no --dialect simai")
    if arguments.seed and arguments.seeds:
        mistakes.add("--seed, --seeds", None, "one of the two")
    if arguments.op:
        _check_operation(arguments, mistakes)
    elif arguments.vpp and arguments.schedule != INTERLEAVED:
        mistakes.add("--vpp", arguments.vpp, "is for --schedule interleaved")
    own = (("--size", arguments.size), ("--tp", arguments.tp), ("--ep", arguments.ep), ("--group", arguments.group))
    for flag, value in own:
        if value is not None and arguments.workload:
            mistakes.add(flag, value, "is for --op; a workload says it itself")


def _check_of_use(arguments: argparse.Namespace, jobs: Sequence[Job], mistakes: MistakeList) -> None:
    """Options for workloads of which none has what they are for."""
    collectives = [each for job in jobs for each in job.collectives]
    if not jobs:
        return
    if arguments.schedule != ONE_F_ONE_B and all(each.op != SEND_RECEIVE for each in collectives):
        mistakes.add("--schedule", arguments.schedule, "no workload has stages (pp above 1)")
    reduced = {flows.algorithm for each in collectives if each.op == ALL_REDUCE for flows in each.schedules}
    wanted = {"nvls": {NVLS, NVLS_TREE}, "tree": {TREE}}.get(arguments.algorithm, reduced)
    if arguments.dialect != SIMAI and not wanted & reduced and wanted is not reduced:
        mistakes.add("--algorithm", arguments.algorithm, f"no {ALL_REDUCE} of a workload can take it on this network")


def _check_operation(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    scheduled = arguments.schedule != ONE_F_ONE_B
    for flag, given in (("--straggler", arguments.straggler), ("--schedule", scheduled), ("--vpp", arguments.vpp)):
        if given:
            mistakes.add(flag, None, "is for -w: a collective alone has no computation and no pipeline")
    if arguments.op != ALL_REDUCE and arguments.algorithm not in ("ring", AUTO):
        mistakes.add("--algorithm", arguments.algorithm, f"is for --op {ALL_REDUCE}")
    if arguments.pxn and arguments.algorithm in ("tree", "nvls") and arguments.dialect != SIMAI:
        mistakes.add("--pxn", None, f"is for rings and AllToAll, not for --algorithm {arguments.algorithm}")


def _check_engine(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    if (arguments.engine is None) != (arguments.simulator is None):
        mistakes.add("--engine simai, --simulator", None, "each needs the other")
    if not arguments.engine:
        return
    if not arguments.conf or not arguments.workload or len(arguments.workload) > 1:
        mistakes.add("--engine simai", None, "needs --conf, SimAI's own SimAI.conf, and one -w")
    elif not Path(arguments.workload[0]).exists() and _PLACED.fullmatch(arguments.workload[0]):
        mistakes.add("-w", arguments.workload[0], "SimAI runs a workload on all GPUs: without @ beside --engine simai")
    for flag in ("outage", "straggler", "what_if"):
        if getattr(arguments, flag):
            mistakes.add(f"--{flag.replace('_', '-')}", None, "SimAI cannot simulate it: not with --engine simai")


def _slowness(arguments: argparse.Namespace, fabric: Fabric | None, mistakes: MistakeList) -> dict[int, float]:
    """How many times as long as others ranks compute: --straggler, and the slow GPUs beside the topology."""
    found = dict[int, float]()
    with mistakes.noted():
        slow = whatif.slow_gpus_of(arguments.network) if fabric else {}
        found = {gpu: 1 / share for gpu, share in slow.items()}
    if found and arguments.engine:
        mistakes.add(str(arguments.network), None, "has slow GPUs, which SimAI cannot simulate: no --engine simai")
    for text in arguments.straggler:
        match = _STRAGGLER.fullmatch(text)
        if not match or not 1 <= float(match["factor"]) <= MOST_SLOWNESS:
            allowed = f"must be a rank, a colon and 1 to {MOST_SLOWNESS:g} times its computation, such as 3:1.3"
            mistakes.add("--straggler", text, allowed)
        elif fabric and int(match["rank"]) >= fabric.gpus:
            mistakes.add("--straggler", text, f"must be a rank from 0 to {fabric.gpus - 1}")
        else:
            found[int(match["rank"])] = found.get(int(match["rank"]), 1.0) * float(match["factor"])
    return found


def _check_stragglers(arguments: argparse.Namespace, jobs: Sequence[Job], gpus: int, mistakes: MistakeList) -> None:
    parts = [part for job in jobs for part in job.parts]
    busy = {rank for part in parts for rank in range(part.first, part.first + part.ranks)}
    for text in arguments.straggler:
        match = _STRAGGLER.fullmatch(text)
        if match and int(match["rank"]) in set(range(gpus)) - busy:
            mistakes.add("--straggler", text, "must be a rank of a job: this GPU has none")


def _jobs(arguments: argparse.Namespace, fabric: Fabric | None, mistakes: MistakeList) -> list[Job]:
    """The jobs that the options name; what is wrong with one is noted. Without a network only their rows are read."""
    original, jobs = arguments.dialect == SIMAI, list[Job]()
    if original and len(arguments.workload or ()) > 1:
        mistakes.add("-w", None, "the original runs one workload; leave out --dialect simai")
    placed = list[tuple[Path, range]]()
    for text in arguments.workload or ():
        where: range | None = None
        with mistakes.noted():
            path, gpus = _placed(text)
            where = _on_fabric(text, gpus, fabric) if fabric else None
        if where:
            placed.append((path, where))
            continue
        with mistakes.noted():
            read_rows(_opened(path, original=original))
    if fabric is None:
        if arguments.op:
            mistakes.result(lambda: _size(arguments))
        return []
    for number, (path, gpus) in enumerate(placed):
        for _other, others in placed[:number]:
            shared = range(max(gpus.start, others.start), min(gpus.stop, others.stop))
            if shared:
                mistakes.add("-w", f"{path}@{gpus.start}-{gpus.stop - 1}", f"GPU {shared.start} has another job")
    schedules = _schedules(arguments, fabric)
    for path, gpus in placed:
        with mistakes.noted():
            jobs.append(_workload(arguments, path, gpus, fabric, schedules))
    if arguments.op:
        with mistakes.noted():
            jobs.append(_collective(arguments, fabric, schedules, original=original))
    return jobs


def _placed(text: str) -> tuple[Path, range | None]:
    """The file of a workload, and the GPUs that the text places it on, if it does."""
    match = None if Path(text).exists() else _PLACED.fullmatch(text)
    if not match:
        return Path(text), None
    return Path(match["path"]), range(int(match["first"]), int(match["last"]) + 1)


def _on_fabric(text: str, gpus: range | None, fabric: Fabric) -> range:
    """The GPUs of a workload; all of them where the text does not say which."""
    if gpus is None:
        return range(fabric.gpus)
    if not gpus or gpus.stop > fabric.gpus:
        raise input_problem("-w", text, f"must name GPUs from 0 to {fabric.gpus - 1}, the first before the last")
    return gpus


def _collective(arguments: argparse.Namespace, fabric: Fabric, schedules: Schedules, *, original: bool) -> Job:
    mistakes = MistakeList()
    size = mistakes.result(lambda: _size(arguments))
    gpus = fabric.gpus
    kind = arguments.group or "TP"
    ep = 1 if arguments.ep is None else arguments.ep
    tp = (gpus if kind == "TP" else 1) if arguments.tp is None else arguments.tp
    sizes = ParallelSizes(ranks=gpus, per_server=_per_server(fabric, original=original), tp=tp, ep=ep)
    mistakes.mistakes += sizes.mistakes(f"{arguments.network}: GPUs").mistakes
    mistakes.check()
    groups = groups_by_kind(sizes, fabric, original=original, kinds=(kind,))
    if not groups.get(kind):
        raise input_problem("--group", kind, f"its groups have one rank with --tp {tp} --ep {ep}")
    if arguments.algorithm == "nvls" and not original:
        speeds = link_speeds(fabric)
        missing = {nvls_missing(group, speeds) for group in groups[kind]} - {""}
        if missing:
            raise input_problem("--algorithm", "nvls", f"not possible here: {min(missing)}")
    return job_of_collective(arguments.op, kind, size, JobGroups(0, gpus, groups, schedules))


def _size(arguments: argparse.Namespace) -> int:
    """The bytes of --size."""
    try:
        size = size_bytes(arguments.size or "")
    except ValueError as error:
        raise input_problem("--size", arguments.size or "is missing", str(error)) from None
    if size > MOST_BYTES:
        raise input_problem("--size", arguments.size, f"must be at most {MOST_BYTES >> 40}T")
    return size


def _per_server(fabric: Fabric, *, original: bool) -> int:
    """The original's servers are all as the first line says; ours are those of the topology, whatever their size."""
    return fabric.gpus_per_server if original else 1


def _opened(path: Path, *, original: bool) -> TextWorkload:
    """A workload whose rows memory has room for."""
    workload = TextWorkload(path, lenient=original)
    rows = min(workload.header.rows, path.stat().st_size // LEAST_ROW_BYTES)
    MemoryRoom(str(path), "fewer rows take less").take(rows, ROW_BYTES, "rows")
    return workload


def _workload(arguments: argparse.Namespace, path: Path, gpus: range, fabric: Fabric, schedules: Schedules) -> Job:
    original = arguments.dialect == SIMAI
    workload = _opened(path, original=original)
    header, place = workload.header, f"{workload.path}, line 1"
    mistakes = MistakeList()
    if header.all_gpus > len(gpus):
        mistakes.add(place, f"all_gpus: {header.all_gpus}", f"{arguments.network} has {len(gpus)} GPUs for it")
    if original and header.pp > 1:
        mistakes.add(place, f"pp: {header.pp}", "the original has no flows between stages: no --dialect simai")
    ranks = len(gpus) if original else header.all_gpus or len(gpus)
    sizes = ParallelSizes(
        ranks=ranks, per_server=_per_server(fabric, original=original), tp=header.tp, pp=header.pp, ep=header.ep
    )
    mistakes.mistakes += [each._replace(file=f"{place}, {each.file}") for each in sizes.mistakes().mistakes]
    if mistakes.mistakes:
        with mistakes.noted():
            read_rows(workload)
    mistakes.check()
    groups = groups_by_kind(sizes, fabric, gpus.start, original=original)
    where = JobGroups(gpus.start, ranks, groups, schedules)
    job = job_of_workload(workload, where, arguments.schedule, max(arguments.vpp or 1, 1))
    longest = max(sum(phase.compute_ns for phase in program) for program in job.programs)
    if longest > MOST_COMPUTE_NS:
        raise input_problem(str(path), f"{longest} ns", f"must compute for at most {MOST_COMPUTE_NS:g} ns in all")
    return job


def _maker(arguments: argparse.Namespace, fabric: Fabric) -> ScheduleMaker:
    """Makes the flows of a collective in the dialect of the command line."""
    nvls, pxn = arguments.algorithm == "nvls", arguments.pxn
    wish = None if arguments.dialect == SIMAI else FlowWish(AUTO, pxn, AUTO, link_speeds(fabric))

    def made(op: str, group: RankGroup, size: int, number: int | None) -> FlowSchedule:
        if wish is None:
            return make_original(op, group, size, 0, nvls=nvls, pxn=pxn, gpu_type=fabric.gpu_type).schedule
        asked = arguments.algorithm if op == ALL_REDUCE else AUTO
        algorithm = asked if number is None else ALGORITHM_NAMES[number]
        return make(op, group, size, 0, wish._replace(algorithm=algorithm)).schedule

    return made


def _schedules(arguments: argparse.Namespace, fabric: Fabric) -> Schedules:
    """Makes the flows of alike groups once."""
    made = _maker(arguments, fabric)
    shared = in_copies(lambda op, group, size: made(op, group, size, None))
    return lambda op, group, size: _checked(shared(op, group, size), fabric)


def _checked(schedule: FlowSchedule, fabric: Fabric) -> FlowSchedule:
    """The schedule, if its NVSwitches are where it takes them to be."""
    gpus = fabric.gpus
    for source in schedule.sources:
        if source >= gpus and (source >= len(fabric.roles) or fabric.roles[source] != NVSWITCH):
            raise input_problem("--algorithm", "nvls", f"node {source} of the topology is no NVSwitch")
    return schedule
