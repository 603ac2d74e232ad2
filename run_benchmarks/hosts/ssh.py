"""A host over SSH: one paramiko connection for the whole run, at most MAX_CHANNELS channels on it, own deadlines.

paramiko's own time-outs are per read, a lost link shows as exit status -1, and closing a channel leaves the remote
process running; so each command tells its process group first, both streams are drained in one loop, and what passes
its deadline is killed by group over a second channel. A host that cannot be told so kills it by its own clock.
"""

from __future__ import annotations

import contextlib
import random
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import paramiko
from docker import APIClient
from docker.errors import DockerException

from run_benchmarks.errors import ClusterDynoError, CommandError, ConnectError, DeadlineError, LinkLostError
from run_benchmarks.hosts.base import CANCELLED, DOCKER_SECONDS, POLL_SECONDS, CancelledError, Capture, Completed
from run_benchmarks.hosts.docker_channel import ChannelAPIClient
from run_benchmarks.hosts.docker_client import Check
from run_benchmarks.hosts.ssh_login import CONNECT_SECONDS, log_in
from run_benchmarks.hosts.ssh_streams import MarkedStderr, drain, feed, find_group, self_bounded

MAX_CHANNELS = 6  # sshd's MaxSessions is 10 by default; the rest is left to a person's own log-in and to killing
BANNER_RETRIES = 3
KILL_SECONDS, CANCEL_SECONDS = 1.0, 5.0  # to kill what passed its deadline; what was cancelled, with time left
CUT_SECONDS = 1.6  # past a deadline; what has not ended then waits for buffers that nobody empties


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """How to log in to a host."""

    host: str
    port: int
    user: str
    key: Path | None
    known_hosts: Path


class SshHost:
    """One host behind one SSH connection. See Host for the meaning of the methods."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.name = endpoint.host
        self.endpoint = endpoint
        self._client: paramiko.SSHClient | None = None
        self._transport: paramiko.Transport | None = None
        self._address = ""
        self._connecting = threading.Lock()
        self._opening_docker = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CHANNELS)
        self._docker: APIClient | None = None

    @property
    def address(self) -> str:
        """The peer address of the connection."""
        return self._address

    def connect(self) -> None:
        """Connect, or connect again where the link is lost. Raises ConnectError or HostKeyError."""
        with self._connecting:
            if self._transport is not None and self._transport.is_active():
                return
            self._drop()
            deadline = time.monotonic() + CONNECT_SECONDS
            for attempt in range(BANNER_RETRIES):
                try:
                    self._log_in()
                    return
                except paramiko.SSHException as error:
                    # An overloaded sshd (MaxStartups) drops new connections before its banner; the others are final.
                    # One that says nothing for all of the time is no better asked again.
                    last = attempt == BANNER_RETRIES - 1 or time.monotonic() >= deadline - 1.0
                    if "banner" not in str(error) or last:
                        raise ConnectError(self.name, f"SSH on port {self.endpoint.port}: {error}") from error
                    time.sleep(random.uniform(0.2, 1.0) * (attempt + 1))

    def _log_in(self) -> None:
        client = paramiko.SSHClient()
        try:
            log_in(client, self.endpoint)
            transport = client.get_transport()
            assert transport is not None
            transport.set_keepalive(15)
            self._address = transport.getpeername()[0]
        except BaseException:
            client.close()
            raise
        self._client, self._transport = client, transport

    def reconnect(self) -> None:
        """Drop the connection, whatever state it is in, and connect anew. Raises ConnectError or HostKeyError."""
        with self._connecting:
            self._drop()
        self.connect()

    def close(self) -> None:
        """Close the Docker client and the connection."""
        with self._connecting:
            self._drop()

    def _drop(self) -> None:
        client, engine = self._client, self._docker
        self._client = self._transport = self._docker = None
        if client is not None:
            client.close()
        if engine is not None:
            with contextlib.suppress(Exception):  # a broken connection must not keep us from dropping it
                engine.close()

    @contextlib.contextmanager
    def channel(
        self, command: str, *, seconds: float = CONNECT_SECONDS, reserved: bool = False
    ) -> Iterator[paramiko.Channel]:
        """A channel running `command`, within the bound on channels (a `reserved` one may exceed it: it kills).

        Raises:
            TimeoutError: no channel of the bound became free within `seconds`.
            LinkLostError: the connection is gone, or the host did not open the channel within `seconds`.
        """
        until = time.monotonic() + seconds
        if not reserved and not self._slots.acquire(timeout=max(0.0, seconds)):
            raise TimeoutError
        try:
            opened = self.open_channel(command, seconds=until - time.monotonic())
            try:
                yield opened
            finally:
                opened.close()
        finally:
            if not reserved:
                self._slots.release()

    @contextlib.contextmanager
    def cut_off(self, deadline: float) -> Iterator[None]:
        """Drop the connection where what is done inside still goes on CUT_SECONDS after `deadline` (monotonic).

        paramiko waits for ever where a full connection takes nothing more, be it for the close of a channel.
        """
        transport = self._transport
        if transport is None:
            yield
            return
        timer = threading.Timer(max(0.0, deadline + CUT_SECONDS - time.monotonic()), transport.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def open_channel(self, command: str, *, seconds: float = CONNECT_SECONDS) -> paramiko.Channel:
        """A channel running `command`; the caller holds a slot and closes it. Raises LinkLostError."""
        transport = self._transport
        if transport is None or not transport.is_active():
            raise LinkLostError(self.name, "the SSH connection is gone")
        seconds = min(max(seconds, POLL_SECONDS), CONNECT_SECONDS)
        until = time.monotonic() + seconds
        try:
            channel = transport.open_session(timeout=seconds)
            # paramiko waits for the answer to this for ever; closing the channel ends that.
            watchdog = threading.Timer(max(until - time.monotonic(), POLL_SECONDS), channel.close)
            watchdog.daemon = True
            watchdog.start()
            try:
                channel.exec_command(command)
            finally:
                watchdog.cancel()
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise LinkLostError(
                self.name, f"no channel on the SSH connection: {error or type(error).__name__}"
            ) from error
        return channel

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
        """See Host.run."""
        started = time.monotonic()
        out, err = Capture(), MarkedStderr()
        command = self_bounded(argv, deadline)
        try:
            with self.cut_off(started + deadline), self.channel(command, seconds=deadline) as channel:
                feed(channel, stdin)
                try:
                    exit_code = drain(channel, on_stdout or out.add, err.add, started + deadline, cancel)
                except CancelledError:
                    self._kill_group(channel, err, CANCEL_SECONDS)
                    exit_code, check = CANCELLED, False
                except TimeoutError:
                    self._kill_group(channel, err, KILL_SECONDS)
                    raise
                if exit_code == -1:
                    exit_code = self._killed_or_lost(channel)
        except TimeoutError as error:
            raise DeadlineError(self.name, argv, deadline, out.text() + err.text()) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            trouble = f"while `{shlex.join(argv)[:200]}` ran: {error or 'end of file'}"
            raise LinkLostError(self.name, trouble, err.text()) from error
        completed = Completed(
            argv=tuple(argv),
            exit_code=exit_code,
            stdout=out.text(),
            stderr=err.text(),
            seconds=time.monotonic() - started,
        )
        if check and exit_code != 0:
            raise CommandError(self.name, argv, exit_code, completed.stderr or completed.stdout)
        return completed

    def _kill_group(self, channel: paramiko.Channel, err: MarkedStderr, seconds: float) -> None:
        """Within so many seconds, or not at all: the host does it then by its own clock."""
        limit = time.monotonic() + seconds
        group = find_group(channel, err, limit)
        if group is None:
            return
        with (
            contextlib.suppress(LinkLostError, TimeoutError, OSError),
            self.channel(f"kill -KILL -{group}", seconds=limit - time.monotonic(), reserved=True) as killer,
        ):
            drain(killer, lambda _: None, lambda _: None, limit)

    def _killed_or_lost(self, channel: paramiko.Channel) -> int:
        """No exit status came: the group with its shell was killed (CANCELLED, as after SIGKILL), or the link broke."""
        time.sleep(POLL_SECONDS)  # paramiko closes the channels of a lost link before it says that it is lost
        transport = self._transport
        if channel.eof_received and transport is not None and transport.is_active():
            return CANCELLED
        raise EOFError("the connection broke")

    @contextlib.contextmanager
    def slot(self, seconds: float) -> Iterator[None]:
        """Hold one of the connection's channels for something opened by `open_channel`.

        Raises LinkLostError where none becomes free within `seconds`.
        """
        if not self._slots.acquire(timeout=max(0.0, seconds)):
            raise LinkLostError(self.name, f"all {MAX_CHANNELS} channels are busy")
        try:
            yield
        finally:
            self._slots.release()

    def docker(self) -> APIClient:
        """The host's engine, over `docker system dial-stdio` channels of this connection."""
        with self._opening_docker:
            if self._docker is None:
                self._docker = self.open_docker(DOCKER_SECONDS)
            return self._docker

    def open_docker(self, timeout: int, check: Check | None = None) -> APIClient:
        """See Host.open_docker."""
        try:
            return ChannelAPIClient(self, timeout=timeout, check=check)
        except DockerException as error:
            if isinstance(error.__cause__, ClusterDynoError):
                raise error.__cause__ from error
            raise ConnectError(self.name, f"no Docker engine answers: {error}") from error
