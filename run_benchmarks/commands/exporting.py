"""Runs `run.py export` and `run.py bundle`: a run in another tool's format, a case as an archive for a vendor."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.command_line import FunctionVerb, VerbParser
from common.errors import ABSENT, Problem
from common.whole_files import STDOUT, write_whole
from run_benchmarks.commands.options import DEFAULT_TEST, add_run, add_test_conf
from run_benchmarks.commands.run_reference import find_run
from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.errors import InputProblems
from run_benchmarks.export.bundle import bundle
from run_benchmarks.export.formats import FORMATS, ExportError, write
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.tables import TABLES
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.state.exit_codes import EXIT_PASS

MEANINGS = "; ".join(f"{name}: {each.meaning}" for name, each in FORMATS.items())


def loaded(arguments: argparse.Namespace, command: str) -> LoadedRun:
    """The run that a command line names.

    Raises:
        InputProblems: there is no such run, or its folder is damaged.
    """
    folder = find_run(arguments.run_id, arguments.test_conf, DEFAULT_TEST)
    try:
        return load_run(folder)
    except LoadError as error:
        raise InputProblems([Problem(command, "RUN", ABSENT, str(error))]) from error


def case_of(run: LoadedRun, name: str, command: str) -> CaseRecord:
    """The case of that name.

    Raises:
        InputProblems: the run has none.
    """
    by_name = {case.name: case for case in run.record.cases}
    if name not in by_name:
        known = f"expected a case of {run.record.run_id}; {nearest(name, by_name)}"
        raise InputProblems([Problem(command, "CASE", name, known)])
    return by_name[name]


def _add_export(parser: VerbParser) -> None:
    add_run(parser)
    parser.add_argument("--format", metavar="NAME", default="csv", help=MEANINGS)
    parser.add_argument("--table", metavar="T", help=f"of a table: {', '.join(TABLES)}")
    parser.add_argument("--output", type=Path, metavar="F", default=STDOUT, help="default: standard output")
    add_test_conf(parser)


def _export(arguments: argparse.Namespace) -> int:
    name, table, output = arguments.format, arguments.table, arguments.output
    problems = []
    if name not in FORMATS:
        problems.append(Problem("export", "--format", name, f"expected a format; {nearest(name, FORMATS)}"))
    elif table is not None and FORMATS[name].of_table is None:
        tabular = ", ".join(each for each, found in FORMATS.items() if found.of_table)
        problems.append(Problem("export", "--table", table, f"{name} holds the whole run; expected it with {tabular}"))
    if table is not None and table not in TABLES:
        problems.append(Problem("export", "--table", table, f"expected a table; {nearest(table, TABLES)}"))
    if name in FORMATS and not FORMATS[name].is_text and output == STDOUT:
        problems.append(Problem("export", "--output", ABSENT, f"{name} is no text; expected a file"))
    if problems:
        raise InputProblems(problems)
    run = loaded(arguments, "export")
    try:
        write_whole(output, [write(run, name, table or "metrics")])
    except ExportError as error:
        raise InputProblems([Problem("export", "--format", name, str(error))]) from error
    except OSError as error:
        problem = Problem("export", "--output", str(output), f"cannot be written: {error.strerror}")
        raise InputProblems([problem]) from error
    return EXIT_PASS


def _add_bundle(parser: VerbParser) -> None:
    add_run(parser)
    parser.add_argument("case", metavar="CASE", help="a case of the run")
    parser.add_argument("--output", type=Path, metavar="F", help="default: RUN-CASE.tar.gz here")
    add_test_conf(parser)


def _bundle(arguments: argparse.Namespace) -> int:
    run = loaded(arguments, "bundle")
    found = case_of(run, arguments.case, "bundle")
    file = arguments.output or Path(f"{run.record.run_id}-{found.folder}.tar.gz")
    try:
        names = bundle(run, found, file)
    except OSError as error:
        problem = Problem("bundle", "--output", str(file), f"cannot be written: {error.strerror}")
        raise InputProblems([problem]) from error
    size = f"{file.stat().st_size / 1e6:.1f} MB"
    said = words("{n} files, {size}. Read it before you send it: host names stay", n=len(names), size=size)
    say(f"{file}: {said}")
    return EXIT_PASS


EXPORT, BUNDLE = FunctionVerb(_add_export, _export), FunctionVerb(_add_bundle, _bundle)
