"""Makes a topology of an InfraGraph file: `python -m simulation topology import FILE`."""

import argparse
import sys
from pathlib import Path

from common.command_line import new_path
from common.errors import MistakeList
from common.summary import JsonValue, Summary, counted
from common.whole_files import write_whole
from simulation.topology import fabric, infragraph_import, options
from simulation.topology.reading import long_links


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and where to write."""
    parser.add_argument("file", type=Path, help="an infrastructure in InfraGraph's format, YAML or JSON")
    parser.add_argument("-gt", "--gpu_type", metavar="X", help=f"one of {', '.join(options.GPU_TYPES)}")
    parser.add_argument("--output", type=new_path, metavar="FILE", help="the topology (default: FILE.topo)")


def run(arguments: argparse.Namespace) -> Summary:
    """Write it in SimAI's format.

    Raises:
        InputProblems: the file has not the form, or the topology is there with other content.
        SimulationError: the package infragraph is not installed.
    """
    mistakes = MistakeList()
    if arguments.gpu_type is not None:
        options.check("-gt", arguments.gpu_type, options.gpu_type, mistakes)
    made = mistakes.result(lambda: infragraph_import.load(arguments.file, arguments.gpu_type))
    mistakes.check()
    for warning in (*made.assumed, *long_links(made.fabric)):
        print(f"warning: {warning}", file=sys.stderr)
    path: Path = arguments.output or arguments.file.with_name(f"{arguments.file.name}.topo")
    write_whole(path, fabric.chunks(made.fabric))
    counts = {"gpus": made.fabric.gpus, "nvswitches": made.fabric.nvswitches, "switches": made.fabric.switches}
    said = (
        f"{counted(counts['gpus'], 'GPU')}, {counted(counts['nvswitches'], 'NVSwitch', 'NVSwitches')}, "
        f"{counted(counts['switches'], 'switch', 'switches')}, {counted(len(made.fabric.kinds), 'link')}"
    )
    data: dict[str, JsonValue] = {"file": str(path), **counts, "links": len(made.fabric.kinds), "assumed": made.assumed}
    return Summary(f"{path}: {said}", data)
