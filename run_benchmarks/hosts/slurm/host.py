"""A node of an allocation: every command is a step of its job, sent by srun from here, without ssh and Docker.

srun's exit code is no verdict: it is 0 after a node's failure if the tasks trapped SIGTERM, and not 0 for reasons of
its own. So the command runs under a shell that reports its exit code on stderr; without that report the step was lost,
and the job's state says why.
"""

import contextlib
import math
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

from docker import APIClient

from run_benchmarks.errors import (
    ClusterDynoError,
    ConnectError,
    DeadlineError,
    LinkLostError,
    TaskError,
    shown,
    tail,
)
from run_benchmarks.hosts.base import CANCELLED, Capture, Completed, ConnectionAdvice
from run_benchmarks.hosts.docker_client import Check
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.login_shell import BEGIN, OWN_CLOCK_SECONDS, Beginning
from run_benchmarks.hosts.outages import OutOfReachError
from run_benchmarks.hosts.slurm.absence import outlast
from run_benchmarks.hosts.slurm.allocation import Allocation, ping
from run_benchmarks.hosts.slurm.client import SlurmError, environment, says_away
from run_benchmarks.hosts.slurm.script import Surroundings, step_argv

# Arguments: seconds after which the node itself kills the command, then the command.
WRAPPER = (
    f"echo {BEGIN.decode().strip()}; echo __clusterdyno_begun >&2"
    '; seconds=$1; shift; timeout -s KILL "$seconds" "$@"; echo "__clusterdyno_ended $?" >&2; exit 0'
)
BEGUN, ENDED = "__clusterdyno_begun\n", re.compile(r"__clusterdyno_ended (\d{1,3})\n")
CONNECT_SECONDS = 60.0  # a step that waits for slurmctld or slurmd
STEP_END_SECONDS = 3.0  # for an srun that was told to end its step
SAID_LINES, MAX_SAID_BYTES = 5, 1 << 16
READY, MAX_LINE = b"ready", 1 << 12


class JobOverError(OutOfReachError):
    """The job that had the node is over; no step can be started there any more."""


class SlurmHost:
    """One node of an allocation. See Host for the meaning of the methods."""

    needs_docker_client = False

    def __init__(self, name: str, allocation: Allocation, inside: Surroundings | None = None) -> None:
        """`inside`: what commands run in; None: what the allocation says."""
        self.name, self._allocation, self._surroundings = name, allocation, inside
        self._local = LocalHost(name, end_seconds=STEP_END_SECONDS, environment=environment)
        self._is_connected = False

    @property
    def _inside(self) -> Surroundings:
        return self._allocation.surroundings if self._surroundings is None else self._surroundings

    @property
    def address(self) -> str:
        """Its address as this machine resolves its name; the name if it does not."""
        try:
            return socket.gethostbyname(self.name)
        except OSError:
            return self.name

    def connect(self) -> None:
        """Run a first step there, again while slurmctld is away, for as long as the allocation says.

        Raises:
            ConnectError: no step can be started.
            JobOverError: the job is over.
        """
        if not self._is_connected:
            outlast(self.reconnect, self._allocation.patience, _is_absence)

    def reconnect(self) -> None:
        """Run a step there.

        Raises:
            ConnectError: no step can be started.
            JobOverError: the job is over.
        """
        folders = self._inside.folders
        try:
            if folders and not self._is_connected:
                bare = SlurmHost(self.name, self._allocation, Surroundings())
                bare.run(["mkdir", "-p", *folders], deadline=CONNECT_SECONDS)
            self.run(["true"], deadline=CONNECT_SECONDS)
        except JobOverError:
            raise
        except (LinkLostError, DeadlineError) as error:
            raise ConnectError(self.name, error.detail) from error
        self._is_connected = True

    def close(self) -> None:
        """Does nothing: no connection is kept."""

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
        """Run a command as a step of the host's job, killed after `deadline` seconds."""
        out, inside = Capture(), self._inside
        begun = Beginning(on_stdout or out.add)
        own_seconds = str(math.ceil(deadline) + OWN_CLOCK_SECONDS)
        step = step_argv(
            self._allocation.number,
            self.name,
            [*inside.prefix, "sh", "-c", WRAPPER, "sh", own_seconds, *argv],
            options=inside.options if stdin is not None else (*inside.options, "--input=none"),
        )
        try:
            done = self._local.run(
                step, deadline=deadline, stdin=stdin, on_stdout=begun.add, check=False, cancel=cancel
            )
        except DeadlineError as error:
            self._check_job(error)
            if not begun.seen:
                raise LinkLostError(self.name, f"Slurm began no step within {deadline:g} s", error.output) from error
            raise DeadlineError(self.name, argv, deadline, out.text() + error.output) from error
        exit_code, said = reported(done)
        is_cancelled = cancel is not None and cancel.is_set()
        if is_cancelled:
            exit_code = CANCELLED
        if exit_code is None:
            self._check_job(None)
            why = tail(done.stderr, SAID_LINES) or f"srun ended with {done.exit_code}"
            raise LinkLostError(self.name, f"the step of `{shown(argv)}` was lost: {why}", done.stderr)
        completed = Completed(
            argv=tuple(argv), exit_code=exit_code, stdout=out.text(), stderr=said, seconds=done.seconds
        )
        if check and not is_cancelled:
            completed.check(self.name)
        return completed

    def check_job(self, step: str) -> None:
        """Check that the job still has the node, by a query that begins now, or as soon as one may, and its step.

        Raises:
            JobOverError: it has not the node.
            TaskError: somebody, or Slurm, ended the step of that name.
        """
        self._allocation.let_a_query_pass()
        self._check_job(None)
        if end := self._allocation.step_end(step):
            raise TaskError(self.name, end)

    def _check_job(self, cause: Exception | None) -> None:
        if over := self._allocation.over(self.name):
            raise JobOverError(self.name, over) from cause

    def hold_step(self, argv: Sequence[str], stdin: bytes, *, seconds: float, options: Sequence[str] = ()) -> None:
        """Start a step with all processors of the job on this node, which outlives this call and this process.

        Returns once it has written the line "ready".

        Raises:
            LinkLostError: it did not within `seconds`.
        """
        try:
            cpus = self._allocation.cpus(self.name)
        except SlurmError as error:
            raise LinkLostError(self.name, str(error)) from error
        inside = self._inside
        words, options = [*inside.prefix, *argv], (*inside.options, *options)
        step = step_argv(self._allocation.number, self.name, words, cpus=cpus, options=options)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as said:
            given.write(stdin)
            given.seek(0)
            process = subprocess.Popen(
                step, stdin=given, stdout=subprocess.PIPE, stderr=said, env=environment(), start_new_session=True
            )
            assert process.stdout is not None
            with process.stdout as stdout:
                watchdog = threading.Timer(seconds, _terminate, [process])
                watchdog.daemon = True
                watchdog.start()
                line = b""
                while (line := stdout.readline(MAX_LINE)) and line.strip() != READY:
                    pass  # of a login shell's start files
                watchdog.cancel()
            if line.strip() == READY:
                threading.Thread(target=process.wait, name=f"step-{self.name}", daemon=True).start()
                return
            _terminate(process)
            self._check_job(None)
            said.seek(0)
            why = tail(said.read(MAX_SAID_BYTES).decode(errors="replace"), SAID_LINES)
            raise LinkLostError(self.name, f"its step did not begin within {seconds:g} s: {why or 'it said nothing'}")

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """None: there is no connection to advise on."""
        return ()

    def docker(self) -> APIClient:
        """Fails: steps have no way to an engine.

        Raises:
            ConnectError: always.
        """
        raise ConnectError(self.name, "a node of Slurm is not asked for a Docker engine")

    def open_docker(self, timeout: int, check: Check | None = None) -> APIClient:
        """Refused, whatever `timeout` in seconds: a node of Slurm is not asked for a Docker engine."""
        return self.docker()


def _is_absence(error: ClusterDynoError) -> bool:
    """Whether no step was begun since slurmctld is away."""
    if not isinstance(error, ConnectError):
        return False
    try:
        ping()
    except SlurmError:
        return True
    return says_away(error.detail)


def reported(done: Completed) -> tuple[int | None, str]:
    """The command's exit code by its shell's report, None without one; and its own stderr, without srun's."""
    reports = list(ENDED.finditer(done.stderr))
    if not reports:
        return None, done.stderr
    return int(reports[-1][1]), done.stderr[: reports[-1].start()].partition(BEGUN)[2]


def _terminate(process: subprocess.Popen[bytes]) -> None:
    """End an srun and its step: one SIGTERM cancels the step; SIGKILL alone would leave its tasks running."""
    until = time.monotonic() + STEP_END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, until - time.monotonic()))
    if process.returncode is None:
        process.kill()
        process.wait()
