"""Checks the options and makes of them what the models are asked."""

import argparse
from math import isfinite
from typing import NamedTuple

from common.errors import MistakeList
from common.units import rate_gbps
from simulation.analytical.machine import Cluster, Division, Overlaps
from simulation.analytical.network import ClusterNetwork
from simulation.analytical.parts import GPUS, NIC_SOURCES, NICS, SIMAI_GPUS, SIMAI_NICS, GpuPart
from workloads.formats.simai_text import WorkloadHeader

UNKNOWN = -1.0
SIMAI_DEFAULT_GPU, DEFAULT_NIC = "A100", "cx7"
LARGEST_COUNT = 1 << 31
DIGITS = 10
SAID_BY_NETWORK = {
    "-g": "gpus", "-g_p_s": "gpus_per_server", "-n_p_s": "nic_per_server", "-nv": "nvlink", "-nic": "nic_busbw",
    "-g_type": "gpu_type", "-nic_t": "nic_type",
}  # fmt: skip
LEAST_GBPS, MOST_GBPS = 1e-3, 1e6


class ClusterOptions(NamedTuple):
    """The options that do not depend on the workload. notes: what was assumed, for stderr."""

    cluster: Cluster
    overlaps: Overlaps
    notes: tuple[str, ...]
    network: ClusterNetwork | None = None


def read_options(arguments: argparse.Namespace, simai: bool) -> ClusterOptions:
    """Cluster and overlaps of the command line. simai: what the original takes though it is wrong, is taken.

    Raises:
        InputProblems: values are missing or wrong; all of them.
    """
    mistakes, notes = MistakeList(), list[str]()
    if arguments.workload is None:
        mistakes.add("-w", None, "is missing: the workload's file")
    network = _network(arguments, simai, mistakes)
    if network:
        return ClusterOptions(network.cluster, _checked(arguments, simai, mistakes, notes), tuple(notes), network)
    gpus = _count(arguments.gpus, "-g", "the number of GPUs", mistakes)
    per_server = _count(arguments.gpus_per_server, "-g_p_s", "the GPUs of a server", mistakes)
    if simai and arguments.nic_per_server in (None, "0"):
        nics = 0
        notes.append("-n_p_s is missing or 0: the original takes 0 NICs and its result is meaningless")
    else:
        nics = _count(arguments.nic_per_server, "-n_p_s", "the NICs of a server", mistakes)
    read = _simai_parts if simai else _parts
    cluster = read(arguments, (gpus, per_server, nics), mistakes, notes)
    return ClusterOptions(cluster, _checked(arguments, simai, mistakes, notes), tuple(notes))


def _network(arguments: argparse.Namespace, simai: bool, mistakes: MistakeList) -> ClusterNetwork | None:
    """The network of -n, beside which the cluster's own options would have no effect."""
    if arguments.network is None:
        return None
    for flag, name in SAID_BY_NETWORK.items():
        if getattr(arguments, name) is not None:
            mistakes.add(flag, getattr(arguments, name), "has no effect beside -n, whose file says it")
    if simai:
        mistakes.add("-n", arguments.network, "is for the default dialect, not for --dialect simai")
    mistakes.check()
    return ClusterNetwork(arguments.network)


def _checked(arguments: argparse.Namespace, simai: bool, mistakes: MistakeList, notes: list[str]) -> Overlaps:
    """The overlaps; every mistake up to here is told."""
    overlaps = Overlaps(*(_overlap(arguments, name, simai, mistakes, notes) for name in ("dp", "tp", "ep", "pp")))
    if arguments.visual not in ("0", "1"):
        mistakes.add("-v", arguments.visual, "allowed is 0 or 1")
    if arguments.lang == "ja":
        notes.append("-l ja: messages are English")
    mistakes.check()
    return overlaps


def divide(header: WorkloadHeader, cluster: Cluster, arguments: argparse.Namespace, simai: bool) -> Division:
    """The groups' sizes from the workload's header and the options that stand above it.

    Raises:
        InputProblems: the sizes do not fit the number of GPUs.
    """
    mistakes = MistakeList()
    given = {name: getattr(arguments, name) for name in ("tp", "ep", "pp", "vpp", "ga")}
    sizes = {
        name: getattr(header, name) if text is None else _count(text, f"--{name}", f"the size {name}", mistakes)
        for name, text in given.items()
    }
    for name, size in sizes.items():
        if size < 1:
            mistakes.add("-w", None, f"the workload's {name} is {size}; it is at least 1")
    mistakes.check()
    tp, ep, pp = sizes["tp"], sizes["ep"], sizes["pp"]
    dp = cluster.gpus // (tp * pp)
    if not simai:
        if cluster.gpus % (tp * pp):
            fitting = max(1, dp) * tp * pp
            mistakes.add("-g", cluster.gpus, f"is no multiple of tp * pp = {tp} * {pp}; {fitting} is")
        elif dp % ep:
            mistakes.add("-g", cluster.gpus, f"gives dp {dp} (with tp {tp}, pp {pp}), which is no multiple of ep {ep}")
    mistakes.check()
    return Division(tp, ep, pp, dp, sizes["vpp"], sizes["ga"], header.pp_comm)


def _parts(
    arguments: argparse.Namespace, counts: tuple[int, int, int], mistakes: MistakeList, notes: list[str]
) -> Cluster:
    gpu_type, part = _gpu_part(arguments, mistakes)
    nvlink = _bandwidth(arguments.nvlink, "-nv", mistakes)
    if nvlink is None and arguments.gpu_type is None:
        mistakes.add("-g_type", None, f"is missing: {', '.join(GPUS)}, or give -nv in GB/s")
    nic_type, nic, nic_source = _nic(arguments, mistakes, notes)
    bandwidth, nvls, nvlink_source = nvlink or 0.0, None, "-nv"
    if part is not None:
        bandwidth = nvlink or part.nvlink
        nvls = part.nvls_at(bandwidth)
        nvlink_source = part.nvlink_source if nvlink is None else "-nv"
    sources = (("nvlink", nvlink_source), ("nic", nic_source), ("nvls", _nvls_source(part, nvlink)))
    return Cluster(*counts, bandwidth, nic, nvls, gpu_type, nic_type, sources)


def _gpu_part(arguments: argparse.Namespace, mistakes: MistakeList) -> tuple[str, GpuPart | None]:
    """The GPU type's name as in GPUS, and the part; nothing without -g_type."""
    if arguments.gpu_type is None:
        return "", None
    name = {name.lower(): name for name in GPUS}.get(arguments.gpu_type.lower(), "")
    if not name:
        mistakes.add("-g_type", arguments.gpu_type, f"is unknown; there is {', '.join(GPUS)}, or give -nv in GB/s")
    return name, GPUS.get(name)


def _nic(arguments: argparse.Namespace, mistakes: MistakeList, notes: list[str]) -> tuple[str, float, str]:
    """The NIC's type (none beside -nic), its GB/s, and where they are from."""
    nic_type = arguments.nic_type
    if nic_type is not None and nic_type.lower() not in NICS:
        mistakes.add("-nic_t", nic_type, f"is unknown; there is {', '.join(NICS)}, or give -nic in GB/s")
    given = _bandwidth(arguments.nic_busbw, "-nic", mistakes)
    if given is not None:
        if nic_type is not None:
            mistakes.add("-nic_t", nic_type, "has no effect beside -nic")
        return "", given, "-nic"
    if nic_type is None:
        notes.append(f"neither -nic nor -nic_t is given: {DEFAULT_NIC} is taken")
    chosen = (nic_type or DEFAULT_NIC).lower()
    return chosen, NICS.get(chosen, 0.0), NIC_SOURCES.get(chosen, "")


def _nvls_source(part: GpuPart | None, nvlink: float | None) -> str:
    if part is None:
        return "not known without -g_type"
    return part.nvls_source if nvlink is None or part.nvls is None else f"{part.nvls_source}, scaled by -nv"


def _simai_parts(
    arguments: argparse.Namespace, counts: tuple[int, int, int], mistakes: MistakeList, notes: list[str]
) -> Cluster:
    gpu_type, nic_type = arguments.gpu_type or SIMAI_DEFAULT_GPU, arguments.nic_type or DEFAULT_NIC
    nvlink = _derivable(arguments.nvlink, "-nv", mistakes, notes)
    nic = _derivable(arguments.nic_busbw, "-nic", mistakes, notes)
    if nvlink == UNKNOWN:
        nvlink = GPUS[gpu_type].nvlink if gpu_type in SIMAI_GPUS else UNKNOWN
        if nvlink == UNKNOWN:
            notes.append(f"-g_type {gpu_type} is unknown to the original and its result is meaningless")
    if nic != UNKNOWN and arguments.nic_type is not None:
        notes.append(f"-nic_t {nic_type} has no effect beside -nic, as in the original")
    if nic == UNKNOWN:
        nic = NICS[nic_type] if nic_type in SIMAI_NICS else UNKNOWN
        if nic == UNKNOWN:
            notes.append(f"-nic_t {nic_type} is unknown to the original and its result is meaningless")
    return Cluster(*counts, nvlink, nic, None, gpu_type, nic_type)


def _overlap(arguments: argparse.Namespace, name: str, simai: bool, mistakes: MistakeList, notes: list[str]) -> float:
    text = getattr(arguments, f"{name}_overlap")
    if text is None:
        return 1.0 if simai and name == "pp" else 0.0
    number = _number(text)
    if number is not None and 0 <= number <= 1:
        return number
    if simai and number is not None:
        notes.append(f"-{name}_o {text} is outside 0 to 1: the original takes it and its result is meaningless")
        return number
    mistakes.add(f"-{name}_o", text, "allowed is a share from 0 to 1")
    return 0.0


def _count(text: str | None, flag: str, what: str, mistakes: MistakeList) -> int:
    if text is None:
        mistakes.add(flag, None, f"is missing: {what}")
    elif not text.isdecimal() or len(text) > DIGITS or not 0 < int(text) < LARGEST_COUNT:
        mistakes.add(flag, text, "allowed is a whole number from 1")
    else:
        return int(text)
    return 1


def _bandwidth(text: str | None, flag: str, mistakes: MistakeList) -> float | None:
    if text is None:
        return None
    try:
        rate = rate_gbps(text)
    except ValueError:
        rate = 0.0
    if not LEAST_GBPS <= rate <= MOST_GBPS:
        allowed = f"{LEAST_GBPS:g} to {MOST_GBPS:,.0f} GB/s, or one with its unit, such as 3600Gbps"
        mistakes.add(flag, text, f"allowed is a bandwidth of {allowed}")
        return 1.0
    return rate


def _derivable(text: str | None, flag: str, mistakes: MistakeList, notes: list[str]) -> float:
    """The original's bandwidth: -1 or nothing is derived from the type, any other number is taken."""
    if text is None or _number(text) == UNKNOWN:
        return UNKNOWN
    number = _number(text)
    try:
        number = rate_gbps(text) if number is None else number
    except ValueError:
        mistakes.add(flag, text, "allowed is a bandwidth in GB/s, one with its unit, or -1 for that of the type")
        return UNKNOWN
    if number <= 0:
        notes.append(f"{flag} {text} is no bandwidth: the original takes it and its result is meaningless")
    return number


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) else None
