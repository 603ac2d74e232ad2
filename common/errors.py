"""Errors and notes whose text is for the user."""

from collections.abc import Sequence
from typing import NamedTuple


class SimulationError(Exception):
    """The work failed though the input is right; exit code 1."""


class InputNote(UserWarning):
    """A value that an input lacks, and the one that is taken instead."""


class InputMistake(NamedTuple):
    """One mistake in the input: the flag or file and place, the value found there, and what is allowed."""

    where: str
    value: object
    allowed: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value}"
        return f"{self.where}{shown}" + (f": {self.allowed}" if self.allowed else "")


class InputProblems(SimulationError):  # noqa: N818 - it is a list of them
    """All mistakes of an input at once, one line each; exit code 2."""

    def __init__(self, mistakes: Sequence[InputMistake]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = tuple(mistakes)


class MistakeList:
    """Collects mistakes, so that all of them are reported together."""

    def __init__(self) -> None:
        self.mistakes: list[InputMistake] = []

    def add(self, where: str, value: object, allowed: str) -> None:
        """Note one mistake; a value of None is not shown."""
        self.mistakes.append(InputMistake(where, value, allowed))

    def check(self) -> None:
        """Go on only without mistakes.

        Raises:
            InputProblems: there are mistakes.
        """
        if self.mistakes:
            raise InputProblems(self.mistakes)


def input_problem(where: str, value: object, allowed: str) -> InputProblems:
    """A single mistake as an exception."""
    return InputProblems([InputMistake(where, value, allowed)])
