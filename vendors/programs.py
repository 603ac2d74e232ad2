"""Defines a program that tests devices: how it is called, and what is read in its output, which may be anything."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Scope = Literal["host", "loopback", "pairs", "ring"]
MAX_PARTS, MAX_NAME, MAX_WHY, MAX_LINE = 512, 80, 300, 2000
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|nan|inf)", re.IGNORECASE | re.ASCII)
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class NotRunError(Exception):
    """A tool gives no result here; `is_missing`: it is not there, and nothing was tried."""

    def __init__(self, why: str, *, is_missing: bool = False) -> None:
        super().__init__(why)
        self.is_missing = is_missing


class UnreadableError(ValueError):
    """An output without any result; the message quotes its last line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The results of a tool on one host. figures: by part of the host, in the tool's unit. failed: why, by part.
    passed: how many verdicts were good. silent: why there is no figure, by part that others may have one of.
    told: verdicts that are neither, as of a test that is skipped, by test and verdict: what each says.
    """

    figures: dict[str, float] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    silent: dict[str, str] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A tool. command: its words; read: the results in what it printed.

    scope: once on a host; on each RDMA device against itself; on each between two hosts (a server without an address, a
    client with one); or on all of all hosts at once, each to the next host of a ring. unit, better: of its figures.
    usual: seconds that a call takes, of each level that its words name (a pattern; the number in its group, if it has
    one), else those of "". seconds: until a call is ended at the earliest. folders: where it may be beside PATH.
    model: what `{model}` in its words and its folders stands for on this host, or fails with NotRunError.
    source: the document of command, output and levels.
    """

    command: tuple[str, ...]
    read: Callable[[str], Answer]
    scope: Scope = "host"
    unit: str = ""
    better: Literal["higher", "lower"] = "higher"
    usual: Mapping[str, float]
    seconds: float
    folders: tuple[str, ...] = ()
    model: Callable[[], str] | None = None
    source: str

    def usual_seconds(self, words: Sequence[str]) -> float:
        """The seconds that a call with these words usually takes; several levels take their sum."""
        matches = {level: re.search(level, " ".join(words)) for level in self.usual if level}
        found = [float(match[1]) if match.re.groups else self.usual[level] for level, match in matches.items() if match]
        return sum(found) if found else self.usual[""]

    def most_seconds(self, words: Sequence[str]) -> float:
        """The seconds after which a call with these words is ended: a long level has twice its usual time."""
        return max(self.seconds, 2 * self.usual_seconds(words))


def patterns(text: str, pattern: re.Pattern[str], good: str = "", idle: str = "") -> Answer:
    """The results of a tool that prints text, one for each match.

    The groups of `pattern`: `part`, and `value` (the lowest of a part counts) or `verdict` with `why`. Verdicts that
    `good` has (blank-separated) are passed, those of `idle` tell nothing, all others are failures.

    Raises:
        UnreadableError: nothing matches, or all tells nothing.
    """
    figures: dict[str, float] = {}
    failed: dict[str, str] = {}
    silent: dict[str, str] = {}
    passed = 0
    for match in pattern.finditer("\n".join(lines(text))):
        groups = match.groupdict()
        part, verdict = (groups.get("part") or "").strip(" |:-"), groups.get("verdict")
        measure(figures, silent, part, groups.get("value") or "")
        passed += verdict in good.split()
        if verdict is not None and verdict not in (*good.split(), *idle.split()):
            say(failed, part, " ".join((groups.get("why") or "").split()) or verdict)
    if not figures and not failed and not passed:
        raise unreadable(text)
    return Answer(figures=but(silent, figures), failed=failed, passed=passed, silent=silent)


def lines(text: str) -> Iterator[str]:
    """The lines without colours, each up to a length that a pattern is soon done with."""
    for line in COLOURS.sub("", text).splitlines():
        yield line[:MAX_LINE]


def number(word: str) -> float | None:
    """A figure above 0 in the program's unit; None for anything else, such as N/A."""
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 < value < 1e15 else None


def measure(figures: dict[str, float], silent: dict[str, str], part: str, word: str) -> None:
    """Keep a part's figure in the program's unit, or that it has none where 0.00, nan or such is printed."""
    value = number(word)
    if value is not None:
        keep(figures, part, value)
    elif NUMBER.fullmatch(word):
        say(silent, part, f"it prints {word}")


def but(silent: Mapping[str, str], figures: Mapping[str, float]) -> dict[str, float]:
    """The figures, in the program's unit, of the parts that are not silent."""
    return {part: value for part, value in figures.items() if part not in silent}


def keep(found: dict[str, float], part: str, value: float) -> None:
    """Add a figure in the program's unit: of a part the lowest, and no more parts than an answer may have."""
    name = part[:MAX_NAME]
    if name in found or len(found) < MAX_PARTS:
        found[name] = min(value, found.get(name, value))


def say(found: dict[str, str], part: str, why: str) -> None:
    """Add the first failure of a part, with no more parts than an answer may have."""
    name = part[:MAX_NAME]
    if name not in found and len(found) < MAX_PARTS:
        found[name] = why[:MAX_WHY]


def unreadable(text: str) -> UnreadableError:
    """The error of an output without a result."""
    said = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "nothing")
    return UnreadableError(f"printed no result: {said[:MAX_WHY]}")
