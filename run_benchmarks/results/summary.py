"""Formats a run's cases as rows of a table, for the console and the report."""

from collections.abc import Iterator
from typing import Any

from common.shortening import shortened
from protocol.default_outcome import is_measured
from run_benchmarks.results.metrics import Rule, Spread
from run_benchmarks.results.outcomes import metrics_of
from run_benchmarks.results.records import CaseRecord, RunRecord

LARGE, HUGE = 1e3, 1e15
SHOWN_CHARACTERS = 500
SHOWN_REMARKS = 5
FINDINGS = "findings"


def case_rows(record: RunRecord) -> list[tuple[str, str, str, str, str, str]]:
    """(case, verdict, rounds passed, nodes x ranks, metric, value); further rows of a case leave four empty."""
    rows = []
    for case in record.cases:
        head = (case.name, case.verdict_text, _rounds(case), f"{case.nnodes} x {case.nproc}")
        for index, (name, value) in enumerate(_results(case)):
            rows.append((*(head if index == 0 else ("", "", "", "")), name, value))
    return rows


def _rounds(case: CaseRecord) -> str:
    """The rounds that passed, of all, and how many of them were retried."""
    passed = sum(verdict.is_measured for verdict in case.rounds)
    again = sum(attempt > 1 for attempt in case.attempts)
    lost = sum(earlier.lost for earlier in case.earlier_attempts)
    how = f" ({again} retried{f', {lost} lost' * (lost > 0)})" if again else ""
    return f"{passed}/{len(case.rounds)}{how}"


def _results(case: CaseRecord) -> Iterator[tuple[str, str]]:
    """Name and value of each metric, or the reason why there is none; then what is said of them."""
    metrics = [(name, f"{show_spread(value, case.spread.get(name))}{unit}") for name, value, unit in with_units(case)]
    yield from metrics or [("", case.reason)]
    yield from (("finding", sentence) for sentence in case.sentences)
    yield from (("expect", f"{'' if each.met else 'not met: '}{each.sentence}") for each in case.expectations)
    yield from (("baseline", sentence) for sentence in (case.baseline.sentences if case.baseline else ()))
    yield from (("warning", warning) for warning in case.warnings)
    yield from (("remark", remark) for remark in case.remarks[:SHOWN_REMARKS])
    if (more := len(case.remarks) - SHOWN_REMARKS) > 0:
        yield "remark", f"and {more} more, in report.html"


def with_units(case: CaseRecord) -> list[tuple[str, Any, str]]:
    """Name, value and unit (a blank before it; "" where none is declared) of each metric, the key figure first.

    Findings are left out: they have their own rows.
    """
    declared = {metric.name: metric for metric in metrics_of(case)}
    names = [name for name, metric in declared.items() if metric.is_key and name in case.metrics]
    units = {name: f" {metric.unit}" for name, metric in declared.items() if metric.unit}
    return [
        (name, case.metrics[name], units.get(name, "") if is_measured(case.metrics[name]) else "")
        for name in dict.fromkeys((*names, *case.metrics))
        if name != FINDINGS
    ]


def show_spread(value: Any, spread: Spread | None) -> str:
    """A metric of several rounds: its value and, if the rounds differ, their range and spread."""
    if spread is None or spread.min == spread.max:
        return show(value)
    kind = "" if spread.rule is Rule.MEAN else f"{spread.rule.value} of "
    return f"{show(value)} ({kind}{show(spread.min)} to {show(spread.max)}, std {show(spread.std)}, n {spread.n})"


def show(value: Any) -> str:
    """A metric for people: four significant digits, large values as integers, or the text itself."""
    if not isinstance(value, float):
        text = str(value)
        return shortened(text, SHOWN_CHARACTERS)
    return f"{value:.0f}" if LARGE <= abs(value) < HUGE else f"{value:.4g}"
