"""Follows a run on a terminal: its log, and below it all its cases with what runs now and the time that is left."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from common.printable import printable
from run_benchmarks.commands import status
from run_benchmarks.console.language import words
from run_benchmarks.console.progress import clock
from run_benchmarks.console.terminal import CONSOLE
from run_benchmarks.errors import HistoryError
from run_benchmarks.state.journal import Journal, JournalError, JournalState

COLUMNS = ("case", "rounds", "now", "left about")
REFRESH_SECONDS = 1.0


class _Lines:
    """The log's text above the live table, line by line."""

    def __init__(self, console: Console) -> None:
        self._console, self._rest = console, ""

    def write(self, text: str) -> int:
        """Take a piece of the log; returns how many characters."""
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._console.print(Text(printable(line)), soft_wrap=True)
        return len(text)

    def flush(self) -> None:
        """Nothing: whole lines are shown at once."""


def follow(folder: Path, out: TextIO, typical: Callable[[list[str]], Mapping[str, float]]) -> int:
    """Show a run until no controller works on it; on no terminal the log alone.

    Args:
        out: where the log goes.
        typical: seconds of a round by case, as runs of before took.

    Returns:
        the run's exit code, 1 if its controller was killed.

    Raises:
        JournalError: the run has no log.
    """
    if not CONSOLE.is_terminal:
        return status.follow(folder, out)
    try:
        known = typical(list(Journal(folder).read().started.rounds))
    except (JournalError, HistoryError):  # it has just begun, or nothing is known
        known = {}

    def table() -> Group:
        try:
            state = Journal(folder).read()
        except JournalError:
            return Group()
        return Group(_table(state, known, time.time()))

    with Live(get_renderable=table, console=CONSOLE, refresh_per_second=1 / REFRESH_SECONDS, transient=True):
        return status.follow(folder, _Lines(CONSOLE))  # type: ignore[arg-type]


def _table(state: JournalState, typical: Mapping[str, float], now: float) -> Table:
    found = Table(show_edge=False, pad_edge=False)
    for column in COLUMNS:
        found.add_column(words(column))
    for row in rows(state, typical, now):
        found.add_row(*(printable(cell) for cell in row))
    return found


def rows(state: JournalState, typical: Mapping[str, float], now: float) -> list[tuple[str, str, str, str]]:
    """COLUMNS of each case, and a last row of all together: a wave of cases that run side by side takes as long as its
    longest. `typical`: seconds of a round; `now`: epoch seconds.
    """
    found, lefts = [], dict[str, float | None]()
    for case, planned in state.started.rounds.items():
        ends = [end for (name, _), end in state.ended.items() if name == case]
        left = lefts[case] = _left(case, planned - len(ends), state, typical, now)
        time_left = "" if left == 0 else "?" if left is None else clock(left)
        found.append((case, f"{len(ends)}/{planned}", _now(case, planned, state, now), time_left))
    done, all_of_them = len(state.ended), sum(state.started.rounds.values())
    waves = state.started.waves or [[case] for case in lefts]
    whole = sum(max(lefts.get(case) or 0.0 for case in wave) for wave in waves)
    found.append((words("all"), f"{done}/{all_of_them}", "", "?" if None in lefts.values() else clock(whole)))
    return found


def _left(case: str, rounds: int, state: JournalState, typical: Mapping[str, float], now: float) -> float | None:
    """Seconds that the case still takes; None where it has rounds left and nothing tells how long they take."""
    if rounds <= 0:
        return 0.0
    if case not in typical:
        return None
    opened = state.open.get(case)
    spent = 0.0 if opened is None else now - opened.started.time_ms / 1000
    return max(0.0, rounds * typical[case] - min(spent, typical[case]))


def _now(case: str, planned: int, state: JournalState, now: float) -> str:
    if (opened := state.open.get(case)) is not None:
        return words(
            "round {n} runs for {time}" if opened.collecting is None else "round {n} collects for {time}",
            n=opened.started.round,
            time=clock(now - opened.started.time_ms / 1000),
        )
    verdicts = [end.verdict.value for (name, _), end in state.ended.items() if name == case]
    if len(verdicts) < planned:
        return words("waits") if not verdicts else words("{verdict}, waits", verdict=words(verdicts[-1]))
    return ", ".join(words(verdict) for verdict in dict.fromkeys(verdicts))
