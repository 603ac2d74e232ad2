"""Runs `run.py completion`: prints what bash needs to complete run.py's commands, options, runs and topics."""

from __future__ import annotations

import shlex

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from common.completion import script
from run_benchmarks.commands.listing import TOPICS
from run_benchmarks.console.command_line import DEFAULT_RESULTS
from run_benchmarks.console.console import say
from training.benchmarks import catalog

_RUNS = f"$(compgen -G {shlex.quote(str(DEFAULT_RESULTS))}/'run*' | sed 's|.*/||')"


def completion(context: typer.Context) -> None:
    """Print shell completion for `source <(... run.py completion)`, in bash, or in zsh after bashcompinit."""
    group = context.find_root().command
    assert isinstance(group, TyperGroup)
    words = {"": [*group.commands, *_options(group)]}
    for name, command in group.commands.items():
        assert isinstance(command, TyperCommand)
        words[name] = [*_options(command), *_operands(command)]
    say(script("run", 2, words))


def _options(command: TyperCommand | TyperGroup) -> list[str]:
    options = [name for each in command.params if isinstance(each, TyperOption) for name in each.opts]
    return [*(name for name in options if name.startswith("--")), "--help"]


def _operands(command: TyperCommand | TyperGroup) -> list[str]:
    """What may stand without an option: the runs of the default result folder, or topics and models."""
    metavars = {each.metavar for each in command.params if isinstance(each, TyperArgument)}
    if "RUN" in metavars:
        return [_RUNS]
    return [*TOPICS, *sorted({model for model, _ in catalog.available()})] if "WHAT" in metavars else []
