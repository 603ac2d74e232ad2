"""Runs `run.py history`: how a metric of a case went over the runs, when its level changed, and a host's record."""

import argparse

from common.summary import Answer
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import history_of
from run_benchmarks.console.language import words
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS


def run(arguments: argparse.Namespace) -> Answer:
    """Show all cases of the history, one case, or one host; with --output write the page of the cases, too.

    Raises:
        InputProblems: no history is kept, or it has no such case, metric or host.
    """
    from run_benchmarks.commands.history_view import Asked, read, rebuilt  # whose database library takes long to import

    root, url = history_of(arguments.test_conf or DEFAULT_TEST)
    failed = arguments.rebuild and rebuilt(root, url)
    asked = Asked(case=arguments.case, metric=arguments.metric, host=arguments.host, output=arguments.output)
    found, show = read(url, asked, words)
    return Answer(lambda: found, show, EXIT_FAIL if failed else EXIT_PASS)
