"""Defines mistakes in a user's input, in any file: each is one readable line, and one ConfigError has all of them."""

from __future__ import annotations

import difflib
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

WIDTH = 110
SHOWN_CHARACTERS = 300


class Absent(Enum):
    """The value of a missing key."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


@dataclass(frozen=True)
class Problem:
    """One mistake in a user's input: where it is, what was found and what is allowed there.

    `key` is "" where a whole file is meant, `value` ABSENT where there is none. `known` are all names of which `key`
    should have been one, and `known_as` says in words what they are: they are listed once for all problems.
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
        return f"{place}{shown}: {self.allowed}{hint}"


class ConfigError(Exception):
    """All mistakes in the files that a user edits and in the changes of the command line."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__(listed(self.problems))


def in_brief(error: BaseException) -> str:
    """Type and message of an exception, cut to SHOWN_CHARACTERS."""
    return f"{type(error).__name__}: {str(error)[:SHOWN_CHARACTERS]}"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to `name`, ignoring case; None if none is near."""
    folded = {candidate.lower(): candidate for candidate in sorted(known)}
    match = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return folded[match[0]] if match else None


def unique(problems: Iterable[Problem]) -> list[Problem]:
    """The problems without duplicates."""
    return list({str(problem): problem for problem in reversed(list(problems))}.values())[::-1]


def listed(problems: Sequence[Problem]) -> str:
    """All problems as text: one line each, then each list of allowed names once."""
    lines = list(dict.fromkeys(map(str, problems)))
    groups = {(problem.known_as, problem.known): None for problem in problems if problem.known}
    for known_as, known in groups:
        lines += textwrap.wrap(f"{known_as}: {', '.join(known)}", WIDTH, subsequent_indent="  ", break_long_words=False)
    return "\n".join(lines)
