"""Writes the page of an executed workload or of a workload: the verb `visualize`."""

import argparse
from pathlib import Path

from common.command_line import VerbParser
from common.summary import Summary
from common.whole_files import write_whole
from workloads.analysis import page, timeline


def add_arguments(parser: VerbParser) -> None:
    """See Verb."""
    parser.add_argument(
        "file",
        type=Path,
        metavar="LOG|WORKLOAD",
        help="op logs (a folder, or one), a log CSV, a workload CSV or SimAI text",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the page to write (.html)")


def run(arguments: argparse.Namespace) -> Summary:
    """Write the page.

    Raises:
        AicbError: the input cannot be read.
        OSError: the page cannot be written.
    """
    shown = timeline.load(arguments.file)
    data = page.html(shown).encode("utf-8", errors="replace")
    write_whole(arguments.output, [data])
    said = f"wrote {arguments.output}: {len(shown)} operations, {len(data)} bytes"
    return Summary(said, {"file": str(arguments.output), "operations": len(shown), "bytes": len(data)})
