"""Defines the exceptions whose text is for the user."""

from pathlib import Path

from common.errors import InputProblems, stated


class AicbError(InputProblems):
    """Root of the package's errors: what a user has to change; each line of the message is a mistake."""

    def __init__(self, text: str) -> None:
        super().__init__(stated(text.splitlines()))


class WorkloadFileError(AicbError):
    """A workload file cannot be read; the message names file, line and mistake."""

    def __init__(self, path: Path, line: int | None, what: str) -> None:
        super().__init__(f"{path}{'' if line is None else f', line {line}'}: {what}")


class CompFileError(AicbError):
    """An AIOB description file cannot be used."""


class ParameterError(AicbError):
    """Parameters break rules."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
