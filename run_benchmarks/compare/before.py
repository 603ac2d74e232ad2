"""Finds what runs of before measured, whose spread is that between runs: in the history, else in the folders beside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from run_benchmarks.compare.comparing import Before, CaseOfRun, Groups, of_folders
from run_benchmarks.console.console import complain
from run_benchmarks.errors import HistoryError
from run_benchmarks.history.entries import kind_of
from run_benchmarks.history.recording import FILE, default_url
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run

MOST_FOLDERS = 50


class RunsBefore:
    """The runs of the history at an SQLAlchemy URL ("": none), without those compared, which lie in `compared`.

    Of a case that the history has no two runs of that were made alike, the run folders beside those compared count.
    """

    def __init__(self, url: str, compared: Sequence[Path]) -> None:
        self._compared = compared
        self._of_folders: Before | None = None
        is_missing = any(url == default_url(each.parent) and not (each.parent / FILE).exists() for each in compared)
        self._url = "" if is_missing else url

    def __call__(self, case: CaseOfRun) -> Groups:
        """What they measured of a case, as `compare` takes it."""
        found = self._kept(case) if self._url else {}
        if any(len(group) > 1 for groups in found.values() for group in groups):
            return found
        if self._of_folders is None:
            self._of_folders = of_folders(_beside(self._compared))
        return self._of_folders(case)

    def _kept(self, case: CaseOfRun) -> Groups:
        from run_benchmarks.history.database import Database  # takes long to import
        from run_benchmarks.history.store import means_of_runs

        names = [folder.name for folder in self._compared]
        try:
            database = Database(self._url)
            try:
                return means_of_runs(database, case.case.name, kind_of(case.described()), names)
            finally:
                database.close()
        except HistoryError as error:
            complain(f"the spread between runs is that of the run folders alone: {error}")
            self._url = ""
            return {}


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
