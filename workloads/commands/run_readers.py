"""The verbs that read what ran: `log`, `analyze` and `visualize`. Their options need no numpy, as their work does."""

import argparse
from pathlib import Path

from common.command_line import FunctionVerb, VerbParser
from common.summary import Summary
from workloads.oplog import UNITS


def _add_log(parser: VerbParser) -> None:
    parser.add_argument("file", type=Path, metavar="LOG", help="a folder of op logs, one of them, or a log CSV")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="whose log of a folder (default: %(default)s)")
    parser.add_argument("--print_ops", action="store_true", help="also a line for each operation")
    parser.add_argument("--units", choices=UNITS, default="GB", help="GB is 1e9 bytes, GiB AICB's 2**30 (default: GB)")
    parser.add_argument("--csv", type=Path, metavar="FILE", help="also write a log CSV with AICB's columns")


def _log(arguments: argparse.Namespace) -> Summary:
    from workloads.commands import log

    return log.run(arguments)


def _add_analyze(parser: VerbParser) -> None:
    parser.add_argument("first", type=Path, metavar="LOG", help="a folder of op logs, one of each rank")
    parser.add_argument("second", type=Path, nargs="?", metavar="LOG2", help="another run's, to compare with the first")


def _analyze(arguments: argparse.Namespace) -> Summary:
    from workloads.commands import analyze

    return analyze.run(arguments)


def _add_visualize(parser: VerbParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        metavar="LOG|WORKLOAD",
        help="op logs (a folder, or one), a log CSV, a workload CSV or SimAI text",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the page to write (.html)")


def _visualize(arguments: argparse.Namespace) -> Summary:
    from workloads.commands import visualize

    return visualize.run(arguments)


LOG = FunctionVerb(_add_log, _log)
ANALYZE = FunctionVerb(_add_analyze, _analyze)
VISUALIZE = FunctionVerb(_add_visualize, _visualize)
