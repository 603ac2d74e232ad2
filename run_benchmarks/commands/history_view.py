"""Prints what the history tells: all cases, one case with its changes, or one host in all cases."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from protocol.problems import ABSENT, Problem
from run_benchmarks.console.console import complain, print_table, say
from run_benchmarks.console.language import Words
from run_benchmarks.errors import ConfigError
from run_benchmarks.history.database import Database
from run_benchmarks.history.recording import rebuild
from run_benchmarks.history.store import Series, case_names, host_history, series
from run_benchmarks.history.view import CaseHistory, told
from run_benchmarks.results.summary import show as shown
from run_benchmarks.session.run_folder import owner_of
from run_benchmarks.settings.conf_file import nearest

SHOWN_RUNS = 20
BLOCKS = "▁▂▃▄▅▆▇█"


def show(url: str, case: str | None, metric: str | None, host: str | None, words: Words) -> None:
    """Print a case of the history at an SQLAlchemy URL, or a host in all cases, or a row for each case.

    Raises:
        HistoryError: it cannot be read.
        ConfigError: it has no such case, metric or host.
    """
    database = Database(url)
    try:
        if case is not None:
            _show_case(told(_checked(database, case, metric or "", host or ""), words), words)
        elif host is not None:
            _show_host(database, host, words)
        else:
            rows = [_row(told(series(database, name), words), words) for name in case_names(database)]
            print_table("", [words(name) for name in ("case", "metric", "runs", "latest", "state")], rows)
    finally:
        database.close()


def rebuilt(root: Path, url: str) -> bool:
    """Put all runs of the result folder into the history again; whether one could not be read, which is named."""
    problems = [f"left out: {problem}" for _, problem in rebuild(root, owner_of(root), url) if problem]
    for problem in problems:
        complain(problem)
    return bool(problems)


def _checked(database: Database, case: str, metric: str, host: str) -> Series:
    """The series that was asked for.

    Raises:
        ConfigError: the history has no such case, metric or host.
    """
    names = case_names(database)
    if case not in names:
        raise ConfigError([Problem("history", "CASE", case, f"expected a case of the history; {nearest(case, names)}")])
    found = series(database, case, metric, host)
    if found.points and not found.values:
        key, value = ("--host", host) if host and not found.metrics else ("--metric", metric)
        known = nearest(value, found.metrics) if found.metrics else "this case measures nothing of single hosts"
        raise ConfigError([Problem("history", key, value or ABSENT, f"expected one that the case has; {known}")])
    return found


def _row(found: CaseHistory, words: Words) -> tuple[str, ...]:
    kept = found.series
    latest = f"{shown(kept.values[-1])} {kept.unit}".strip() if kept.values else ""
    return kept.case, kept.metric, str(len(kept.points)), latest, words(found.trend.state)


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
    print_table("", [words(name) for name in ("run", "begun", "verdict", "value", "changed")], rows)
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


def _show_host(database: Database, host: str, words: Words) -> None:
    found = host_history(database, host)
    if not found.states and not found.lines:
        raise ConfigError([Problem("history", "--host", host, "expected a host of a run in the history")])
    states = ", ".join(f"{words(state)} {count}" for state, count in found.states.items())
    say(f"{host}: {states}")
    if found.last_reason:
        say(words("Last trouble: {reason}", reason=found.last_reason))
    rows = [
        (each.case, each.metric, f"{shown(each.latest)} {each.unit}".strip(), f"{each.worst}/{each.runs}")
        for each in found.lines
    ]
    if rows:
        columns = ("case", "metric", "latest", "runs in the worst 5 %")
        print_table("", [words(name) for name in columns], rows)


def sparkline(values: Sequence[float], width: int = 72) -> str:
    """The latest `width` values as blocks, from the smallest to the largest."""
    latest = values[-width:]
    low, high = min(latest), max(latest)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0
    return "".join(BLOCKS[round((value - low) * scale)] for value in latest)
