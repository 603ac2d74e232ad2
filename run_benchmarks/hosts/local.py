"""The head node as a host: without ssh and, for the process runtime, without Docker."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from docker import APIClient
from docker.utils import kwargs_from_env

from run_benchmarks.errors import CommandError, DeadlineError
from run_benchmarks.hosts.base import POLL_SECONDS, CancelledError, Capture, Completed, ConnectionAdvice
from run_benchmarks.hosts.docker_client import Check, LocalAPIClient
from run_benchmarks.hosts.host_engine import HostEngine

CHUNK = 1 << 18
FEEDER_SECONDS = 1.0  # another process that inherited stdin may never read it


class LocalHost:
    """Runs commands as child processes, each in a session of its own so that a deadline ends the whole group."""

    needs_docker_client = False  # its engine's socket is here

    def __init__(
        self, name: str, *, end_seconds: float = 0.0, environment: Callable[[], dict[str, str]] | None = None
    ) -> None:
        """`end_seconds`: for a command that is ended early, from SIGTERM on; `environment` makes that of commands."""
        self.name, self._end_seconds, self._environment = name, end_seconds, environment
        self.address = "127.0.0.1"
        self._engine = HostEngine(name, _client)

    def connect(self) -> None:
        """Does nothing: no connection is needed."""

    def reconnect(self) -> None:
        """Close the Docker client; a new one is made when needed."""
        self.close()

    def close(self) -> None:
        """Close the Docker client, if there is one."""
        self._engine.close()

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: IO[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        check: bool = True,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Run a command as a process of this machine, killed with its process group after `deadline` seconds."""
        started = time.monotonic()
        out, err = Capture(), Capture()
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment() if self._environment else None,
                start_new_session=True,
            )
        except OSError as error:
            if check:
                raise CommandError(self.name, argv, 127, str(error)) from error
            return Completed(argv=tuple(argv), exit_code=127, stdout="", stderr=str(error), seconds=0.0)
        feeder = _feed(process, stdin)
        try:
            _drain(process, on_stdout or out.add, err.add, started + deadline, cancel)
        except CancelledError:
            check = False
        except TimeoutError as error:
            raise DeadlineError(self.name, argv, deadline, out.text() + err.text()) from error
        finally:
            _end(process, self._end_seconds)
            if feeder is not None:
                feeder.join(FEEDER_SECONDS)
        completed = Completed(
            argv=tuple(argv),
            exit_code=process.returncode if process.returncode >= 0 else 128 - process.returncode,
            stdout=out.text(),
            stderr=err.text(),
            seconds=time.monotonic() - started,
        )
        if check:
            completed.check(self.name)
        return completed

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """None: there is no connection to advise on."""
        return ()

    def docker(self) -> APIClient:
        """A client of the engine that DOCKER_HOST names, else of the local socket's."""
        return self._engine.client()

    def open_docker(self, timeout: int, check: Check | None = None) -> APIClient:
        """Another client of the engine, whose calls may take `timeout` seconds; the caller closes it."""
        return self._engine.open(timeout, check)


def _client(timeout: int, check: Check | None) -> APIClient:
    return LocalAPIClient(check=check, version="auto", timeout=timeout, **kwargs_from_env())


def _feed(process: subprocess.Popen[bytes], stdin: IO[bytes] | None) -> threading.Thread | None:
    if stdin is None:
        return None

    def copy() -> None:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:
            while chunk := stdin.read(CHUNK):
                pipe.write(chunk)

    thread = threading.Thread(target=copy, name="local-stdin", daemon=True)
    thread.start()
    return thread


def _drain(
    process: subprocess.Popen[bytes],
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    deadline: float,
    cancel: threading.Event | None,
) -> None:
    """Read both pipes until they are closed and the process ended; TimeoutError at `deadline` (monotonic s)."""
    assert process.stdout is not None and process.stderr is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, on_stdout)
        selector.register(process.stderr, selectors.EVENT_READ, on_stderr)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            if cancel is not None:
                remaining = min(remaining, POLL_SECONDS)
                if cancel.is_set():
                    raise CancelledError
            for key, _ in selector.select(remaining):
                chunk = os.read(key.fd, CHUNK)
                if chunk:
                    key.data(chunk)
                else:
                    selector.unregister(key.fileobj)
    try:
        process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Kill the group of a process that was not waited for, `seconds` after a SIGTERM, reap it, and close the pipes.

    The process may have ended and left others that hold its pipes; until it is reaped, its group number stays reserved.
    """
    if process.returncode is None:
        if seconds > 0:
            process.terminate()
            until = time.monotonic() + seconds
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                if time.monotonic() >= until:
                    break
                time.sleep(POLL_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
