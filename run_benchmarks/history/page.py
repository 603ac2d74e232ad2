"""Draws the history of a case: its runs, the levels between changes, and a page with what changed at each."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from common.charts.chart import Axis, Curves, Number, Panel, Series
from common.charts.page import document, figure, safe
from common.whole_files import write_whole
from run_benchmarks.console.language import Words
from run_benchmarks.history.view import CaseHistory
from run_benchmarks.results.summary import show


def history_chart(found: CaseHistory, words: Words) -> Curves:
    """A point for each run that measured something, its levels, and the runs at which they changed, marked."""
    kept = found.series
    values: list[Number] = [*kept.values]
    xs = list(range(1, len(values) + 1))
    drawn = [Series(name=kept.metric, y=values, style="points")]
    if values:
        drawn.append(Series(name=words("level"), y=_levels(found), style="steps", tone="muted"))
    for change in found.changes:
        word = words("worse") if change.is_worse else words("better")
        place = change.point.index
        drawn.append(
            Series(
                name=f"{change.run.run_id}: {word}",
                x=[place + 1],
                y=[values[place]],
                style="points",
                tone="bad" if change.is_worse else "good",
            )
        )
    name = f"{kept.metric}, {kept.unit}" if kept.unit else kept.metric
    return Curves(
        title=f"{kept.case}{f', {kept.host}' if kept.host else ''}",
        sentence=found.sentence,
        x=Axis(name=words("run")),
        xs=xs,
        panels=[Panel(y=Axis(name=name), series=drawn)],
    )


def _levels(found: CaseHistory) -> list[Number]:
    """The median between two changes at each run."""
    values = found.series.values
    edges = [0, *(change.point.index for change in found.changes), len(values)]
    levels: list[Number] = []
    for first, last in itertools.pairwise(edges):
        levels += [median(values[first:last])] * (last - first)
    return levels


def write_page(path: Path, found: Sequence[CaseHistory], words: Words) -> None:
    """Write these histories as one page.

    Raises:
        OSError: the file cannot be written.
    """
    body = [f"<h1>{safe(words('History'))}</h1>"]
    for each in found:
        body += [
            f"<h2>{safe(each.series.case)}</h2>",
            figure(history_chart(each, words), words("Numbers")),
            *_changes(each, words),
        ]
        body += _runs(each, words)
    write_whole(path, [document(words("History"), "\n".join(body), lang=words.language).encode()])


def _changes(found: CaseHistory, words: Words) -> Iterator[str]:
    """Each change with its percent and the provenance that changed then."""
    for change in found.changes:
        word = words("worse") if change.is_worse else words("better")
        yield f"<p><b>{safe(change.run.run_id)}: {change.point.percent:+.2f} %, {safe(word)}</b></p><ul>"
        for name, before, after in change.provenance:
            yield f"<li>{safe(name)}: {safe(before or 'none')} → {safe(after or 'none')}</li>"
        if not change.provenance:
            yield f"<li>{safe(words('nothing that was recorded changed then'))}</li>"
        yield "</ul>"


def _runs(found: CaseHistory, words: Words) -> Iterator[str]:
    heads = "".join(f"<th>{safe(words(name))}</th>" for name in ("run", "begun", "verdict", "value"))
    yield f"<details><summary>{safe(words('runs'))}</summary><table><tr>{heads}</tr>"
    for point in reversed(found.series.points):
        begun = time.strftime("%Y-%m-%d %H:%M", time.localtime(point.started_ms / 1000))
        value = "" if point.value is None else show(float(point.value))
        cells = (point.run_id, begun, words(point.verdict), value)
        yield f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in cells)}</tr>"
    yield "</table></details>"
