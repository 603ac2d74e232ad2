"""Finds what runs of before measured, whose spread is that between runs: in the history, else in the folders beside.

The history is read in a child process: a database that hangs must not hang the comparison.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from run_benchmarks.compare.comparing import Before, CaseOfRun, Groups, of_folders
from run_benchmarks.console.console import complain
from run_benchmarks.history.entries import kind_of
from run_benchmarks.history.recording import FILE, TIME_LIMIT_S, answer_parent, ask_a_child, default_url
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.outcomes import metrics_of

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
        cases = (CaseOfRun(run=run, case=each) for run in self._compared for each in run.record.cases)
        passed = (each for each in cases if each.run.passed(each.case))
        units = {_key(each): {metric.name: metric.unit for metric in metrics_of(each.case)} for each in passed}
        asked = {"url": self._url, "cases": [*units.items()], "left_out": [folder.name for folder in self._folders]}
        found, problem = ask_a_child(__name__, asked, self._seconds)
        if problem:
            complain(f"the spread between runs is that of the run folders alone: {problem}")
            return {}
        return dict(zip(units, found, strict=True))


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


def _means_of_all(asked: dict[str, Any]) -> list[dict[str, list[list[float]]]]:
    from run_benchmarks.history.database import Database  # takes long to import
    from run_benchmarks.history.store import means_of_runs

    database, left_out = Database(asked["url"]), asked["left_out"]
    found = [means_of_runs(database, name, kind, units, left_out) for (name, kind), units in asked["cases"]]
    database.close()
    return found


if __name__ == "__main__":
    answer_parent(_means_of_all)
