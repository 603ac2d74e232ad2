"""Runs `run.py report RUN... --output F`: one page of a run, or of any set of runs, from their records."""

import argparse

from common.errors import Problem
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import find_run, history_beside
from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.errors import InputProblems
from run_benchmarks.report.html import write_page
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.seal import SEAL_FILE
from run_benchmarks.state.exit_codes import EXIT_PASS


def run(arguments: argparse.Namespace) -> int:
    """Write one page of the named runs to --output.

    Raises:
        InputProblems: a run cannot be read, or the page cannot be there.
    """
    output, conf = arguments.output, arguments.test_conf
    folders = [find_run(word, conf, DEFAULT_TEST) for word in dict.fromkeys(arguments.runs)]
    problems = []
    found: list[LoadedRun] = []
    for folder in folders:
        try:
            found.append(load_run(folder))
        except LoadError as error:
            problems.append(Problem("report", "RUN", folder.name, str(error)))
    place = output.expanduser().absolute()
    if place.is_dir() or not place.parent.is_dir():
        problems.append(Problem("report", "--output", str(output), "expected a file in a folder that exists"))
    elif any((folder / SEAL_FILE).exists() for folder in place.parents):
        problems.append(Problem("report", "--output", str(output), "lies in a sealed run; expected a file outside"))
    if problems:
        raise InputProblems(problems)
    write_page(found, place, history_beside(folders[0], conf), words)
    say(words("Written: {file}", file=place))
    return EXIT_PASS
