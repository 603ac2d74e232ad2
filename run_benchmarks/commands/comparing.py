"""Runs `run.py compare A B`: which case became better or worse between two runs or sets of runs."""

import argparse
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from common.errors import ABSENT, MistakeList, Problem
from common.summary import Answer
from protocol.baseline_file import BaselineError, load
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import find_baseline, find_run, history_beside
from run_benchmarks.compare.before import RunsBefore
from run_benchmarks.compare.comparing import CaseResult, MetricResult, compare
from run_benchmarks.compare.rules import Rules, read_rules
from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.errors import InputProblems
from run_benchmarks.results.loading import LoadError, load_run
from run_benchmarks.results.summary import show
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS

COLUMNS = ("case", "metric", "verdict", "A", "B", "better by, %", "a change found, %", "remark")


def run(arguments: argparse.Namespace) -> Answer:
    """Compare every case of A and B, or of A and the runs of a baseline, with the runs before as a measure of spread.

    Raises:
        InputProblems: there is no such run or baseline, or the rules have mistakes.
    """
    earlier, later, kept = _asked(arguments)
    try:
        sides = [[load_run(folder) for folder in side] for side in (earlier, later)]
    except LoadError as error:
        raise InputProblems([Problem("compare", "RUN", ABSENT, str(error))]) from error
    before = RunsBefore(history_beside(later[0], arguments.test_conf), [*sides[0], *sides[1]])
    results = compare(sides[0], sides[1], before, kept)
    exit_code = EXIT_FAIL if any(each.fails for each in results) else EXIT_PASS
    return Answer(lambda: {"cases": results}, lambda: _show(results), exit_code)


def _asked(arguments: argparse.Namespace) -> tuple[list[Path], list[Path], Rules]:
    """The folders of both sides, A's first, and the rules.

    Raises:
        InputProblems: as `run`.
    """
    first, second, baseline, rules = arguments.first, arguments.second, arguments.baseline, arguments.rules
    conf = arguments.test_conf
    mistakes = MistakeList()
    if (second is None) == (baseline is None):
        mistakes.mistakes.append(Problem("compare", "B", ABSENT, "expected either B or --baseline F"))
    later = _folders((first if second is None else second).split(","), conf, mistakes)
    earlier = _folders(first.split(","), conf, mistakes) if baseline is None else _of_baseline(baseline, conf, mistakes)
    kept = mistakes.result(lambda: read_rules(rules) if rules is not None else Rules())
    if not mistakes.mistakes and not (earlier and later):
        mistakes.mistakes.append(Problem("compare", "RUN", ABSENT, "names no run on one side; expected A and B"))
    mistakes.check()
    if both := [folder.name for folder in later if folder in earlier]:
        raise InputProblems([Problem("compare", "RUN", ", ".join(both), "is on both sides; expected different runs")])
    return earlier, later, kept


def _folders(runs: Iterable[str], test_conf: Path | None, mistakes: MistakeList) -> list[Path]:
    """The folder of each run once; that one is not there is noted."""
    return [mistakes.result(partial(find_run, run, test_conf, DEFAULT_TEST)) for run in dict.fromkeys(runs) if run]


def _of_baseline(word: str, test_conf: Path | None, mistakes: MistakeList) -> list[Path]:
    """The folders of the runs that a baseline was saved of: its medians have no spread to test with."""
    found = list[Path]()
    with mistakes.noted():
        file = find_baseline(word, test_conf, DEFAULT_TEST)
        try:
            found = _folders((each.run for each in load(file).cases), test_conf, mistakes)
        except BaselineError as error:
            raise InputProblems([Problem("compare", "--baseline", word, str(error))]) from error
    return found


def _show(results: Sequence[CaseResult]) -> None:
    rows = [
        (each.case if index == 0 else "", *_cells(metric))
        for each in results
        for index, metric in enumerate(each.metrics)
    ]
    if rows:
        print_table("", COLUMNS, rows)
    for each in results:
        why = f" ({words.reason(each.reason)})" if each.reason else ""
        say(f"{each.case}: {words(each.word)}{why}{words(', which fails') * each.fails}")
        for what in each.changed:
            say(words("  changed: {what}", what=what))


def _cells(result: MetricResult) -> tuple[str, ...]:
    name = f"{result.metric.name}{f', {result.metric.unit}' if result.metric.unit else ''}"
    percent = "" if result.percent is None else f"{result.percent:+.2f} ± {result.half_width or 0:.2f}"
    found = "" if result.found_percent is None else f"{result.found_percent:.2f}"
    values = ["" if value is None else show(float(value)) for value in (result.first, result.second)]
    marked = words("{metric} (key)", metric=name) if result.metric.is_key else name
    return marked, words(result.word), *values, percent, found, words.reason(result.note)
