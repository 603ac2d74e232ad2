"""Makes a shape of the options: checks them against one another and against a template's capacity."""

import argparse

from common.errors import MistakeList
from simulation.common.dialect import SIMAI
from simulation.topology import options
from simulation.topology.options import Given, Structure
from simulation.topology.shape import FabricShape, LinkText

NVL_RACKS = (36, 72)  # GPUs of one NVLink domain
NVL_TRAY = 4  # GPUs of a compute tray, each with a NIC of its own rail


def resolve(arguments: argparse.Namespace) -> tuple[Given, FabricShape, list[str]]:
    """The options, the shape that they describe, and warnings.

    Raises:
        InputProblems: every mistake of the options.
    """
    mistakes = MistakeList()
    given = options.read(arguments, mistakes)
    mistakes.check()
    warnings = _warnings(arguments, given)
    if given.template == options.NVL:
        _check_nvl(given, mistakes)
    if given.structure.dual_plane and not (given.structure.rail_optimised and given.structure.dual_tor):
        mistakes.add("--dp", None, "two planes need a rail-optimised network with two ToRs: give --ro and --dt, too")
    shape = _shape(given)
    _check_servers(shape, mistakes)
    mistakes.check()
    _check_capacity(given, shape, mistakes)
    mistakes.check()
    hint = given.user.get("asw_switch_num")
    if hint is not None and int(hint) != shape.leaves:
        warnings.append(f"-asn {hint}: the other options make {shape.leaves} leaves, which is what the file has")
    return given, shape, warnings


def _warnings(arguments: argparse.Namespace, given: Given) -> list[str]:
    """Switches that a template decides itself, and an NVL that is none."""
    asked = Structure(arguments.ro, arguments.dt, arguments.dp)
    warnings = []
    if arguments.topology == options.NVL and arguments.dialect == SIMAI:
        warnings.append(
            "-topo NVL: the original has no such template and makes a network by --ro, --dt and --dp alone; "
            "--dialect clusterdyno makes the NVLink racks"
        )
    for flag, wanted, real in zip(options.SWITCHES, asked, given.structure, strict=True):
        if wanted and not real:
            warnings.append(f"--{flag}: has no effect on {given.template}")
    return warnings


def _check_nvl(given: Given, mistakes: MistakeList) -> None:
    per_rack = int(given.values["gpu_per_server"])
    if per_rack not in NVL_RACKS:
        mistakes.add("-gps", per_rack, f"must be {' or '.join(map(str, NVL_RACKS))} for NVL, the GPUs of a rack")
    elif "gpu_per_server" in given.user and "gpu" not in given.user:
        mistakes.add("-g", None, f"is missing: with -gps {per_rack} give the GPUs, a multiple of {per_rack}")


def _check_servers(shape: FabricShape, mistakes: MistakeList) -> None:
    if shape.gpus % shape.gpus_per_server:
        below = shape.gpus - shape.gpus % shape.gpus_per_server
        near = " or ".join(str(size) for size in (below, below + shape.gpus_per_server) if size)
        mistakes.add("-g", shape.gpus, f"must be a multiple of -gps {shape.gpus_per_server}, for example {near}")


def _check_capacity(given: Given, shape: FabricShape, mistakes: MistakeList) -> None:
    """The spines of one pod connect a limited number of segments."""
    per_spine = int(given.values["asw_per_psw"])
    segments = per_spine // (shape.rails if given.structure.rail_optimised else shape.tors)
    if shape.segments > segments:
        leaves_each = f"{shape.segments} segments of {shape.segment_gpus} GPUs"
        largest = (
            f"at most {segments * shape.segment_gpus} GPUs"
            if segments
            else f"none, because a segment has {shape.rails if given.structure.rail_optimised else shape.tors} leaves"
        )
        mistakes.add("-g", shape.gpus, f"makes {leaves_each}; -app {per_spine} allows {largest}: give a larger -app")
    if shape.nodes > options.MAX_NODES:
        mistakes.add("-g", shape.gpus, f"makes {shape.nodes} nodes; at most {options.MAX_NODES} have an id")


def _shape(given: Given) -> FabricShape:
    values, structure = given.values, given.structure
    per_server = int(values["gpu_per_server"])
    rail_count = NVL_TRAY if given.template == options.NVL else per_server
    error_rate = values["error_rate"]
    return FabricShape(
        gpus=int(values["gpu"]),
        gpus_per_server=per_server,
        gpu_type=values["gpu_type"],
        nvswitches_per_server=int(values["nv_switch_per_server"]),
        rails=rail_count if structure.rail_optimised else 1,
        tors=2 if structure.dual_tor else 1,
        planes=2 if structure.dual_plane else 1,
        nics_per_leaf=int(values["nics_per_aswitch"]),
        spines=int(values["psw_switch_num"]),
        nvlink=LinkText(values["nvlink_bw"], values["nv_latency"], error_rate),
        nic=LinkText(values["bandwidth"], values["latency"], error_rate),
        uplink=LinkText(values["ap_bandwidth"], values["latency"], error_rate),
    )
