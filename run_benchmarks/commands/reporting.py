"""Runs `run.py report RUN... --output F`: one page of a run, or of any set of runs, from their records."""

import argparse
from pathlib import Path

from common.errors import MistakeList
from common.summary import Summary
from common.whole_files import STDOUT, is_special
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import history_beside, loaded_run
from run_benchmarks.console.language import words
from run_benchmarks.report.html import write_page
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.seal import SEAL_FILE


def run(arguments: argparse.Namespace) -> Summary:
    """Write one page of the named runs to --output.

    Raises:
        InputProblems: a run cannot be read, or the page cannot be there.
    """
    output, conf = arguments.output.expanduser(), arguments.test_conf
    mistakes, found = MistakeList(), list[LoadedRun]()
    for word in dict.fromkeys(arguments.runs):
        with mistakes.noted():
            found.append(loaded_run(word, conf, "report", DEFAULT_TEST))
    place = output if output == STDOUT else output.absolute()
    if problem := _no_place(place):
        mistakes.add("report: --output", arguments.output, problem)
    mistakes.check()
    write_page(found, place, history_beside(found[0].folder, conf), words)
    data = {"file": str(place), "runs": [each.record.run_id for each in found]}
    return Summary(words("Written: {file}", file=place), data)


def _no_place(place: Path) -> str:
    """Why no page can be there; "" if one can."""
    if place.is_dir():
        return "is a folder; expected a file"
    is_sealed = not is_special(place) and any((folder / SEAL_FILE).exists() for folder in place.parents)
    return "lies in a sealed run; expected a file outside" if is_sealed else ""
