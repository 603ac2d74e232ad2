"""The streams of one command on a paramiko channel: both are read in one loop, stdin is written meanwhile."""

from __future__ import annotations

import contextlib
import math
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO

import paramiko

from run_benchmarks.hosts.base import POLL_SECONDS, CancelledError, Capture

CHUNK = 1 << 18
SEND_BYTES = 1 << 15  # a packet's worth: paramiko sends no more at once
# Beyond a deadline, for a host that was not told to kill what passed it; one that is told does so within a second.
OWN_CLOCK_SECONDS = 2
# `timeout` leads the process group and kills it. The shell under it makes a killed command show as 128+n; paramiko
# would show -1, like a lost link.
WRAPPER = 'echo "__group $PPID" >&2; "$@"; exit $?'
GROUP_MARK = re.compile(rb"^__group (\d{1,10})\n", re.MULTILINE)
MARK_BYTES = 1 << 16  # what a log-in shell may say before the mark; after more, there is none


class MarkedStderr(Capture):
    """stderr of a wrapped command; the line that tells its process group is taken out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.group: int | None = None
        self._before: bytearray | None = bytearray()  # until the mark is found, or nobody looks for it any more

    def add(self, chunk: bytes) -> None:
        """See Capture.add."""
        if self._before is None:
            super().add(chunk)
            return
        looked_at = self._before.rfind(b"\n") + 1  # the mark is a line
        self._before += chunk
        mark = GROUP_MARK.search(self._before, looked_at)
        if mark is not None:
            self.group = int(mark[1])
            del self._before[mark.start() : mark.end()]
        if mark is not None or len(self._before) > MARK_BYTES:
            self._flush()

    def _flush(self) -> None:
        before, self._before = self._before, None
        super().add(bytes(before or b""))

    def text(self) -> str:
        """See Capture.text."""
        if self._before is not None:
            self._flush()
        return super().text()


def self_bounded(argv: Sequence[str], deadline: float) -> str:
    """The command line for a log-in shell: `argv`, which tells its process group and is killed by the host itself."""
    seconds = math.ceil(deadline) + OWN_CLOCK_SECONDS  # whole ones: busybox' timeout knows no others
    return "exec " + shlex.join(["timeout", "-s", "KILL", str(seconds), "sh", "-c", WRAPPER, "sh", *argv])


def find_group(channel: paramiko.Channel, err: MarkedStderr, limit: float) -> int | None:
    """The process group that a command told; a slow log-in shell is waited for until `limit` (monotonic seconds)."""
    while err.group is None and not channel.closed and time.monotonic() < limit:
        if channel.recv_stderr_ready():
            err.add(channel.recv_stderr(CHUNK))
        else:
            time.sleep(POLL_SECONDS)
    return err.group


def feed(channel: paramiko.Channel, stdin: IO[bytes] | None) -> None:
    """Send `stdin` in a thread of its own (reading must go on meanwhile), then half-close."""
    if stdin is None:
        channel.shutdown_write()
        return

    def copy() -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the reading loop reports the lost link
            while chunk := stdin.read(CHUNK):
                _send(channel, chunk)
            channel.shutdown_write()

    threading.Thread(target=copy, name="ssh-stdin", daemon=True).start()


def _send(channel: paramiko.Channel, chunk: bytes) -> None:
    """Send all of it. The channel's time-out is the reading loop's: a window that is full for longer is no error."""
    sent = 0
    while sent < len(chunk):
        with contextlib.suppress(socket.timeout):
            sent += channel.send(chunk[sent : sent + SEND_BYTES])


def drain(
    channel: paramiko.Channel,
    on_stdout: Callable[[bytes], None],
    on_stderr: Callable[[bytes], None],
    deadline: float,
    cancel: threading.Event | None = None,
) -> int:
    """Read both streams to their ends and return the exit status; TimeoutError at the deadline (monotonic seconds)."""
    channel.settimeout(POLL_SECONDS)
    stdout_open = True
    while True:
        if time.monotonic() >= deadline:
            raise TimeoutError
        if cancel is not None and cancel.is_set():
            raise CancelledError
        if stdout_open:
            with contextlib.suppress(socket.timeout):
                chunk = channel.recv(CHUNK)
                stdout_open = bool(chunk)
                if chunk:
                    on_stdout(chunk)
        else:
            channel.status_event.wait(POLL_SECONDS)
        while channel.recv_stderr_ready():
            on_stderr(channel.recv_stderr(CHUNK))
        if not stdout_open and channel.exit_status_ready() and (channel.eof_received or channel.closed):
            while channel.recv_stderr_ready():
                on_stderr(channel.recv_stderr(CHUNK))
            return int(channel.exit_status)
