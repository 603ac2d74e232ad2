"""Reports the state of the runs in a result folder from their journals and locks, without asking a host."""

import time
from collections.abc import Iterable, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from common.printable import printable
from common.reading import open_regular
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.language import words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.state.exit_codes import EXIT_FAIL
from run_benchmarks.state.journal import Journal, JournalError, JournalState, OpenRound
from run_benchmarks.state.run_lock import is_controlled

COLUMNS = ("run", "state", "rounds ended", "now", "begun")
KILLED, NO_JOURNAL = "killed", "no journal"
FOLLOW_SECONDS = 0.3


def states(folders: Iterable[Path]) -> list[dict[str, object]]:
    """The state of each run for --json, in the names of its journal; times in epoch ms."""
    return [state_of(folder) for folder in folders if folder.is_dir()]


def state_of(folder: Path) -> dict[str, object]:
    """The state of one run, also of one whose folder is gone."""
    try:
        state = Journal(folder).read()
    except JournalError:
        return {"run_id": folder.name, "state": NO_JOURNAL}
    return {
        "run_id": folder.name,
        "state": _state(folder, state),
        "begun_ms": state.begun_ms,
        "rounds": state.started.rounds,
        "ended": list(state.ended.values()),
        "open": [each.started for each in state.open.values()],
        "owed": _owing(state),
        "job": state.job,
        "run_ended": state.run_ended,
    }


def _state(folder: Path, state: JournalState) -> str:
    """One word: running, waits (for a job of Slurm), ended, submitted (to Slurm, which begins it) or killed."""
    is_queued = state.is_queued and state.job is not None
    if is_controlled(folder):
        return "waits" if is_queued else "running"
    if state.run_ended is not None:
        return "ended"
    return "submitted" if is_queued and state.started.pid == 0 else KILLED


def show(folders: Sequence[Path]) -> None:
    """Print a table with a row for each run, and the commands that go on with those that need one."""
    print_table("", COLUMNS, rows(folders))
    for line in ways_on(folders):
        print(line)


def rows(folders: Iterable[Path]) -> list[tuple[str, ...]]:
    """A row of COLUMNS per run; folders without a journal are marked."""
    return [_row(folder) for folder in folders if folder.is_dir()]


def _row(folder: Path) -> tuple[str, ...]:
    try:
        state = Journal(folder).read()
    except JournalError:
        return (folder.name, words(NO_JOURNAL), "", "", "")
    ended = sum(1 for _ in state.ended)
    planned = sum(state.started.rounds.values())
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(state.begun_ms / 1000))
    return (folder.name, _word(folder, state), f"{ended}/{planned}", _now(state), begun)


def _word(folder: Path, state: JournalState) -> str:
    now = _state(folder, state)
    if now == "waits" and state.job is not None:
        return words("waits for Slurm's job {job} (process {pid})", job=state.job.id, pid=state.started.pid)
    if now == "running":
        return words("running (process {pid})", pid=state.started.pid)
    if state.run_ended is not None:
        opened = "".join(
            words(", {case} round {n} is open", case=each.started.case, n=each.started.round)
            for each in state.open.values()
        )
        return words("ended: {verdict}", verdict=words(state.run_ended.verdict.value)) + (opened or _owed(state))
    if now == "submitted" and state.job is not None:
        return words("submitted: Slurm's job {job} begins it", job=state.job.id)
    return f"{words(KILLED)}{_owed(state)}"


def _owed(state: JournalState) -> str:
    """The files that are still on hosts alone, if any."""
    hosts = _owing(state)
    return words(", collection owed by {hosts}", hosts=", ".join(hosts)) if hosts else ""


def _owing(state: JournalState) -> list[str]:
    """The hosts whose files are not collected yet."""
    return sorted({host for owed in state.owed.values() for host in owed.hosts})


def ways_on(folders: Iterable[Path]) -> list[str]:
    """For each run whose controller was killed, or which is not collected, the commands to go on with it."""
    lines = []
    for folder in folders:
        try:
            state = Journal(folder).read()
        except JournalError:
            continue
        word = _word(folder, state)
        collect, resume, clean = (own_command(word, run_word(folder)) for word in ("collect", "resume", "clean"))
        name = folder.name
        if word.startswith(words(KILLED)):
            lines += [words("{run} was killed. Go on with it:", run=name), f"  {resume}"]
            lines += [words("or only collect what its hosts still have:"), f"  {collect}"] if state.owed else []
            lines += [words("or remove what it left:"), f"  {clean}"]
        elif state.run_ended is not None and state.open:
            lines += [words("{run} has an open round. Go on with it:", run=name), f"  {resume}"]
        elif state.run_ended is not None and state.owed:
            lines += [words("{run} is not collected. Collect it:", run=name), f"  {collect}"]
            lines += [words("or remove it:"), f"  {clean}"]
    return lines


def _now(state: JournalState) -> str:
    return "" if state.run_ended is not None else "; ".join(map(_since, state.open.values()))


def _since(each: OpenRound) -> str:
    seconds = max(0.0, time.time() - each.started.time_ms / 1000)
    again = words(", attempt {n}", n=each.started.attempt) if each.started.attempt > 1 else ""
    collecting = words(", collecting") if each.collecting else ""
    begun = words("{case} round {n}", case=each.started.case, n=each.started.round)
    return f"{begun}{again}{words(', for {s} s', s=f'{seconds:.0f}')}{collecting}"


def follow(folder: Path, out: TextIO) -> int:
    """Copy run.log to `out` until no controller works on the run any more.

    Returns:
        the run's exit code, 1 if its controller was killed.

    Raises:
        JournalError: the run has no log.
    """
    follow_log(folder, out)
    return _exit_code(folder)


def follow_log(folder: Path, out: TextIO, *, begin: int = 0) -> None:
    """As `follow`, without the exit code; the first `begin` bytes of the log are skipped.

    Raises:
        JournalError: the run has no log.
    """
    log = folder / "run.log"
    try:
        with TextIOWrapper(open_regular(log), encoding="utf-8", errors="replace") as file:
            file.buffer.seek(begin)
            going_on = True
            while going_on:
                going_on = is_controlled(folder)
                if not going_on:
                    time.sleep(FOLLOW_SECONDS)  # a starting controller has its log before its lock
                    going_on = is_controlled(folder)
                out.write(printable(file.read()))  # the log may be somebody else's
                out.flush()
                time.sleep(FOLLOW_SECONDS)
    except OSError as error:
        raise JournalError(f"{log}: no log of a run ({error.strerror})") from error


def _exit_code(folder: Path) -> int:
    ended = Journal(folder).read().run_ended
    return EXIT_FAIL if ended is None else ended.exit_code
