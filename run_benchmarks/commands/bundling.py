"""Runs `run.py bundle`: a case as an archive for a vendor."""

import argparse
from pathlib import Path

from common.errors import Problem
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import case_of, loaded
from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.errors import InputProblems
from run_benchmarks.export.bundle import bundle
from run_benchmarks.state.exit_codes import EXIT_PASS


def run(arguments: argparse.Namespace) -> int:
    """Pack the case into an archive and say how large it is.

    Raises:
        InputProblems: there is no such run or case, or the archive cannot be written.
    """
    packed = loaded(arguments, "bundle", DEFAULT_TEST)
    found = case_of(packed, arguments.case, "bundle")
    file = arguments.output or Path(f"{packed.record.run_id}-{found.folder}.tar.gz")
    try:
        names = bundle(packed, found, file)
    except OSError as error:
        problem = Problem("bundle", "--output", str(file), f"cannot be written: {error.strerror}")
        raise InputProblems([problem]) from error
    size = f"{file.stat().st_size / 1e6:.1f} MB"
    said = words("{n} files, {size}. Read it before you send it: host names stay", n=len(names), size=size)
    say(f"{file}: {said}")
    return EXIT_PASS
