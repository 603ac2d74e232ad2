"""Draws a topology file as SVG: `python -m simulation topology draw FILE`."""

import argparse
from pathlib import Path

from common.command_line import new_path
from common.summary import Summary, counted
from common.whole_files import NAME_BYTES, write_whole
from simulation.topology import drawing, whatif
from simulation.topology.reading import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and where to write."""
    parser.add_argument("file", type=Path, help="a topology in SimAI's format; slow GPUs of its sidecar are red")
    parser.add_argument("--output", type=new_path, metavar="FILE", help="the picture (default: FILE.svg)")


def run(arguments: argparse.Namespace) -> Summary:
    """Draw it.

    Raises:
        InputProblems: the file has not the form or too many GPUs, or the picture is there with other content.
    """
    fabric = read(arguments.file).fabric
    picture = drawing.draw(fabric, arguments.file.name, whatif.slow_gpus_of(arguments.file), str(arguments.file))
    path: Path = arguments.output or arguments.file.with_name(f"{arguments.file.name}.svg")
    write_whole(path, [picture.encode(errors=NAME_BYTES)])
    return Summary(f"{path}: {counted(fabric.gpus, 'GPU')} drawn", {"file": str(path), "gpus": fabric.gpus})
