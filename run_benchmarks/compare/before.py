"""Finds what runs of before measured, whose spread is that between runs: in the history, else in the folders beside.

The history is read in a child process: a database that hangs must not hang the comparison.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from run_benchmarks.compare.comparing import Before, CaseOfRun, Groups, of_folders
from run_benchmarks.console.console import complain
from run_benchmarks.errors import HistoryError
from run_benchmarks.history.entries import kind_of
from run_benchmarks.history.recording import FILE, TIME_LIMIT_S, ask_a_child, default_url
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run

MOST_FOLDERS = 50


class RunsBefore:
    """The runs of the history at an SQLAlchemy URL ("": none) but those that are compared.

    Of a case that the history has no two runs of that were made alike, the run folders beside those compared count.
    """

    def __init__(self, url: str, compared: Sequence[LoadedRun], seconds: float = TIME_LIMIT_S) -> None:
        self._compared, self._seconds = compared, seconds
        self._folders = [run.folder.resolve() for run in compared]
        self._of_folders: Before | None = None
        self._kept: dict[tuple[str, str], Groups] | None = None
        roots = {folder.parent for folder in self._folders}
        is_missing = any(url == default_url(root) and not (root / FILE).exists() for root in roots)
        self._url = "" if is_missing else url

    def __call__(self, case: CaseOfRun) -> Groups:
        """The groups of earlier runs of a case, as `compare` takes it."""
        if self._kept is None:
            self._kept = self._of_history() if self._url else {}
        found = self._kept.get(_key(case), {})
        if any(len(group) > 1 for groups in found.values() for group in groups):
            return found
        if self._of_folders is None:
            self._of_folders = of_folders(_beside(self._folders))
        return self._of_folders(case)

    def _of_history(self) -> dict[tuple[str, str], Groups]:
        """The content of the history for all cases that are compared, by their names and kinds."""
        passed = (CaseOfRun(run=run, case=each) for run in self._compared for each in run.record.cases)
        keys = sorted({_key(each) for each in passed if each.run.passed(each.case)})
        asked = {"url": self._url, "cases": keys, "left_out": [folder.name for folder in self._folders]}
        done, said = ask_a_child(__name__, asked, self._seconds)
        if not done:
            complain(f"the spread between runs is that of the run folders alone: {said}")
            return {}
        return dict(zip(keys, json.loads(said), strict=True))


def _key(case: CaseOfRun) -> tuple[str, str]:
    return case.case.name, kind_of(case.described())


def _beside(compared: Sequence[Path]) -> list[LoadedRun]:
    """The latest runs beside those compared; one that is damaged is named and left out."""
    beside = {folder for root in {each.parent for each in compared} for folder in root.glob("run*/run.json")}
    found = []
    for file in sorted(beside, reverse=True)[: MOST_FOLDERS + len(compared)]:
        if file.parent.resolve() in compared:
            continue
        try:
            found.append(load_run(file.parent))
        except LoadError as error:
            complain(f"left out of the history: {error}")
    return found


def main() -> None:
    """The child: reads its task from stdin; its last line is what the history holds, or says what went wrong."""
    from run_benchmarks.history.database import Database  # takes long to import
    from run_benchmarks.history.store import means_of_runs

    asked = json.loads(sys.stdin.read())
    try:
        database = Database(asked["url"])
        print(json.dumps([means_of_runs(database, name, kind, asked["left_out"]) for name, kind in asked["cases"]]))
    except HistoryError as error:
        print(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
