"""Draws the history of a report's cases, in a child process: a database that hangs must hang no run."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from common.charts.page import figure
from run_benchmarks.console.language import Language, Words
from run_benchmarks.history.recording import FILE, TIME_LIMIT_S, answer_parent, ask_a_child, default_url
from run_benchmarks.results.loading import LoadedRun, load_run

LEAST_RUNS = 5
Drawn = dict[str, dict[str, str]]


def drawn(folders: Sequence[Path], url: str, language: Language, seconds: float = TIME_LIMIT_S) -> tuple[Drawn, str]:
    """By run folder and case its history at an SQLAlchemy URL as an element of a page; and why none can be read, or "".

    Cases with LEAST_RUNS runs of their kind have one. A result folder without a history of its own has none.
    """
    root = folders[0].parent
    if url == default_url(root) and not (root / FILE).exists():
        return {}, ""
    asked = {"url": url, "folders": [str(each.absolute()) for each in folders], "language": language}
    found, problem = ask_a_child(__name__, asked, seconds)
    return dict(zip(map(str, folders), found or (), strict=not problem)), problem


def _elements(url: str, run: LoadedRun, words: Words) -> Iterator[tuple[str, str]]:
    from run_benchmarks.history.database import Database
    from run_benchmarks.history.entries import kind_of
    from run_benchmarks.history.page import history_chart
    from run_benchmarks.history.store import series
    from run_benchmarks.history.view import told
    from run_benchmarks.results.standards import case_series

    database = Database(url)
    for case in run.record.cases:
        passed = run.passed(case)
        kind = kind_of(case_series(run.record.run_id, case, passed)) if passed else ""
        found = told(series(database, case.name, kind=kind), words)
        if len(found.series.values) >= LEAST_RUNS:
            yield case.name, figure(history_chart(found, words), words("Numbers"))
    database.close()


def _elements_of_all(asked: dict[str, Any]) -> list[dict[str, str]]:
    words = Words(asked["language"])
    return [dict(_elements(asked["url"], load_run(folder), words)) for folder in asked["folders"]]


if __name__ == "__main__":
    answer_parent(_elements_of_all)
