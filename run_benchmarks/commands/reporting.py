"""Runs `run.py report RUN... --output F`: one page of a run, or of any set of runs, from their records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from protocol.problems import Problem
from run_benchmarks.commands.options import DEFAULT_TEST, LanguageOption, TestConfOption, asked_for
from run_benchmarks.commands.run_reference import find_run, history_beside
from run_benchmarks.console.console import say
from run_benchmarks.console.language import Words
from run_benchmarks.errors import ConfigError
from run_benchmarks.report.html import write_page
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.seal import SEAL_FILE

RunsArgument = Annotated[
    list[str], typer.Argument(metavar="RUN", help="names of runs, or paths of their result folders")
]
OutputOption = Annotated[Path, typer.Option("--output", metavar="F", help="the page, outside of the runs' folders")]


def report(
    context: typer.Context,
    runs: RunsArgument,
    output: OutputOption,
    test_conf: TestConfOption = None,
    lang: LanguageOption = "en",
) -> None:
    """Write a page of a run, or of several together, as report.html is one; no log is read."""
    conf = asked_for(context, None, test_conf).test_conf
    folders = [find_run(word, conf, DEFAULT_TEST) for word in dict.fromkeys(runs)]
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
        raise ConfigError(problems)
    write_page(found, place, history_beside(folders[0], conf), Words(lang))
    say(f"Written: {place}")
