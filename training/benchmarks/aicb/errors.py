"""Exceptions whose text is for the user."""

from pathlib import Path


class AicbError(Exception):
    """Root of the package's errors."""


class WorkloadFileError(AicbError):
    """A workload file cannot be read; the message names file, line and mistake."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {what}")


class CompFileError(AicbError):
    """An AIOB description file cannot be used."""


class ParameterError(AicbError):
    """Parameters break rules; `problems` lists each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
