"""Asks the controller of a run to end it, and waits for that."""

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import TextIO

from run_benchmarks.commands.status import follow_log
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.language import words
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS
from run_benchmarks.state.journal import Journal, JournalError
from run_benchmarks.state.run_lock import LOCK_FILE, Controller, controller_of, is_controlled
from training.benchmarks.driver.launch.process_tree import is_running

NOTE_SECONDS = 5.0


def stop(folder: Path, out: TextIO, *, at_once: bool = False) -> int:
    """End the run as SIGTERM does, and show its log meanwhile; `at_once`: immediately, as a second Ctrl-C does, without
    cleaning up.

    A controller that was already told to end is only waited for: a second signal would end it immediately.

    Returns:
        0 once the run has ended cleanly, 1 if its controller exited otherwise.

    Raises:
        JournalError: no controller works on the run, or it cannot be identified from here.
    """
    controller = _controller(folder)
    begin = _log_bytes(folder)  # before the signal: what it brings about may be logged at once
    if controller.stopping and not at_once:
        said = words("process {pid} is ending it already ({how})", pid=controller.pid, how=controller.stopping)
        print(f"{folder.name}: {said}", file=out)
    else:
        said = words("process {pid} is asked to end it", pid=controller.pid)
        print(f"{folder.name}: {said}", file=out, flush=True)
        _tell(folder, controller, twice=at_once and not controller.stopping)
    follow_log(folder, out, begin=begin)
    return _outcome(folder, out)


def _log_bytes(folder: Path) -> int:
    try:
        return (folder / "run.log").stat().st_size
    except OSError:
        return 0  # who follows it says that there is none


def _controller(folder: Path) -> Controller:
    """The controller that works on the run, on this head node.

    Raises:
        JournalError: no controller works on the run, or it cannot be identified from here.
    """
    if not is_controlled(folder):
        raise JournalError(f"{folder}: no controller works on this run{_how_it_stands(folder)}")
    controller = controller_of(folder)
    if controller is None:
        raise JournalError(f"{folder}: {LOCK_FILE} is held by an unknown process: find it and end it with kill -TERM")
    if not controller.is_here:
        raise JournalError(
            f"{folder}: its controller is process {controller.pid} on the head node {controller.host}: stop it there"
        )
    return controller


def _how_it_stands(folder: Path) -> str:
    past = controller_of(folder)
    ways = f"`{_command('resume', folder)}` continues it, `{_command('clean', folder)}` removes what it left"
    if past is not None and not past.is_here:
        return (
            f" that can be seen from here; it was begun on the head node {past.host} (process {past.pid}): look there. "
            f"If that head node is lost: {ways}"
        )
    with contextlib.suppress(JournalError):
        ended = Journal(folder).read().run_ended
        if ended is not None:
            return f": it has ended: {ended.verdict}"
    return f": it was killed. {ways}"


def _command(word: str, folder: Path) -> str:
    return own_command(word, run_word(folder))


def _tell(folder: Path, controller: Controller, *, twice: bool) -> None:
    """Send SIGTERM to exactly that process, and again once it has noted the first.

    Raises:
        JournalError: the process does not belong to this user.
    """
    try:
        _send(folder, controller)
        if twice:
            _wait_for_note(folder)
            _send(folder, controller)
    except ProcessLookupError:
        pass  # it has ended meanwhile
    except PermissionError as error:
        raise JournalError(f"{folder}: its controller, process {controller.pid}, is another user's") from error


def _wait_for_note(folder: Path) -> None:
    """Wait until the first signal is noted: two signals at once would arrive as one."""
    limit = time.monotonic() + NOTE_SECONDS
    while time.monotonic() < limit and is_controlled(folder):
        controller = controller_of(folder)
        if controller is not None and controller.stopping:
            return
        time.sleep(NOTE_SECONDS / 100)


def _send(folder: Path, controller: Controller) -> None:
    """Send a signal through a pidfd that is opened before the process is checked, so that a reused pid is never hit."""
    try:
        descriptor = os.pidfd_open(controller.pid)
    except ProcessLookupError:
        raise
    except OSError:  # a kernel before 5.3
        descriptor = -1
    try:
        if not is_running(controller.pid, controller.start_ticks) or not is_controlled(folder):
            raise ProcessLookupError
        if descriptor >= 0:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        else:
            os.kill(controller.pid, signal.SIGTERM)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _outcome(folder: Path, out: TextIO) -> int:
    if controller_of(folder) is None:  # removed at a clean end
        print(f"{folder.name}: ended", file=out)
        return EXIT_PASS
    print(
        f"{folder.name}: its controller exited immediately; remove what it left: `{_command('clean', folder)}`",
        file=out,
    )
    return EXIT_FAIL
