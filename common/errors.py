"""Errors and notes whose text is for the user: mistakes in an input, in any file or flag, are told all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import NamedTuple, TypeVar, cast

WIDTH = 110
SHOWN_CHARACTERS = 300
Found = TypeVar("Found")


class SimulationError(Exception):
    """The work failed though the input is right; exit code 1."""


class InputNote(UserWarning):
    """A value that an input lacks, and the one that is taken instead."""


class Absent(Enum):
    """The value of a missing key."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


class Problem(NamedTuple):
    """One mistake in a user's input: where it is, what was found and what is allowed there.

    `file` may also be a flag, or a place in a file; `key` is "" where the whole of it is meant, `value` ABSENT where
    there is none. `known` are all names of which `key` should have been one, and `known_as` says in words what they
    are: they are listed once for all problems.
    """

    file: str
    key: str
    value: object
    allowed: str
    known: tuple[str, ...] = ()
    known_as: str = ""

    def __str__(self) -> str:
        """One line: place, key and value, what is wrong or allowed, the nearest known name."""
        place = f"{self.file}: {self.key}" if self.key else self.file
        shown = "" if self.value is ABSENT else f" = {self.value!r}" if self.key else f" {self.value!r}"
        near = closest(self.key.rpartition(".")[2], self.known) if self.known else None
        hint = f"; did you mean {near!r}?" if near else ""
        return f"{place}{shown}" + (f": {self.allowed}" if self.allowed else "") + hint


class InputProblems(SimulationError):  # noqa: N818 - it is a list of them
    """All mistakes of an input at once, one line each; exit code 2."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(listed(self.problems))


class MistakeList:
    """Collects mistakes, so that all of them are reported together."""

    def __init__(self) -> None:
        self.mistakes: list[Problem] = []

    def add(self, where: str, value: object, allowed: str) -> None:
        """Note one mistake; a value of None is not shown."""
        self.mistakes.append(_problem(where, value, allowed))

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the mistakes that end the block; what follows it goes on."""
        try:
            yield
        except InputProblems as found:
            self.mistakes = unique([*self.mistakes, *found.problems])

    def result(self, read: Callable[[], Found]) -> Found:
        """The result of `read`. Mistakes that end it are noted, and it is None, which `check` keeps from use."""
        found = cast(Found, None)
        with self.noted():
            found = read()
        return found

    def check(self) -> None:
        """Go on only without mistakes.

        Raises:
            InputProblems: there are mistakes.
        """
        if self.mistakes:
            raise InputProblems(self.mistakes)


def input_problem(where: str, value: object, allowed: str) -> InputProblems:
    """A single mistake as an exception."""
    return InputProblems([_problem(where, value, allowed)])


def stated(lines: Iterable[str]) -> list[Problem]:
    """Mistakes that are sentences already."""
    return [Problem(line, "", ABSENT, "") for line in lines]


def in_brief(error: BaseException) -> str:
    """Type and message of an exception, cut to SHOWN_CHARACTERS."""
    return f"{type(error).__name__}: {str(error)[:SHOWN_CHARACTERS]}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to `name`, ignoring case; None if none is near."""
    import difflib  # only a mistake needs it

    folded = {candidate.lower(): candidate for candidate in sorted(known)}
    match = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[match[0]] if match else None


def unique(problems: Iterable[Problem]) -> list[Problem]:
    """The problems without duplicates."""
    return list({str(problem): problem for problem in reversed(list(problems))}.values())[::-1]


def listed(problems: Sequence[Problem]) -> str:
    """All problems as text: one line each, then each list of allowed names once."""
    return "\n".join([*dict.fromkeys(map(str, problems)), *allowed_names(problems)])


def allowed_names(problems: Iterable[Problem]) -> list[str]:
    """The names of which the keys of problems should have been one, each list once, as lines of at most WIDTH."""
    import textwrap  # only a mistake needs it

    groups = {(problem.known_as, problem.known): None for problem in problems if problem.known}
    listed_names = (f"{known_as}: {', '.join(known)}" for known_as, known in groups)
    return [
        line
        for names in listed_names
        for line in textwrap.wrap(names, WIDTH, subsequent_indent="  ", break_long_words=False)
    ]


def _problem(where: str, value: object, allowed: str) -> Problem:
    return Problem(where if value is None else f"{where} {value}", "", ABSENT, allowed)
