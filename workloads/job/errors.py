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


MOST_MISTAKES = 20
"""Mistakes of a file's rows that are told; of the others it is said how many there are."""


class RowMistakes:
    """Collects the mistakes of a file's rows, so that all of them are reported together."""

    def __init__(self, path: Path) -> None:
        self._path, self._told, self._more = path, list[tuple[int, str]](), 0

    def __bool__(self) -> bool:
        return bool(self._told)

    def add(self, line: int, what: str) -> None:
        """Note the mistake of a line, counted from 1."""
        if len(self._told) < MOST_MISTAKES:
            self._told.append((line, what))
        else:
            self._more += 1

    def check(self) -> None:
        """Go on only without mistakes.

        Raises:
            WorkloadFileError: there are mistakes.
        """
        if self._told:
            (first, what), *others = self._told
            more = [f"{self._path}: {self._more} more lines are wrong"] if self._more else []
            lines = [what, *(f"{self._path}, line {line}: {each}" for line, each in others), *more]
            raise WorkloadFileError(self._path, first, "\n".join(lines))


class CompFileError(AicbError):
    """An AIOB description file cannot be used."""


class ParameterError(AicbError):
    """Parameters break rules."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
