"""Runs a process tree that outlives the connection which started it and can be stopped whole, without Docker.

    SUPERVISE="python -m training.benchmarks.driver.launch.supervise"
    $SUPERVISE start --state S < {"argv": [...], "environment": {...}, "cwd": "..."}
    $SUPERVISE stop --state S --grace 10
    $SUPERVISE trace --state S

`start` returns once the command runs; of several calls, one starts it. A supervisor stays behind as the reaper of all
descendants of the command (Linux's child subreaper), collects their output in S/output.log and, at the end, kills what
is left and writes S/exit.json. It sleeps until a signal wakes it, so that its cost depends neither on time nor on other
processes of the host. S/supervisor.json holds the supervisor's pid and start time, so that a later `stop` never signals
another process. S/alive is a FIFO that only the supervisor holds open for writing: a reader of it waits for the
supervisor's end. `trace` sends SIGUSR1 to the command, which writes its stacks.
"""

import argparse
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common.whole_files import write_text
from training.benchmarks.driver.launch import process_tree

ALIVE = "alive"
STATE_ENV = "CLUSTERDYNO_SUPERVISED_IN"  # of all that the command starts: the state folder
SAYS = "supervise: "  # how lines of its own begin in the output of the command
DEFAULT_GRACE = 10.0
START_SECONDS = 10.0  # for a supervisor that another call starts
KILL_SECONDS = 5.0  # for a supervisor, beyond the grace, to kill the rest of its tree
KILL_AGAIN_SECONDS = 1.0  # a process that was forked while the others were killed, whose parent has not ended yet


class Signals:
    """The signals of a supervisor as an object to wait for; made in the main thread, once.

    until: the reading end of a pipe; its end counts as SIGTERM.
    """

    def __init__(self, until: int | None = None) -> None:
        self._reader, writer = os.pipe()
        self._ends = [] if until is None else [until]
        os.set_blocking(writer, False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, lambda _number, _frame: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def wait(self, seconds: float | None) -> bytes:
        """The numbers of the signals that arrived, at once or within `seconds` (None: without a limit)."""
        ready, _, _ = select.select([self._reader, *self._ends], [], [], seconds)
        arrived = os.read(self._reader, 4096) if self._reader in ready else b""
        if self._ends and self._ends[0] in ready:
            self._ends.clear()
            arrived += bytes([signal.SIGTERM])
        return arrived


class Supervisor:
    """Runs one command and owns all of its descendants."""

    def __init__(self, state: Path, request: dict[str, Any], until: int | None = None) -> None:
        """until: see Signals."""
        self._state = state
        self._request = request
        self._until = until
        self._kill_at: float | None = None  # monotonic; set while the command has its grace to end
        self._stopping = False
        self._status: int | None = None  # of the command once it has ended, in waitpid's form

    def run(self, on_ready: Callable[[], None]) -> None:
        """Run the command to its end or a signal; record the exit code; call `on_ready` once it can be found."""
        process_tree.become_reaper()
        self._signals = Signals(self._until)
        _hold_open(self._state / ALIVE)
        self._record()
        on_ready()
        exit_code = self._run_command()
        self._kill_descendants()
        write_text(self._state / "exit.json", json.dumps({"exit_code": exit_code}))

    def _record(self, command: int | None = None) -> None:
        """Write who supervises, and what, once it runs."""
        own = {"pid": os.getpid(), "start_ticks": process_tree.start_ticks(os.getpid())}
        its = {} if command is None else {"command": command, "command_ticks": process_tree.start_ticks(command)}
        write_text(self._state / "supervisor.json", json.dumps(own | its))

    def _run_command(self) -> int:
        environment = {**os.environ, **self._request["environment"], STATE_ENV: str(self._state.absolute())}
        with (self._state / "output.log").open("ab") as output:
            try:
                child = subprocess.Popen(
                    self._request["argv"],
                    env=environment,
                    cwd=self._request["cwd"],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            except OSError as error:
                output.write(f"cannot be started: {error}\n".encode())
                return 127
        self._record(child.pid)
        while self._status is None:
            seconds = None if self._kill_at is None else max(0.0, self._kill_at - time.monotonic())
            self._take(self._signals.wait(seconds), child.pid)
        child.returncode = code = os.waitstatus_to_exitcode(self._status)
        return code if code >= 0 else 128 - code

    def _take(self, numbers: bytes, command: int) -> None:
        """Act on the signals that arrived. The command is reaped last, here, so that its pid stays valid until then."""
        if signal.SIGUSR1 in numbers:
            os.kill(command, signal.SIGUSR1)
        if signal.SIGTERM in numbers and not self._stopping:
            os.kill(command, signal.SIGTERM)
            self._stopping, self._kill_at = True, time.monotonic() + self._grace()
        elif self._kill_at is not None and time.monotonic() >= self._kill_at:
            os.kill(command, signal.SIGKILL)
            self._kill_at = None
        self._reap(command)

    def _grace(self) -> float:
        try:
            return float(json.loads((self._state / "stop.json").read_text(encoding="utf-8"))["grace"])
        except (OSError, ValueError, KeyError):
            return DEFAULT_GRACE

    def _reap(self, command: int) -> bool:
        """Reap every child that has ended, own or adopted; returns whether any is left."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == command:
                    self._status = ended[1]
        except ChildProcessError:
            return False
        return True

    def _kill_descendants(self) -> None:
        """Kill what is left; a process whose parent is killed becomes our child and wakes us when it ends."""
        if self._reap(0) and not self._stopping and os.WIFSIGNALED(self._status or 0):
            left = len(process_tree.descendants(os.getpid()))
            with (self._state / "output.log").open("a", encoding="utf-8") as output:
                output.write(f"{SAYS}ended {left} processes that its command left when it was killed\n" * (left > 0))
        while self._reap(0):
            process_tree.kill_below(os.getpid())
            self._signals.wait(KILL_AGAIN_SECONDS)


def _hold_open(path: Path) -> None:
    """Make a FIFO and hold its writing end until this process ends; does nothing where the file system has no FIFOs."""
    with contextlib.suppress(OSError):
        os.mkfifo(path, 0o640)
        os.open(path, os.O_RDWR)


def start(state: Path, request: dict[str, Any], tie: tuple[int, int] | None = None) -> int | None:
    """Leave a supervisor behind, and return its pid when it has taken over.

    Starts nothing, and returns None, where another call does or did: whoever asks again had no answer to that one.

    Args:
        tie: the ends of a pipe; the supervisor stops its tree once nobody has the writing end open.
    """
    try:
        state.mkdir(mode=0o750, parents=True)
    except FileExistsError:
        _await(state / "supervisor.json")
        return None
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.close(ready)
        if tie is not None:
            os.close(tie[1])
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        log = os.open(state / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        os.dup2(log, 2)
        Supervisor(state, request, tie and tie[0]).run(lambda: _tell(told))
        os._exit(0)
    os.close(told)
    if os.read(ready, 1) != b"+":
        raise SystemExit("the supervisor did not start")
    os.close(ready)
    return pid


def _await(record: Path) -> None:
    """Wait until a supervisor that another call starts can be found."""
    limit = time.monotonic() + START_SECONDS
    while not record.exists():
        if time.monotonic() > limit:
            raise SystemExit(f"{record.parent} is there, and no supervisor is")
        time.sleep(process_tree.POLL_SECONDS)


def _tell(pipe: int) -> None:
    os.write(pipe, b"+")
    os.close(pipe)


def find(state: Path) -> tuple[int, int] | None:
    """Pid and start (clock ticks since boot) of the running supervisor; None: it ended, whoever has its pid."""
    try:
        record = json.loads((state / "supervisor.json").read_text(encoding="utf-8"))
        pid, ticks = int(record["pid"]), int(record["start_ticks"])
    except (OSError, ValueError, KeyError):
        return None
    return (pid, ticks) if process_tree.is_running(pid, ticks) else None


def stop(state: Path, grace: float) -> None:
    """Stop the supervised tree, with `grace` seconds between SIGTERM and SIGKILL, and wait until it is gone.

    What a killed supervisor left running is killed.
    """
    found = find(state)
    if found is None:
        _end_orphans(state)
        return
    pid, ticks = found
    write_text(state / "stop.json", json.dumps({"grace": grace}))
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    if not process_tree.wait_until_gone(pid, ticks, grace + KILL_SECONDS):
        for victim in [*process_tree.descendants(pid), pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)


def _end_orphans(state: Path) -> None:
    """Kill all that the command of a killed supervisor started, wherever it is in the tree of processes by now."""
    found: set[int] = set()
    limit = time.monotonic() + KILL_SECONDS
    while (victims := _marked(f"{STATE_ENV}={state.absolute()}".encode())) and time.monotonic() < limit:
        found.update(victims)
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        time.sleep(process_tree.POLL_SECONDS)
    if found:
        print(f"{SAYS}ended {len(found)} processes that outlived their supervisor", flush=True)


def _marked(entry: bytes) -> list[int]:
    """Pids of this user's running processes that were started with that entry in their environment."""
    found = []
    for path in process_tree.PROC.iterdir():
        with contextlib.suppress(OSError):
            if path.name.isdecimal() and entry in (path / "environ").read_bytes().split(b"\0"):
                found.append(int(path.name))
    return found


def trace(state: Path) -> None:
    """Send SIGUSR1 to the supervised command; does nothing if it has ended."""
    found = find(state)
    if found is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(found[0], signal.SIGUSR1)


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(prog="supervise", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("start", "stop", "trace"))
    parser.add_argument("--state", type=Path, required=True, help="folder of the supervised tree; `start` makes it")
    parser.add_argument("--grace", type=float, default=DEFAULT_GRACE, help="seconds between SIGTERM and SIGKILL")
    arguments = parser.parse_args()
    if arguments.action == "start":
        start(arguments.state, json.load(sys.stdin))
    elif arguments.action == "stop":
        stop(arguments.state, arguments.grace)
    else:
        trace(arguments.state)


if __name__ == "__main__":
    main()
