"""Draws the history of a report's cases, in a child process: a database that hangs must hang no run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.charts.page import figure
from run_benchmarks.console.language import Language, Words
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.history.recording import FILE, TIME_LIMIT_S, ask_a_child, default_url

LEAST_RUNS = 5


def drawn(
    root: Path, url: str, cases: Sequence[str], language: Language, seconds: float = TIME_LIMIT_S
) -> tuple[dict[str, str], str]:
    """The history at an SQLAlchemy URL of each case with LEAST_RUNS runs or more, as elements of a page by case.

    And why it cannot be read, "" where it can. A result folder `root` without a history of its own has none to read.
    """
    if not cases or (url == default_url(root) and not (root / FILE).exists()):
        return {}, ""
    try:
        done, said = ask_a_child(__name__, {"url": url, "cases": list(cases), "language": language}, seconds)
        return (json.loads(said), "") if done else ({}, said)
    except (OSError, ValueError) as error:
        return {}, f"its process failed: {error}"


def _elements(url: str, cases: Sequence[str], words: Words) -> Iterator[tuple[str, str]]:
    from run_benchmarks.history.page import history_chart
    from run_benchmarks.history.view import case_history

    for case in cases:
        found = case_history(url, case, words=words)
        if len(found.series.values) >= LEAST_RUNS:
            yield case, figure(history_chart(found, words), words("Numbers"))


def main() -> None:
    """The child: reads its task from stdin; its last line is the elements as JSON, or says what went wrong."""
    asked = json.loads(sys.stdin.read())
    try:
        print(json.dumps(dict(_elements(asked["url"], asked["cases"], Words(asked["language"])))))
    except ClusterDynoError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
