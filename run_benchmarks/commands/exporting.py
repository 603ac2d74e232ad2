"""Runs `run.py export`: a run in the format of another tool."""

import argparse

from common.errors import MistakeList, Problem
from common.summary import Summary
from common.whole_files import refuse_terminal, write_whole
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import loaded
from run_benchmarks.errors import InputProblems
from run_benchmarks.export.formats import FORMATS, ExportError, write
from run_benchmarks.results.tables import TABLES
from run_benchmarks.settings.conf_file import nearest


def run(arguments: argparse.Namespace) -> Summary:
    """Write the run, or one of its tables, in the format that is asked for.

    Raises:
        InputProblems: there is no such run, format or table, or one that is no text would go to a terminal.
    """
    name, table, output = arguments.format, arguments.table, arguments.output
    mistakes = MistakeList()
    if name not in FORMATS:
        mistakes.mistakes.append(Problem("export", "--format", name, f"expected a format; {nearest(name, FORMATS)}"))
    elif table is not None and FORMATS[name].of_table is None:
        tabular = ", ".join(each for each, found in FORMATS.items() if found.of_table)
        allowed = f"{name} holds the whole run; expected it with {tabular}"
        mistakes.mistakes.append(Problem("export", "--table", table, allowed))
    if table is not None and table not in TABLES:
        mistakes.mistakes.append(Problem("export", "--table", table, f"expected a table; {nearest(table, TABLES)}"))
    with mistakes.noted():
        if name in FORMATS and not FORMATS[name].is_text:
            refuse_terminal(output, name)
    with mistakes.noted():
        found = loaded(arguments, "export", DEFAULT_TEST)
    mistakes.check()
    try:
        data = write(found, name, table or "metrics")
    except ExportError as error:
        raise InputProblems([Problem("export", "--format", name, str(error))]) from error
    write_whole(output, [data])
    return Summary("", {"file": str(output), "bytes": len(data)})
