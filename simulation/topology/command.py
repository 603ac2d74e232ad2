"""Makes a topology file: `python -m simulation topology`."""

import argparse
import sys
from pathlib import Path

from common.errors import MistakeList
from common.progress import StepProgress
from common.summary import Summary, counted
from common.whole_files import target, whole_file
from simulation.common.dialect import DEFAULT_DIALECT
from simulation.topology import options, text
from simulation.topology.options import Given
from simulation.topology.resolve import resolve
from simulation.topology.shape import FabricShape

IN_EVERY_NAME = ("gpu", "gpu_per_server", "bandwidth", "gpu_type")
WITHOUT_EFFECT = ("asw_switch_num",)


def file_name(given: Given, *, full: bool) -> str:
    """The name in the current folder; with `full` also each value that is not the template's default."""
    values = given.values
    size = f"{values['gpu']}g_{values['gpu_per_server']}gps"
    end = f"{values['bandwidth']}_{values['gpu_type']}"
    name = _with_size(given, size, end).replace("/", "p")  # 400Gb/s is no folder
    return name + "".join(_deviations(given)) if full else name


def _with_size(given: Given, size: str, end: str) -> str:
    rail, dual_tor, dual_plane = given.structure
    plane = "DualPlane" if dual_plane else "SinglePlane"
    tor = "DualToR" if dual_tor else "SingleToR"
    if given.template in (options.SPECTRUM_X, options.NVL):
        return f"{given.template}_{size}_{end}"
    if given.template == options.ALIBABA_HPN:
        return f"AlibabaHPN_{size}_DualToR_{plane}_{end}"
    if given.template == options.DCN:
        return f"DCN+{tor}_{size}_{end}"
    if not rail:
        return f"No_Rail_Opti_{size}_{tor}_{end}"
    return f"Rail_Opti_{size}_DualToR_{plane}_{end}" if dual_tor else f"Rail_Opti_SingleToR_{size}_{end}"


def _deviations(given: Given) -> list[str]:
    """`_psn2` for each value that is neither in every name nor the template's default."""
    return [
        f"_{option.short[1:]}{given.values[option.name]}".replace("/", "p")
        for option in options.OPTIONS
        if option.name not in (*IN_EVERY_NAME, *WITHOUT_EFFECT)
        and given.values[option.name] != given.defaults[option.name]
    ]


NAMES = ("simai", "full")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the templates and of the file."""
    options.add_options(parser)
    parser.add_argument(
        "--from",
        dest="description",
        type=Path,
        metavar="FILE.yaml",
        help="your own description, in place of a template",
    )
    parser.add_argument("--name", choices=NAMES, default=NAMES[0], help="full: every value that deviates is in it")


def run(arguments: argparse.Namespace) -> Summary:
    """Make the file of a template or of a description.

    Raises:
        InputProblems: mistakes in the options or the description, or the file is there with other content.
        SimulationError: a description is given, and PyYAML is not installed.
    """
    if arguments.description is not None:
        return _of_description(arguments)
    given, shape, warnings = resolve(arguments)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    path = target(arguments.output, file_name(given, full=arguments.name == "full"))
    size = write(path, shape)
    said = (
        f"{path}: {counted(shape.gpus, 'GPU')} in {counted(shape.servers, 'server')}, "
        f"{counted(shape.nvswitches, 'NVSwitch', 'NVSwitches')}, {counted(shape.leaves, 'leaf', 'leaves')}, "
        f"{counted(shape.spines, 'spine')}, {counted(shape.links, 'link')}, {size} bytes"
    )
    return Summary(
        said,
        {
            "file": str(path), "bytes": size, "gpus": shape.gpus, "servers": shape.servers,
            "nvswitches": shape.nvswitches, "leaves": shape.leaves, "spines": shape.spines, "links": shape.links,
            "gpu_type": shape.gpu_type, "dialect": arguments.dialect, "warnings": warnings,
        },
    )  # fmt: skip


def _of_description(arguments: argparse.Namespace) -> Summary:
    from simulation.topology import custom, fabric

    mistakes = MistakeList()
    for option in options.OPTIONS:
        if getattr(arguments, option.name) is not None:
            mistakes.add(
                option.short, getattr(arguments, option.name), "has no effect with --from: write it into the file"
            )
    for flag in ("topology", *options.SWITCHES):
        if getattr(arguments, flag):
            mistakes.add(f"--{flag}", None, "has no effect with --from: write it into the file")
    if arguments.name != NAMES[0]:
        mistakes.add("--name", arguments.name, "has no effect with --from: give --output")
    if arguments.dialect != DEFAULT_DIALECT:
        mistakes.add("--dialect", arguments.dialect, "has no effect with --from: the original has no such input")
    network = mistakes.result(lambda: custom.build(arguments.description))
    mistakes.check()
    path = target(arguments.output, f"{arguments.description.stem}.topo")
    size = 0
    with whole_file(path) as file:
        for chunk in fabric.chunks(network):
            size += file.write(chunk)
    said = (
        f"{path}: {counted(network.gpus, 'GPU')}, {counted(network.nvswitches, 'NVSwitch', 'NVSwitches')}, "
        f"{counted(network.switches, 'switch', 'switches')}, {counted(len(network.kinds), 'link')}, {size} bytes"
    )
    return Summary(
        said,
        {
            "file": str(path), "bytes": size, "gpus": network.gpus, "nvswitches": network.nvswitches,
            "switches": network.switches, "links": len(network.kinds), "gpu_type": network.gpu_type,
        },
    )  # fmt: skip


def write(path: Path, shape: FabricShape) -> int:
    """Write a template's file and return its size in bytes.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written.
    """
    size, pieces = 0, -(-shape.gpus // text.GPUS_AT_ONCE) - (-shape.leaves // text.LEAVES_AT_ONCE)
    with whole_file(path) as file, StepProgress("parts written", pieces) as progress:
        for chunk in text.chunks(shape):
            size += file.write(chunk)
            progress.advance()
    return size
