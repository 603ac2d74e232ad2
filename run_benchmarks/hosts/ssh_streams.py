"""Reads both streams of one command on a paramiko channel in one loop, while stdin is written."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import IO

import paramiko

from run_benchmarks.hosts.base import CANCELLED, POLL_SECONDS, CancelledError
from run_benchmarks.hosts.login_shell import MarkedStderr

CHUNK = 1 << 18
QUIET_SECONDS = 0.2
SEND_BYTES = 1 << 15  # size of a packet: paramiko sends no more at once


def find_group(channel: paramiko.Channel, err: MarkedStderr, limit: float) -> int | None:
    """The process group that a command reported, waiting for a slow login shell until `limit` (monotonic seconds)."""
    while err.group is None and not channel.closed and time.monotonic() < limit:
        if channel.recv_stderr_ready():
            err.add(channel.recv_stderr(CHUNK))
        else:
            time.sleep(POLL_SECONDS)
    return err.group


def feed(channel: paramiko.Channel, stdin: IO[bytes] | None) -> None:
    """Send `stdin` in a thread of its own, since reading must continue, then half-close."""
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
    """Send the whole chunk. The channel's time-out belongs to the reading loop: a window that is full for longer is no
    error.
    """
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
    """Read both streams to their ends and return the exit status; TimeoutError at `deadline` (monotonic seconds)."""
    # Without `cancel`, only stderr's window (2 MB) has to be emptied periodically.
    wait = QUIET_SECONDS if cancel is None else POLL_SECONDS
    stdout_open = True
    while True:
        if time.monotonic() >= deadline:
            raise TimeoutError
        if cancel is not None and cancel.is_set():
            raise CancelledError
        if stdout_open:
            with contextlib.suppress(socket.timeout):
                channel.settimeout(max(0.0, min(wait, deadline - time.monotonic())))
                chunk = channel.recv(CHUNK)
                stdout_open = bool(chunk)
                if chunk:
                    on_stdout(chunk)
        else:
            channel.status_event.wait(POLL_SECONDS)
        wait = POLL_SECONDS if channel.recv_stderr_ready() or cancel is not None else QUIET_SECONDS
        _empty_stderr(channel, on_stderr)
        if not stdout_open and channel.exit_status_ready() and (channel.eof_received or channel.closed):
            _empty_stderr(channel, on_stderr)
            return int(channel.exit_status)


def _empty_stderr(channel: paramiko.Channel, on_stderr: Callable[[bytes], None]) -> None:
    while channel.recv_stderr_ready():
        on_stderr(channel.recv_stderr(CHUNK))


def killed_or_lost(channel: paramiko.Channel) -> int:
    """Explain a missing exit status: the group was killed with its shell (CANCELLED, as after SIGKILL), or the link
    broke.

    Raises:
        EOFError: the link broke.
    """
    time.sleep(POLL_SECONDS)  # paramiko closes the channels of a lost link before it reports the loss
    if channel.eof_received and channel.get_transport().is_active():
        return CANCELLED
    raise EOFError("the connection broke")
