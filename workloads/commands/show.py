"""Shows and compares workload files, and what a dialect does otherwise: the verbs `show`, `diff` and `deviations`."""

import argparse
from functools import partial
from pathlib import Path

from common.command_line import FunctionVerb, VerbParser
from common.errors import MistakeList
from common.summary import Summary
from workloads import dialects
from workloads.formats.workload import Workload


def _add_show(parser: VerbParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a workload CSV (ours or AICB's) or a SimAI text")


def _show(arguments: argparse.Namespace) -> Summary:
    from workloads.analysis import show

    return show.summary(arguments.file)


def _add_diff(parser: VerbParser) -> None:
    parser.add_argument("first", type=Path, metavar="A", help="a workload CSV of any form, a trace's too")
    parser.add_argument("second", type=Path, metavar="B", help="the one to compare it with")


def _diff(arguments: argparse.Namespace) -> Summary:
    from workloads.analysis import diff

    mistakes = MistakeList()
    files = [mistakes.result(partial(Workload.load, path)) for path in (arguments.first, arguments.second)]
    mistakes.check()
    found = diff.compare(*(workload for workload, _ in files))
    return Summary("\n".join(found.lines()), found.to_dict(), failed=not found.same)


def _add_deviations(parser: VerbParser) -> None:
    parser.add_argument("--dialect", choices=dialects.names(), default="aicb", help="default: %(default)s")


def _deviations(arguments: argparse.Namespace) -> Summary:
    found = dialects.get(arguments.dialect).deviations
    text = "\n".join(f"{each.name}\n    {each.what}" for each in found)
    return Summary(text, {each.name: each.what for each in found})


SHOW = FunctionVerb(_add_show, _show)
DIFF = FunctionVerb(
    _add_diff,
    _diff,
)
DEVIATIONS = FunctionVerb(_add_deviations, _deviations)
