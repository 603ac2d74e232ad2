"""Runs `run.py bundle`: a case as an archive for a vendor."""

import argparse
from pathlib import Path

from common.summary import Summary
from common.units import readable_bytes
from common.whole_files import refuse_terminal
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import case_of, loaded
from run_benchmarks.console.language import words
from run_benchmarks.export.bundle import bundle


def run(arguments: argparse.Namespace) -> Summary:
    """Pack the case into an archive and say how large it is.

    Raises:
        InputProblems: there is no such run or case, or the archive would go to a terminal.
    """
    packed = loaded(arguments, "bundle", DEFAULT_TEST)
    found = case_of(packed, arguments.case, "bundle")
    file = arguments.output or Path(f"{packed.record.run_id}-{found.folder}.tar.gz")
    refuse_terminal(file, "an archive")
    names, size = bundle(packed, found, file)
    shown = readable_bytes(size)
    said = words("{n} files, {size}. Read it before you send it: host names stay", n=len(names), size=shown)
    return Summary(f"{file}: {said}", {"file": str(file), "bytes": size, "files": names})
