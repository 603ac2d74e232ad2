"""Prints what the history tells: all cases, one case with its changes, or one host in all cases."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from common.errors import ABSENT, Problem
from common.whole_files import STDOUT
from run_benchmarks.console.console import complain, say
from run_benchmarks.console.language import Words, words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.errors import InputProblems
from run_benchmarks.history.database import Database
from run_benchmarks.history.page import write_page
from run_benchmarks.history.recording import rebuild
from run_benchmarks.history.store import HostHistory, Series, case_names, host_history, series
from run_benchmarks.history.view import CaseHistory, told
from run_benchmarks.results.summary import show as shown
from run_benchmarks.session.run_folder import owner_of
from run_benchmarks.settings.conf_file import nearest

SHOWN_RUNS = 20
BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The subject that is shown: a case, a host or both, else all cases; "": the key figure; `output`: the file of the
    page.
    """

    case: str | None
    metric: str = ""
    host: str = ""
    output: Path | None = None


def read(url: str, asked: Asked, words: Words) -> tuple[object, Callable[[], None]]:
    """Read what is asked for of the history at an SQLAlchemy URL, and write its page; returns it with its printer.

    Raises:
        HistoryError: it cannot be read.
        InputProblems: it has no such case, metric or host.
        OSError: the page cannot be written.
    """
    problems = []
    if asked.metric and asked.case is None:
        problems.append(Problem("history", "--metric", asked.metric, "expected a CASE, whose metric it is"))
    if asked.output is not None and asked.case is None and asked.host:
        problems.append(Problem("history", "--output", str(asked.output), "expected a CASE beside --host"))
    if problems:
        raise InputProblems(problems)
    database = Database(url)
    try:
        if asked.case is None and asked.host:
            host = _host(database, asked.host)
            return host, lambda: _show_host(host, words)
        if asked.case is not None:
            found = [told(_checked(database, asked.case, asked.metric, asked.host), words)]
        else:
            found = [told(series(database, name), words) for name in case_names(database)]
    finally:
        database.close()
    if asked.output is not None:
        write_page(asked.output, found, words)
        if asked.output != STDOUT:
            say(words("Page: {file}", file=asked.output))
    if asked.case is not None:
        return found[0], lambda: _show_case(found[0], words)
    return {"cases": found}, lambda: _show_cases(found, words)


def rebuilt(root: Path, url: str) -> bool:
    """Put all runs of the result folder into the history again; whether one could not be read, which is named."""
    problems = [
        words("left out: {problem}", problem=problem) for _, problem in rebuild(root, owner_of(root), url) if problem
    ]
    for problem in problems:
        complain(problem)
    return bool(problems)


def _checked(database: Database, case: str, metric: str, host: str) -> Series:
    """The series that was asked for.

    Raises:
        InputProblems: the history has no such case, metric or host.
    """
    names = case_names(database)
    if case not in names:
        raise InputProblems(
            [Problem("history", "CASE", case, f"expected a case of the history; {nearest(case, names)}")]
        )
    found = series(database, case, metric, host)
    if found.points and not found.values:
        key, value = ("--host", host) if host and not found.metrics else ("--metric", metric)
        known = nearest(value, found.metrics) if found.metrics else "this case measures nothing of single hosts"
        raise InputProblems([Problem("history", key, value or ABSENT, f"expected one that the case has; {known}")])
    return found


def _row(found: CaseHistory, words: Words) -> tuple[str, ...]:
    kept = found.series
    latest = f"{shown(kept.values[-1])} {kept.unit}".strip() if kept.values else ""
    return kept.case, kept.metric, str(len(kept.points)), latest, words(found.trend.state)


def _show_cases(found: Sequence[CaseHistory], words: Words) -> None:
    print_table("", ("case", "metric", "runs", "latest", "state"), [_row(each, words) for each in found])


def _show_case(found: CaseHistory, words: Words) -> None:
    kept = found.series
    title = (
        f"{kept.case}: {kept.metric}{f' of {kept.host}' if kept.host else ''}{f', {kept.unit}' if kept.unit else ''}"
    )
    say(f"{title}, {words(f'{kept.better} is better')}" if kept.better else title)
    if kept.values:
        say(sparkline(kept.values))
    listed = kept.points[-SHOWN_RUNS:]
    marks = {change.run.run_id: words("worse") if change.is_worse else words("better") for change in found.changes}
    rows = [
        (
            point.run_id,
            time.strftime("%Y-%m-%d %H:%M", time.localtime(point.started_ms / 1000)),
            words(point.verdict),
            "" if point.value is None else shown(point.value),
            marks.get(point.run_id, ""),
        )
        for point in listed
    ]
    print_table("", ("run", "begun", "verdict", "value", "changed"), rows)
    if more := len(kept.points) - len(listed):
        say(words("{n} earlier runs are not listed.", n=more))
    for line in _changes(found, words):
        say(line)
    say(found.sentence)


def _changes(found: CaseHistory, words: Words) -> Iterator[str]:
    for change in found.changes:
        point, word = change.point, words("worse") if change.is_worse else words("better")
        yield words(
            "{run}: from {before} to {after} {unit} ({percent}, {word})",
            run=change.run.run_id,
            before=shown(float(point.before)),
            after=shown(float(point.after)),
            unit=found.series.unit,
            percent=f"{point.percent:+.2f} %",
            word=word,
        )
        for name, before, after in change.provenance:
            yield f"  {name}: {before or 'none'} -> {after or 'none'}"
        if not change.provenance:
            yield f"  {words('nothing that was recorded changed then')}"


def _host(database: Database, host: str) -> HostHistory:
    """The host that was asked for.

    Raises:
        InputProblems: no run of the history has it.
    """
    found = host_history(database, host)
    if not found.states and not found.lines:
        raise InputProblems([Problem("history", "--host", host, "expected a host of a run in the history")])
    return found


def _show_host(found: HostHistory, words: Words) -> None:
    states = ", ".join(f"{words(state)} {count}" for state, count in found.states.items())
    say(f"{found.host}: {states}")
    if found.last_reason:
        say(words("Last trouble: {reason}", reason=words.reason(found.last_reason)))
    rows = [
        (each.case, each.metric, f"{shown(each.latest)} {each.unit}".strip(), f"{each.worst}/{each.runs}")
        for each in found.lines
    ]
    if rows:
        print_table("", ("case", "metric", "latest", "runs in the worst 5 %"), rows)


def sparkline(values: Sequence[float]) -> str:
    """The latest 72 values, in any unit, as blocks from the smallest to the largest."""
    latest = values[-72:]
    low, high = min(latest), max(latest)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0
    return "".join(BLOCKS[round((value - low) * scale)] for value in latest)
