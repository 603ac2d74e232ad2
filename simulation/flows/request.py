"""Checks the options of `python -m simulation flows`, all of them at once."""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

from common.errors import MistakeList
from common.units import SIZE_FORM, rate_gbps, size_bytes
from common.whole_files import STDOUT_NAMES, target
from simulation.analytical.parts import GPUS, NICS
from simulation.analytical.workload import TextWorkload
from simulation.common.dialect import SIMAI
from simulation.flows.choice import LinkSpeeds, nvls_missing, pat_missing
from simulation.flows.collective import ALGORITHMS, ORIGINAL_ALGORITHMS, PXN_OPS, FlowWish
from simulation.flows.groups import ParallelSizes, RankGroup, megatron_group, original_group
from simulation.flows.names import AUTO, EVERY_ALGORITHM, EVERY_KIND, OPS, ORIGINAL_KINDS, ORIGINAL_OPS, RING_OPS
from simulation.flows.options import DEFAULT_GPU, DEFAULT_SERVER
from simulation.topology.reading import read

ORIGINAL_GPUS = ("A100", "A800", "H100", "H800", "H20")
DEFAULT_OUTPUT = Path("ncclFlowModel_detailed_flows.csv")


class FlowRequest(NamedTuple):
    """The flows to make. Without a workload `op`, `size_bytes` and `kind` say which collective."""

    original: bool
    sizes: ParallelSizes
    rank: int
    gpu_type: str
    wish: FlowWish
    workload: TextWorkload | None
    op: str = ""
    size_bytes: int = 0
    kind: str = ""

    def group(self, kind: str) -> RankGroup | None:
        """The group of this kind that holds the chosen rank; None if it has no other rank, or the original has none."""
        if self.original:
            return original_group(self.sizes, kind, self.rank)
        return megatron_group(self.sizes, kind, self.rank) if self.sizes.holds(kind, self.rank) else None


def read_request(arguments: argparse.Namespace) -> FlowRequest:
    """The checked options.

    Raises:
        InputProblems: an option is missing or wrong, or they do not fit together.
    """
    mistakes = MistakeList()
    original = arguments.dialect == SIMAI
    workload = mistakes.result(
        lambda: TextWorkload(arguments.workload, lenient=original) if arguments.workload else None
    )
    with mistakes.noted():
        _take_network(arguments, workload, mistakes, original=original)
    op, size, kind = ("", 0, "") if arguments.workload else _collective(arguments, mistakes, original=original)
    if arguments.workload:
        _refuse_with_workload(arguments, mistakes)
    if mistakes.mistakes and not workload and arguments.workload:
        mistakes.check()  # the others need its header
    numbers = _numbers(arguments, workload, kind, mistakes)
    gpu_type, machine = _machine(arguments, mistakes, original=original)
    wish = _wish(arguments, machine, mistakes, op, original=original)
    _refuse_equal_files(arguments, mistakes)
    if arguments.distinct and not workload:
        mistakes.add("--distinct", None, "is for -w")
    sizes = ParallelSizes(
        ranks=numbers["--ranks"],
        per_server=numbers["--gpus-per-server"],
        tp=numbers["--tp"],
        pp=numbers["--pp"],
        ep=numbers["--ep"],
    )
    mistakes.mistakes += sizes.mistakes().mistakes
    rank = numbers["--rank"]
    if not 0 <= rank < sizes.ranks and arguments.ranks is not None:
        mistakes.add("--rank", rank, f"allowed is 0 to {sizes.ranks - 1}")
    mistakes.check()
    request = FlowRequest(original, sizes, rank, gpu_type, wish, workload, op, size, kind)
    if not workload:
        _check_group(request, mistakes)
    mistakes.check()
    return request


def _take_network(
    arguments: argparse.Namespace, workload: TextWorkload | None, mistakes: MistakeList, *, original: bool
) -> None:
    """Take from a topology what is not given: the GPUs, those of a server, and their type. What is given has to fit."""
    if arguments.network is not None:
        fabric = read(arguments.network).fabric
        per_server = arguments.gpus_per_server
        if per_server not in (None, fabric.gpus_per_server):
            mistakes.add("--gpus-per-server", per_server, f"{arguments.network} says {fabric.gpus_per_server}")
        arguments.gpus_per_server = fabric.gpus_per_server
        said = workload.header.all_gpus if workload else 0
        arguments.ranks = arguments.ranks or said or fabric.gpus
        if arguments.ranks > fabric.gpus:
            mistakes.add("--ranks", arguments.ranks, f"{arguments.network} has {fabric.gpus} GPUs")
        known = ORIGINAL_GPUS if original else tuple(GPUS)
        if arguments.gpu_type is None and fabric.gpu_type in known:
            arguments.gpu_type = fabric.gpu_type
    arguments.gpu_type = arguments.gpu_type or DEFAULT_GPU


def _collective(arguments: argparse.Namespace, mistakes: MistakeList, *, original: bool) -> tuple[str, int, str]:
    """Operation, bytes and kind of group of a single collective."""
    allowed = ORIGINAL_OPS if original else OPS
    names = {op.lower(): op for op in allowed}
    op = names.get((arguments.op or "").lower(), "")
    if not op:
        mistakes.add("--op", arguments.op or "is missing", f"allowed is {', '.join(allowed)}; or give -w")
    size = 0
    try:
        size = size_bytes(arguments.size) if arguments.size else 0
    except ValueError as error:
        mistakes.add("--size", arguments.size, str(error))
    if not arguments.size:
        mistakes.add("--size", "is missing", f"allowed is {SIZE_FORM}")
    kinds = ORIGINAL_KINDS if original else EVERY_KIND
    kind = arguments.group or "TP"
    if kind not in kinds:
        mistakes.add("--group", kind, f"allowed is {', '.join(kinds)}")
    return op, size, kind


def _refuse_with_workload(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    for flag, value in (("--op", arguments.op), ("--size", arguments.size), ("--group", arguments.group)):
        if value:
            mistakes.add(flag, value, "the workload says it; leave it out beside -w")
    for flag in ("--rings", "--trees"):
        if getattr(arguments, flag[2:]):
            mistakes.add(flag, getattr(arguments, flag[2:]), "is of one group; leave it out beside -w")


def _refuse_equal_files(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    """No two outputs may be the same file, and stdout is for --output and the summary."""
    seen = {target(arguments.output, str(DEFAULT_OUTPUT)).absolute(): "--output"}
    for flag in ("--rings", "--trees", "--groups"):
        file: Path | None = getattr(arguments, flag[2:])
        if file is None:
            continue
        if file in STDOUT_NAMES:
            mistakes.add(flag, file, "needs a file's name: stdout is for --output and the summary")
        other = seen.setdefault(file.absolute(), flag)
        if other != flag:
            mistakes.add(flag, file, f"is the file of {other} too")


def _numbers(
    arguments: argparse.Namespace, workload: TextWorkload | None, kind: str, mistakes: MistakeList
) -> dict[str, int]:
    """Ranks, servers and parallel sizes; those of a workload's header must agree with those given."""
    given = {
        "--ranks": arguments.ranks, "--gpus-per-server": arguments.gpus_per_server, "--tp": arguments.tp,
        "--pp": arguments.pp, "--ep": arguments.ep, "--rank": arguments.rank,
    }  # fmt: skip
    header = {}
    if workload:
        header = {"--tp": workload.header.tp, "--pp": workload.header.pp, "--ep": workload.header.ep}
        if arguments.ranks is None and workload.header.all_gpus:
            header["--ranks"] = workload.header.all_gpus
    numbers = {}
    for flag, value in given.items():
        if value is not None and flag in header and value != header[flag]:
            mistakes.add(flag, value, f"the workload's header says {header[flag]}")
        numbers[flag] = header.get(flag, value)
    if numbers["--ranks"] is None:
        mistakes.add("--ranks", "is missing", "the number of GPUs of the job")
    defaults = {"--gpus-per-server": DEFAULT_SERVER, "--pp": 1, "--ep": 1, "--rank": 0, "--ranks": 1}
    found = {flag: defaults.get(flag, 1) if value is None else value for flag, value in numbers.items()}
    if numbers["--tp"] is None and kind == "TP":
        found["--tp"] = max(1, found["--ranks"] // max(1, found["--pp"]))
    servers = arguments.servers
    if servers is not None and servers * found["--gpus-per-server"] != found["--ranks"]:
        mistakes.add("--nNodes", servers, f"times --gpus-per-server {found['--gpus-per-server']} must be --ranks")
    return found


def _machine(arguments: argparse.Namespace, mistakes: MistakeList, *, original: bool) -> tuple[str, LinkSpeeds]:
    allowed = ORIGINAL_GPUS if original else tuple(GPUS)
    name = arguments.gpu_type
    if name not in allowed:
        mistakes.add("--gpu-type", name, f"allowed is {', '.join(allowed)}")
        name = allowed[0]
    part = GPUS[name]
    nic = NICS["cx6" if name.startswith("A") else "cx7"]
    nvlink = _rate(arguments.nvlink, "--nvlink", part.nvlink, mistakes)
    nic = _rate(arguments.nic_bandwidth, "--nic-bandwidth", nic, mistakes)
    return name, LinkSpeeds(nvlink, nic, part.nvls_at(nvlink), name)


def _rate(text: str | None, flag: str, usual: float, mistakes: MistakeList) -> float:
    """GB/s of an option, `usual` without it."""
    try:
        return usual if text is None else rate_gbps(text)
    except ValueError as error:
        mistakes.add(flag, text, f"allowed is {error}")
        return usual


def _wish(
    arguments: argparse.Namespace, machine: LinkSpeeds, mistakes: MistakeList, op: str, *, original: bool
) -> FlowWish:
    """Algorithm, proxies and what joins servers; the original's come from its environment variables too."""
    allowed = ORIGINAL_ALGORITHMS if original else ALGORITHMS.get(op, EVERY_ALGORITHM)
    algorithm, pxn, between = arguments.algorithm, arguments.pxn, arguments.between
    if algorithm not in allowed:
        of = "" if original or not op else f" for {op}"
        mistakes.add("--algorithm", algorithm, f"allowed{of} is {', '.join(allowed)}")
    if original:
        return _original_wish(arguments, machine, mistakes)
    if between != AUTO and algorithm != "nvls":
        mistakes.add("--between", between, "is for --algorithm nvls")
    if pxn:
        _check_pxn(op, algorithm, mistakes)
    modelled = algorithm == AUTO and not pxn if algorithm != "nvls" else between == AUTO
    if not modelled or op not in ("", *RING_OPS):
        _refuse_bandwidths(arguments, mistakes, "has no effect: no algorithm is chosen by its modelled time")
    return FlowWish(algorithm, pxn, between, machine)


def _check_pxn(op: str, algorithm: str, mistakes: MistakeList) -> None:
    if op and op not in PXN_OPS:
        mistakes.add("--pxn", None, f"is for {', '.join(PXN_OPS)}")
    elif algorithm not in (AUTO, "ring"):
        mistakes.add("--pxn", None, f"is for rings and AllToAll, not for --algorithm {algorithm}")


def _original_wish(arguments: argparse.Namespace, machine: LinkSpeeds, mistakes: MistakeList) -> FlowWish:
    algorithm, between = arguments.algorithm, arguments.between
    if algorithm == AUTO and os.environ.get("AS_NVLS_ENABLE") == "1":
        algorithm = "nvls"
    _refuse_bandwidths(arguments, mistakes, "the original models no time")
    if between != AUTO:
        mistakes.add("--between", between, "the original has no NVLS between servers")
    return FlowWish(algorithm, arguments.pxn or os.environ.get("AS_PXN_ENABLE") == "1", between, machine)


def _refuse_bandwidths(arguments: argparse.Namespace, mistakes: MistakeList, why: str) -> None:
    for flag, value in (("--nvlink", arguments.nvlink), ("--nic-bandwidth", arguments.nic_bandwidth)):
        if value is not None:
            mistakes.add(flag, value, why)


def _check_group(request: FlowRequest, mistakes: MistakeList) -> None:
    """A group of more than one rank, in which the asked algorithm is possible."""
    kind, sizes = request.kind, request.sizes
    if sizes.rank_count(kind) == 1:
        mistakes.add("--group", kind, f"its groups have one rank: with --ranks {sizes.ranks} {_sizes_text(sizes)}")
        return
    group = request.group(kind)
    if group is None:
        if not request.original:
            mistakes.add(
                "--rank", request.rank, f"is in no {kind} group: it is in neither the first nor the last stage"
            )
            return
        why = "the original makes none with --tp 1" if sizes.tp == 1 else f"the original's lack rank {request.rank}"
        mistakes.add("--group", kind, f"{why}; the default dialect does")
        return
    if request.original:
        return
    missing = {
        "nvls": nvls_missing(group, request.wish.machine),
        "pat": pat_missing(request.op, group),
        "tree": "",
    }.get(request.wish.algorithm, "")
    if missing:
        mistakes.add("--algorithm", request.wish.algorithm, f"not possible here: {missing}")
    if request.wish.between != AUTO and len(group.servers) == 1:
        mistakes.add("--between", request.wish.between, "the group has one server")


def _sizes_text(sizes: ParallelSizes) -> str:
    return f"--tp {sizes.tp} --pp {sizes.pp} --ep {sizes.ep}"
