"""Writes the page of an executed workload or of a workload: the command `visualize`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.whole_files import write_whole
from workloads.analysis import page, timeline

DESCRIPTION = "Writes one page, to be opened in any browser without a network, of a run's op logs or of a workload."
Parse = Callable[[argparse.ArgumentParser, list[str]], dict[str, Any]]


def main(parser: argparse.ArgumentParser, parse: Parse, words: list[str]) -> int:
    """Write the page. parser: an empty one with the command's name; parse: how to read words with it.

    Raises:
        AicbError: the input cannot be read.
        OSError: the page cannot be written.
    """
    parser.add_argument(
        "file",
        type=Path,
        metavar="LOG|WORKLOAD",
        help="op logs (a folder, or one), a log CSV, a workload CSV or SimAI text",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the page to write (.html)")
    given = parse(parser, words)
    shown = timeline.load(given["file"])
    data = page.html(shown).encode("utf-8", errors="replace")
    write_whole(given["output"], [data])
    print(f"wrote {given['output']}: {len(shown)} operations, {len(data)} bytes")
    return 0
