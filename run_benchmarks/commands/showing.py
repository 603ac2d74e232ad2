"""Runs `run.py show`: the essentials of a run, or of one of its cases, within 80 columns."""

import argparse
import textwrap
from collections.abc import Iterable, Iterator

from common.printable import printable
from common.summary import Answer
from run_benchmarks.commands.options import DEFAULT_TEST
from run_benchmarks.commands.run_reference import case_of, loaded
from run_benchmarks.console.console import say
from run_benchmarks.console.language import size_in_words, words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.results.drain import drain_rows
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import CaseRecord, KeyFigure, RunRecord
from run_benchmarks.results.summary import show, show_spread, with_units

WIDTH = 80
WORST_FIRST = ("fail", "timeout", "aborted", "skipped", "degraded", "pass")


def run(arguments: argparse.Namespace) -> Answer:
    """Show the run, or one of its cases; as JSON the record of the run, or of the case and of its rounds.

    Raises:
        InputProblems: there is no such run or case.
    """
    found = loaded(arguments, "show", DEFAULT_TEST)
    if arguments.case is None:
        return Answer(lambda: found.record, lambda: _say(_all(found)))
    case = case_of(found, arguments.case, "show")
    return Answer(lambda: {"case": case, "rounds": found.rounds[case.name]}, lambda: _say(_one(found, case)))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def _all(run: LoadedRun) -> Iterator[str]:
    """The lines before and after the table of cases, which is printed between them."""
    record = run.record
    yield from _wrapped(_headline(record))
    if record.drain:
        print_table(
            "Take out of service", ("host", "because"), [(host, words.reason(why)) for host, why in drain_rows(record)]
        )
    cases = sorted(record.cases, key=lambda each: WORST_FIRST.index(each.verdict.value))
    rows = [(each.name, words(each.verdict.value), *_figures(each.key)) for each in cases]
    print_table("", ("case", "verdict", "metric", "value", "of expected"), rows)
    for each in cases:
        if each.reason:
            yield from _wrapped(f"{each.name}: {words.reason(each.reason)}")
    remarks = sum(len(each.remarks) for each in cases)
    if remarks:
        yield words("{n} remarks are in report.html.", n=remarks)


def _headline(record: RunRecord) -> str:
    bad = [host for host in record.hosts if host.state not in (None, "healthy")]
    hosts = words("{n} of {total} hosts are healthy", n=len(record.hosts) - len(bad), total=len(record.hosts))
    seconds = (record.finished_ms - record.started_ms) / 1000
    return f"{record.run_id}: {words(record.verdict.value)}. {f'{hosts}. ' * bool(record.hosts)}{seconds:.0f} s."


def _figures(key: KeyFigure | None) -> tuple[str, str, str]:
    if key is None:
        return "", "", ""
    low, high = min(key.of_rounds, default=key.value), max(key.of_rounds, default=key.value)
    spread = "" if low == high else f" ({show(low)} to {show(high)})"
    percent = "" if key.percent_of_expected is None else f"{key.percent_of_expected:.1f} %"
    steady = "" if key.steady is None else f"; {words('{value} after the warm-up', value=show(key.steady))}"
    return key.metric, f"{show(key.value)} {key.unit}".strip() + spread + steady, percent


def _one(run: LoadedRun, case: CaseRecord) -> Iterator[str]:
    said = f": {words.reason(case.reason)}" if case.reason else ""
    yield from _wrapped(f"{case.name}: {words(case.verdict.value)}{said}")
    size = size_in_words(case.nnodes, case.nproc, words)
    yield from _wrapped(f"{case.model}:{case.framework}, {size}, {case.config_file}")
    metrics = [(name, show_spread(value, case.spread.get(name)) + unit) for name, value, unit in with_units(case)]
    print_table("", ("metric", "value"), metrics)
    name = case.key.metric if case.key else ""
    rounds = [
        (
            str(each.round),
            words(each.verdict.value),
            f"{(each.finished_ms - each.started_ms) / 1000:.0f} s",
            show(each.metrics[name]) if name in each.metrics else "",
            words.reason(each.reason),
        )
        for each in run.rounds[case.name]
    ]
    print_table("", ("round", "verdict", "duration", "value", "reason"), rounds)
    for text in (*case.sentences, *(each.sentence for each in case.expectations), *case.warnings, *case.remarks):
        yield from _wrapped(f"- {text}")


def _wrapped(text: str) -> list[str]:
    """Lines of at most WIDTH characters, but for a longer word."""
    one_line = printable(" ".join(text.split()))
    return textwrap.wrap(one_line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
