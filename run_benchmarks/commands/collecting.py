"""The command that collects what a run still has on its hosts alone."""

from __future__ import annotations

import typer

from run_benchmarks.commands import starting
from run_benchmarks.commands.options import DEFAULT_TEST, ClusterConfOption, RunArgument, TestConfOption, asked_for
from run_benchmarks.commands.run_reference import find_run, settings_of


def collect(
    context: typer.Context,
    run_id: RunArgument,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
) -> None:
    """Collect what a run could not collect from its hosts, and judge those rounds again; starts nothing there."""
    asked = asked_for(context, cluster_conf, test_conf)
    folder = find_run(run_id, asked.test_conf, DEFAULT_TEST)
    raise typer.Exit(starting.collect(settings_of(folder, asked.cluster_conf, asked.test_conf), folder))
