"""The error of a data file that cannot be used. Needs no torch."""

from pathlib import Path

from training.benchmarks.driver.workload.usage import UnusableSettingsError


class DataError(UnusableSettingsError):
    """A data file is missing or broken; the message names the file, the mistake and what is expected."""

    def __init__(self, path: Path | str, problem: str | None = None) -> None:
        # A DataLoader rebuilds its worker's error from the text of its traceback alone.
        super().__init__(str(path).rpartition("DataError: ")[2].strip() if problem is None else f"{path}: {problem}")
