"""A process tree that outlives the connection which started it and can be stopped whole: `container` without Docker.

    python -m training.benchmarks.driver.supervise start --state S < {"argv": [...], "environment": {...}, "cwd": "..."}
    python -m training.benchmarks.driver.supervise stop --state S --grace 10
    python -m training.benchmarks.driver.supervise trace --state S

`start` returns once the command runs. A supervisor stays behind as the reaper of everything the command starts (Linux's
child subreaper), collects its output in S/output.log and writes S/exit.json when it ends, having killed what was left.
S/supervisor.json names the supervisor by pid and start time, so that a later `stop` never signals a stranger.
`trace` hands SIGUSR1 to the command, which is asked to write down where it stands.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psutil

PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
POLL_SECONDS = 0.05
KILL_SECONDS = 5.0  # what a supervisor gets beyond the grace to kill the rest of its tree


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value), encoding="utf-8")
    temporary.replace(path)


class Supervisor:
    """Runs one command and owns every process that comes of it."""

    def __init__(self, state: Path, request: dict[str, Any]) -> None:
        self._state = state
        self._request = request
        self._stop_at: float | None = None
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, on_ready: Callable[[], None]) -> None:
        """Run the command to its end, or until a signal, and record the exit code; `on_ready`: it can be found now."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGUSR1, self._on_trace)
        write_json(self._state / "supervisor.json", {"pid": os.getpid(), "start_ticks": start_ticks(os.getpid())})
        on_ready()
        exit_code = self._run_command()
        self._kill_descendants()
        write_json(self._state / "exit.json", {"exit_code": exit_code})

    def _run_command(self) -> int:
        environment = {**os.environ, **self._request["environment"]}
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
        self._child = child
        while child.poll() is None:
            self._reap_orphans(child.pid)
            if self._stop_at is not None:
                self._stop(child)
            time.sleep(POLL_SECONDS)
        return child.returncode if child.returncode >= 0 else 128 - child.returncode

    def _on_stop(self, _signal: int, _frame: FrameType | None) -> None:
        if self._stop_at is None:
            grace = 10.0
            with contextlib.suppress(OSError, ValueError, KeyError):
                grace = float(json.loads((self._state / "stop.json").read_text(encoding="utf-8"))["grace"])
            self._stop_at = time.monotonic() + grace

    def _on_trace(self, _signal: int, _frame: FrameType | None) -> None:
        if self._child is not None:
            self._child.send_signal(signal.SIGUSR1)

    def _stop(self, child: subprocess.Popen[bytes]) -> None:
        assert self._stop_at is not None
        child.terminate()
        while child.poll() is None and time.monotonic() < self._stop_at:
            time.sleep(POLL_SECONDS)
        if child.poll() is None:
            child.kill()

    def _reap_orphans(self, main: int) -> None:
        """Collect adopted processes that ended; the command itself is left for its Popen."""
        for process in psutil.Process().children():
            if process.pid != main:
                with contextlib.suppress(psutil.Error, ChildProcessError):
                    if process.status() == psutil.STATUS_ZOMBIE:
                        os.waitpid(process.pid, os.WNOHANG)

    def _kill_descendants(self) -> None:
        while children := psutil.Process().children(recursive=True):
            for process in children:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(POLL_SECONDS)


def start(state: Path) -> None:
    """Read the request from stdin, leave a supervisor behind, return when it has taken over."""
    request = json.load(sys.stdin)
    state.mkdir(mode=0o750, parents=True)
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        os.close(ready)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        log = os.open(state / "output.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        os.dup2(log, 2)
        Supervisor(state, request).run(lambda: _tell(told))
        os._exit(0)
    os.close(told)
    if os.read(ready, 1) != b"+":
        raise SystemExit("the supervisor did not start")


def _tell(pipe: int) -> None:
    os.write(pipe, b"+")
    os.close(pipe)


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot (proc(5), stat, field 22), whatever the clock is set to."""
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[19])


def find(state: Path) -> psutil.Process | None:
    """The supervisor, where it still runs; another process that got its pid is not it, nor is its zombie.

    In a container whose first process reaps nobody it stays a zombie for good.
    """
    try:
        record = json.loads((state / "supervisor.json").read_text(encoding="utf-8"))
        process = psutil.Process(record["pid"])
        same = start_ticks(process.pid) == record["start_ticks"]
        return process if same and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, KeyError, psutil.Error):
        return None


def stop(state: Path, grace: float) -> None:
    """Stop the supervised tree and wait until it is gone; nothing where it has ended."""
    process = find(state)
    if process is None:
        return
    write_json(state / "stop.json", {"grace": grace})
    with contextlib.suppress(psutil.Error):
        process.terminate()
    limit = time.monotonic() + grace + KILL_SECONDS
    while find(state) is not None:
        if time.monotonic() >= limit:
            with contextlib.suppress(psutil.NoSuchProcess):
                for victim in [*process.children(recursive=True), process]:
                    with contextlib.suppress(psutil.Error):
                        victim.kill()
            return
        time.sleep(POLL_SECONDS)


def trace(state: Path) -> None:
    """Send SIGUSR1 to the supervised command; nothing where it has ended."""
    process = find(state)
    if process is not None:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGUSR1)


def main() -> None:
    """Command line: see the module's docstring."""
    parser = argparse.ArgumentParser(prog="supervise", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("action", choices=("start", "stop", "trace"))
    parser.add_argument("--state", type=Path, required=True, help="folder of the supervised tree; `start` makes it")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL")
    arguments = parser.parse_args()
    if arguments.action == "start":
        start(arguments.state)
    elif arguments.action == "stop":
        stop(arguments.state, arguments.grace)
    else:
        trace(arguments.state)


if __name__ == "__main__":
    main()
