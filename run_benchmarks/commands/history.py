"""Runs `run.py history`: how a metric of a case went over the runs, when its level changed, and a host's record."""

from __future__ import annotations

import argparse
from pathlib import Path

from common.command_line import VerbParser
from run_benchmarks.commands.options import DEFAULT_TEST, add_test_conf
from run_benchmarks.commands.run_reference import history_of
from run_benchmarks.console.language import words
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS


def add_arguments(parser: VerbParser) -> None:
    """See Verb."""
    add = parser.add_argument
    add("case", metavar="CASE", nargs="?", help="one case; default: all")
    add("--metric", metavar="M", default="", help="default: the case's key figure")
    add("--host", metavar="H", default="", help="what the case measured of this host")
    add("--output", type=Path, metavar="F", help="also as a page in this file")
    add("--rebuild", action="store_true", help="read all runs of the result folder again first")
    add_test_conf(parser)


def run(arguments: argparse.Namespace) -> int:
    """See Verb.

    Raises:
        InputProblems: no history is kept, or it has no such case, metric or host.
    """
    from run_benchmarks.commands.history_view import Asked, rebuilt, show  # whose database library takes long to import

    root, url = history_of(arguments.test_conf or DEFAULT_TEST)
    failed = arguments.rebuild and rebuilt(root, url)
    asked = Asked(case=arguments.case, metric=arguments.metric, host=arguments.host, output=arguments.output)
    show(url, asked, words)
    return EXIT_FAIL if failed else EXIT_PASS
