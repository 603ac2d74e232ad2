"""Defines the exceptions and notes whose text is for the user."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


class AicbError(Exception):
    """Root of the package's errors."""


class WorkloadFileError(AicbError):
    """A workload file cannot be read; the message names file, line and mistake."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {what}")


class WorkloadNote(UserWarning):
    """What a file does not say; said once when it is read."""


@contextmanager
def notes_on_stderr() -> Iterator[None]:
    """Print each note of what runs inside as a line `note: ...`."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int,
        file: TextIO | None = None, line: str | None = None,
    ) -> None:  # fmt: skip
        print(f"note: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("always", WorkloadNote)
        warnings.showwarning = show
        yield


class CompFileError(AicbError):
    """An AIOB description file cannot be used."""


class ParameterError(AicbError):
    """Parameters break rules; `problems` lists each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
