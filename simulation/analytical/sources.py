"""Finds out what kind of workload a file is, and opens it."""

import argparse
import stat
from codecs import BOM_UTF8
from pathlib import Path

from common.errors import input_problem
from simulation.analytical.aicb_rows import read_aicb
from simulation.analytical.chakra_rows import read_chakra
from simulation.analytical.machine import Cluster
from simulation.analytical.workload import RowSource, TextWorkload
from workloads.formats.simai_text import BEGINNING, MICRO, POLICY, begins_simai

SIMAI_TEXT, AICB_CSV, CHAKRA = "SimAI text", "AICB CSV", "Chakra trace"


def open_source(path: Path, arguments: argparse.Namespace, cluster: Cluster | None, simai: bool) -> RowSource:
    """The workload of a file. In the original's dialect it is SimAI's text, whose surplus rows are not read.

    cluster: None where its options are wrong; then mistakes are looked for alone.

    Raises:
        InputProblems: it cannot be read, or its form is not known.
    """
    kind = _kind(path)
    if arguments.group and kind != CHAKRA:
        raise input_problem("--group", arguments.group[0], f"is for Chakra traces; {path} is {kind}")
    if kind == SIMAI_TEXT:
        return TextWorkload(path, lenient=simai)
    if simai:
        raise input_problem("-w", path, f"is {kind}; --dialect simai reads {SIMAI_TEXT} only")
    return read_aicb(path, arguments) if kind == AICB_CSV else read_chakra(path, arguments, cluster)


def _kind(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode) and not path.is_dir():
            raise input_problem("-w", path, "is no regular file: it is read twice")
        with path.open("rb") as file:
            text = file.read(BEGINNING).removeprefix(BOM_UTF8).decode("ascii", "replace").lstrip()
    except OSError as error:
        raise input_problem("-w", path, f"cannot be read: {error.strerror or error}") from None
    if begins_simai(text):
        return SIMAI_TEXT
    from workloads.formats.csvfile import RANKS_LINE

    if text.startswith("comm_type,") or RANKS_LINE.match(text):
        return AICB_CSV
    if path.suffix == ".et" or path.name.endswith(".et.gz"):
        return CHAKRA
    raise input_problem(
        "-w", path, f"is none of: SimAI text (begins with {POLICY} or {MICRO}), an AICB CSV, a Chakra trace (.et)"
    )
