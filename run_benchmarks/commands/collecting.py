"""The command that collects what a run still has on its hosts alone."""

from __future__ import annotations

from pathlib import Path

import typer

from run_benchmarks.commands import starting
from run_benchmarks.commands.options import Request, of_a_run
from run_benchmarks.commands.run_reference import settings_of


@of_a_run
def collect(asked: Request, folder: Path) -> None:
    """Collect what a run could not collect from its hosts, and judge those rounds again; starts nothing there."""
    raise typer.Exit(starting.collect(settings_of(folder, asked.cluster_conf, asked.test_conf), folder))
