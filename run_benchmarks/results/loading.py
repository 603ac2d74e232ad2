"""Reads the result folder of a run as typed records: run.json and the attempts that count of each case's rounds."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.records import RECORD_FILE, CaseRecord, RoundRecord, RunRecord, load_record

RUN_FILE = "run.json"
RecordT = TypeVar("RecordT", RunRecord, RoundRecord)


class LoadError(ClusterDynoError):
    """A folder that holds no run, or a damaged one; the message names the file."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LoadedRun:
    """A run: its record, and by case the records of its rounds, the attempt that counts of each. No other equals it."""

    folder: Path
    record: RunRecord
    rounds: dict[str, list[RoundRecord]]

    def passed(self, case: CaseRecord) -> list[RoundRecord]:
        """The rounds of a case whose measurements count."""
        return [record for record in self.rounds[case.name] if record.verdict.is_measured]


def load_run(folder: Path | str) -> LoadedRun:
    """The run in a result folder, which may come from anybody.

    Raises:
        LoadError: run.json or the record of a round that it counts is missing or damaged.
    """
    path = Path(folder)
    record = record_of(path)
    rounds: dict[str, list[RoundRecord]] = {}
    for case in record.cases:
        attempts = case.attempts or [1] * len(case.rounds)
        found = [
            _read(path / case.folder / round_folder(index, attempt) / RECORD_FILE, RoundRecord)
            for index, attempt in enumerate(attempts, 1)
        ]
        rounds[case.name] = found
    return LoadedRun(folder=path, record=record, rounds=rounds)


def record_of(folder: Path) -> RunRecord:
    """The record of the run in a result folder, which may come from anybody.

    Raises:
        LoadError: run.json is missing or damaged.
    """
    return _read(folder / RUN_FILE, RunRecord)


def _read(path: Path, record: type[RecordT]) -> RecordT:
    try:
        return load_record(path, record)
    except ValidationError as error:
        raise LoadError(f"{path}: is no {record.__name__}: {error.errors()[0]['msg']}") from error
    except OSError as error:
        raise LoadError(f"{path}: cannot be read: {error.strerror or error}") from error
