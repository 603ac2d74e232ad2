"""Exceptions whose text is for the user."""

from pathlib import Path


class AicbError(Exception):
    """Root of the package's errors."""


class WorkloadFileError(AicbError):
    """A workload file that cannot be read; says file, line and what is wrong."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {what}")


class CompFileError(AicbError):
    """An AIOB description file that cannot be used."""


class ParameterError(AicbError):
    """Parameters that break rules; `problems` lists each."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
