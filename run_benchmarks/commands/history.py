"""Runs `run.py history`: how a metric of a case went over the runs, when its level changed, and a host's record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from run_benchmarks.commands.options import DEFAULT_TEST, LanguageOption, TestConfOption, asked_for
from run_benchmarks.commands.run_reference import history_of
from run_benchmarks.console.language import Words
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS

CaseArgument = Annotated[str | None, typer.Argument(metavar="CASE", help="one case; default: all")]
MetricOption = Annotated[str | None, typer.Option("--metric", metavar="M", help="default: the case's key figure")]
HostOption = Annotated[str | None, typer.Option("--host", metavar="H", help="what the case measured of this host")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", metavar="F", dir_okay=False, help="also as a page in this file")
]
RebuildOption = Annotated[bool, typer.Option("--rebuild", help="read all runs of the result folder again first")]


def show_history(
    context: typer.Context,
    case: CaseArgument = None,
    metric: MetricOption = None,
    host: HostOption = None,
    output: OutputOption = None,
    rebuild: RebuildOption = False,
    test_conf: TestConfOption = None,
    lang: LanguageOption = "en",
) -> None:
    """Show a case over all runs and what changed when its level did; with --host alone a host in all cases."""
    conf = asked_for(context, None, test_conf).test_conf
    from run_benchmarks.commands.history_view import Asked, rebuilt, show  # whose database library takes long to import

    root, url = history_of(conf or DEFAULT_TEST)
    failed = rebuild and rebuilt(root, url)
    show(url, Asked(case=case, metric=metric or "", host=host or "", output=output), Words(lang))
    raise typer.Exit(EXIT_FAIL if failed else EXIT_PASS)
