"""Writes a topology in InfraGraph's format: `python -m simulation topology export FILE`."""

import argparse
import re
from pathlib import Path

from common.command_line import new_path
from common.errors import MistakeList
from common.summary import Summary, counted
from common.whole_files import is_special, target, write_whole
from simulation.topology import infragraph_export
from simulation.topology.reading import read

FORBIDDEN = re.compile(r"[^\sa-zA-Z0-9\-_()<>\[\]]")  # in names, by InfraGraph's schema
FORMATS = {".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and where to write."""
    parser.add_argument("file", type=Path, help="a topology in SimAI's format")
    what = "ends in .yaml or .json; - is stdout, in YAML (default: FILE.infragraph.yaml)"
    parser.add_argument("--output", type=new_path, metavar="FILE", help=what)


def run(arguments: argparse.Namespace) -> Summary:
    """Write it.

    Raises:
        InputProblems: the file has not the form, --output has another ending, or is there with other content.
        SimulationError: the package infragraph is not installed.
    """
    name = f"{arguments.file.name}.infragraph.yaml"
    path = target(arguments.output, name) if arguments.output else arguments.file.with_name(name)
    form = FORMATS.get(path.suffix, "yaml" if is_special(path) else None)
    mistakes = MistakeList()
    if form is None:
        mistakes.add("--output", path, f"must end in one of {', '.join(FORMATS)}")
    fabric = mistakes.result(lambda: read(arguments.file).fabric)
    mistakes.check()
    assert form is not None
    made = infragraph_export.infrastructure(fabric, FORBIDDEN.sub("_", arguments.file.name))
    content = made.serialize(form).encode()
    write_whole(path, [content])
    counts = {"devices": len(made.devices), "instances": len(made.instances), "edges": len(made.edges)}
    said = ", ".join(counted(number, name.removesuffix("s")) for name, number in counts.items())
    return Summary(f"{path}: {said} for {counted(len(fabric.kinds), 'link')}", {"file": str(path), **counts})
