"""Manages the sessions of one host: on one connection if its sshd grants enough, else on several.

sshd's MaxSessions limits the sessions of a connection (10 by default; hardened hosts have 1 or 2). The first refusal
shows the limit; beyond it a further connection is opened, so that a long operation (a followed log, a wait, the Docker
API) blocks no other. If no connection can be opened either, a session waits for another to end.
"""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import paramiko

from run_benchmarks.errors import ConnectError, LinkLostError
from run_benchmarks.hosts.base import POLL_SECONDS

UNBOUNDED = 1 << 30
OPEN_SECONDS = 10.0
GHOST_SECONDS, GHOSTS = 3.0, 3  # time for which sshd may still count a closed session; refusals accepted for that
REFUSED = "no session is granted (MaxSessions 0 in its sshd_config, or the account may not run commands)"


class RefusedError(Exception):
    """sshd grants no further session on this connection."""


@dataclass(eq=False)
class _Link:
    transport: paramiko.Transport
    used: int = 0
    granted: int = UNBOUNDED
    closed: float = -math.inf  # when a session of it was (monotonic seconds)


@dataclass(eq=False)
class SshSession:
    """A channel that runs a command; `close` frees its session."""

    channel: paramiko.Channel
    _link: _Link
    _links: Links

    def close(self) -> None:
        """Close the channel."""
        self.channel.close()
        self._links.give_back(self._link)


class Links:
    """The connections to one host. `connect` makes one or fails with a ConnectError."""

    def __init__(self, host: str, connect: Callable[[], paramiko.Transport]) -> None:
        self._host, self._connect = host, connect
        self._links: list[_Link] = []
        self._changed = threading.Condition()
        self._growing = False
        self.granted: int | None = None  # sessions per connection, known after a refusal
        self.refusal = ""  # why no further connection could be opened

    def _alive(self) -> list[_Link]:
        with self._changed:
            self._links = [link for link in self._links if link.transport.is_active()]
            return list(self._links)

    def is_open(self) -> bool:
        """Whether there is a connection."""
        return bool(self._alive())

    def open(self) -> paramiko.Transport:
        """Make the first connection.

        Raises:
            ConnectError: the host cannot be reached.
        """
        transport = self._connect()
        with self._changed:
            self._links.append(_Link(transport))
            self.refusal = ""
        return transport

    def close(self, *, at_once: bool = False) -> None:
        """Close all connections; `at_once`: what was to be sent on them is dropped, where the kernel holds it."""
        with self._changed:
            links, self._links = self._links, []
            self._changed.notify_all()
        for link in links:
            wire = link.transport.sock
            if at_once and isinstance(wire, socket.socket):  # a way through a jump host is none
                with contextlib.suppress(OSError):
                    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.transport.close()

    def session(self, command: str, until: float) -> SshSession:
        """A session that runs `command`, by `until` (monotonic seconds).

        Raises:
            TimeoutError: every session that sshd grants was in use until then.
            LinkLostError: the connection is gone, or the host did not answer.
        """
        alone_since: float | None = None
        refusals = 0
        while True:
            link = self._take(until)
            try:
                return SshSession(_open(self._host, link.transport, command, until), link, self)
            except RefusedError as error:
                refusals += 1
                left = self._learn(link, sure=refusals > GHOSTS)
                alone_since = (alone_since or time.monotonic()) if left == 0 else None
                if alone_since is not None and time.monotonic() > min(until, alone_since + GHOST_SECONDS):
                    raise LinkLostError(self._host, REFUSED) from error
                if left < link.granted:  # sshd may still count a session that was just closed
                    time.sleep(POLL_SECONDS)
            except BaseException:
                self.give_back(link)
                raise

    def _learn(self, link: _Link, *, sure: bool) -> int:
        """Record how many sessions a connection is granted; returns how many it has now.

        Unless `sure`, nothing is recorded directly after a session was closed.
        """
        with self._changed:
            link.used -= 1
            if link.used and (sure or time.monotonic() > link.closed + GHOST_SECONDS):
                link.granted = min(link.granted, link.used)
                self.granted = min(self.granted or UNBOUNDED, link.granted)
            self._changed.notify_all()
            return link.used

    def give_back(self, link: _Link) -> None:
        """A session of this connection has ended."""
        with self._changed:
            link.used -= 1
            link.closed = time.monotonic()
            self._changed.notify_all()

    def _take(self, until: float) -> _Link:
        """A connection with a free session, by `until` (monotonic seconds); a new one if there is none."""
        while True:
            with self._changed:
                alive = [link for link in self._links if link.transport.is_active()]
                if not alive:
                    raise LinkLostError(self._host, "the SSH connection is gone")
                link = min(alive, key=lambda each: (each.used >= each.granted, self._links.index(each)))
                if link.used < link.granted:
                    link.used += 1
                    return link
                grow = not self._growing and not self.refusal
                self._growing = self._growing or grow
                if not grow:
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        raise TimeoutError
                    continue
            self._grow()

    def _grow(self) -> None:
        transport: paramiko.Transport | None = None
        try:
            transport = self._connect()
        except ConnectError as error:
            self.refusal = str(error)
        finally:
            with self._changed:
                self._growing = False
                if transport is not None:
                    self._links.append(_Link(transport, granted=self.granted or UNBOUNDED))
                self._changed.notify_all()

    def probe(self, wanted: int, until: float) -> int:
        """Number of sessions, at most `wanted`, that the first connection grants at once, tested by opening them.

        `until` is in monotonic seconds.
        """
        alive = self._alive()
        if not alive:
            raise LinkLostError(self._host, "the SSH connection is gone")
        link, opened = alive[0], list[paramiko.Channel]()
        try:
            while link.used + len(opened) < min(wanted, link.granted):
                opened.append(_open(self._host, link.transport, None, until))
        except RefusedError:  # of the first, too, where sshd still counts a session that has just ended
            link.granted = self.granted = max(1, link.used + len(opened))
        finally:
            for channel in opened:
                channel.close()
        return min(wanted, link.granted)


def _open(host: str, transport: paramiko.Transport, command: str | None, until: float) -> paramiko.Channel:
    """A channel, which runs `command` if one is given."""
    seconds = min(max(until - time.monotonic(), POLL_SECONDS), OPEN_SECONDS)
    until = time.monotonic() + seconds
    try:
        channel = transport.open_session(timeout=seconds)
        if command is None:
            return channel
        # paramiko waits forever for the answer to this; closing the channel ends the wait.
        watchdog = threading.Timer(max(until - time.monotonic(), POLL_SECONDS), channel.close)
        watchdog.daemon = True
        watchdog.start()
        try:
            channel.exec_command(command)
        finally:
            watchdog.cancel()
    except paramiko.ChannelException as error:
        raise RefusedError from error
    except (paramiko.SSHException, OSError, EOFError) as error:
        # For several refusals at once, paramiko reports the reason to one thread only.
        if transport.is_active() and str(error) == "Unable to open channel.":
            raise RefusedError from error
        raise LinkLostError(host, f"no channel on the SSH connection: {error or type(error).__name__}") from error
    return channel
