"""A host over SSH: one paramiko connection for the whole run, at most MAX_CHANNELS channels on it, own deadlines.

paramiko's own time-outs are per read, a lost link shows as exit status -1, and closing a channel leaves the remote
process running; so each command tells its process group first, both streams are drained in one loop, and what passes
its deadline is killed by group over a second channel.
"""

from __future__ import annotations

import contextlib
import random
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import paramiko
from docker import APIClient

from run_benchmarks.errors import CommandError, ConnectError, DeadlineError, HostKeyError, LinkLostError
from run_benchmarks.hosts.base import CANCELLED, DOCKER_SECONDS, POLL_SECONDS, CancelledError, Capture, Completed
from run_benchmarks.hosts.docker_channel import ChannelAPIClient
from run_benchmarks.hosts.host_keys import RefuseUnknownKey, fingerprint

MAX_CHANNELS = 6  # sshd's MaxSessions is 10 by default; the rest is left to a person's own log-in and to killing
CONNECT_SECONDS = 10.0
BANNER_RETRIES = 3
CHUNK = 1 << 18
GROUP_MARK = re.compile(r"\A__group (\d+)\n")
# The shell stays the parent, so that a killed command shows as 128+n; paramiko would show -1, like a lost link.
WRAPPER = 'echo "__group $$" >&2; "$@"; exit $?'


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
            for attempt in range(BANNER_RETRIES):
                try:
                    self._open()
                    return
                except paramiko.SSHException as error:
                    # An overloaded sshd (MaxStartups) drops new connections before its banner; the others are final.
                    if "banner" not in str(error) or attempt == BANNER_RETRIES - 1:
                        raise ConnectError(self.name, f"SSH on port {self.endpoint.port}: {error}") from error
                    time.sleep(random.uniform(0.2, 1.0) * (attempt + 1))

    def _open(self) -> None:
        endpoint = self.endpoint
        client = paramiko.SSHClient()
        client.set_missing_host_key_policy(RefuseUnknownKey(endpoint.known_hosts))
        try:
            if endpoint.known_hosts.exists():
                client.load_host_keys(str(endpoint.known_hosts))
            client.connect(
                endpoint.host,
                port=endpoint.port,
                username=endpoint.user,
                key_filename=str(endpoint.key) if endpoint.key else None,
                look_for_keys=endpoint.key is None,
                allow_agent=endpoint.key is None,
                timeout=CONNECT_SECONDS,
                banner_timeout=CONNECT_SECONDS,
                auth_timeout=CONNECT_SECONDS,
            )
        except paramiko.BadHostKeyException as error:
            client.close()
            raise HostKeyError(
                self.name,
                f"host key CHANGED: recorded is {fingerprint(error.expected_key)}, it shows {fingerprint(error.key)}; "
                f"somebody may be in between. If the host was reinstalled, remove its line from {endpoint.known_hosts} "
                f"(ssh-keygen -R) and run `run.py trust`",
            ) from error
        except paramiko.AuthenticationException as error:
            client.close()
            key = f"key {endpoint.key}" if endpoint.key else "the agent's and default keys"
            raise ConnectError(self.name, f"log-in as {endpoint.user} with {key} was refused ({error})") from error
        except paramiko.SSHException:
            client.close()
            raise
        except OSError as error:
            client.close()
            raise ConnectError(
                self.name, f"port {endpoint.port} cannot be reached: {error or type(error).__name__}"
            ) from error
        self._client, self._transport = client, client.get_transport()
        assert self._transport is not None
        self._transport.set_keepalive(15)
        self._address = self._transport.getpeername()[0]

    def close(self) -> None:
        """Close the Docker client and the connection."""
        with self._connecting:
            self._drop()

    def _drop(self) -> None:
        if self._docker is not None:
            with contextlib.suppress(Exception):  # a broken connection must not keep us from dropping it
                self._docker.close()
            self._docker = None
        if self._client is not None:
            self._client.close()
        self._client = self._transport = None

    @contextlib.contextmanager
    def channel(self, command: str, *, reserved: bool = False) -> Iterator[paramiko.Channel]:
        """A channel running `command`, within the bound on channels (a `reserved` one may exceed it: it kills)."""
        slot = contextlib.nullcontext() if reserved else self._slots
        with slot:
            opened = self.open_channel(command)
            try:
                yield opened
            finally:
                opened.close()

    def open_channel(self, command: str) -> paramiko.Channel:
        """A channel running `command`; the caller holds a slot and closes it. Raises LinkLostError."""
        transport = self._transport
        if transport is None or not transport.is_active():
            raise LinkLostError(self.name, "the SSH connection is gone")
        try:
            channel = transport.open_session(timeout=CONNECT_SECONDS)
            channel.exec_command(command)
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
        out, err = Capture(), Capture()
        with self.channel("exec " + shlex.join(["sh", "-c", WRAPPER, "sh", *argv])) as channel:
            _feed(channel, stdin)
            try:
                exit_code = _drain(channel, on_stdout or out.add, err.add, started + deadline, cancel)
            except CancelledError:
                self._kill_group(err.text())
                exit_code, check = CANCELLED, False
            except TimeoutError as error:
                self._kill_group(err.text())
                raise DeadlineError(self.name, argv, deadline, out.text() + _without_mark(err.text())) from error
            except (OSError, EOFError, paramiko.SSHException) as error:
                raise LinkLostError(
                    self.name, f"while `{shlex.join(argv)[:200]}` ran: {error or 'end of file'}"
                ) from error
        if exit_code == -1:
            raise LinkLostError(self.name, f"while `{shlex.join(argv)[:200]}` ran")
        completed = Completed(
            argv=tuple(argv),
            exit_code=exit_code,
            stdout=out.text(),
            stderr=_without_mark(err.text()),
            seconds=time.monotonic() - started,
        )
        if check and exit_code != 0:
            raise CommandError(self.name, argv, exit_code, completed.stderr or completed.stdout)
        return completed

    def _kill_group(self, stderr: str) -> None:
        mark = GROUP_MARK.match(stderr)
        if mark is None:
            return
        with (
            contextlib.suppress(LinkLostError, TimeoutError, OSError),
            self.channel(f"kill -KILL -{mark[1]}", reserved=True) as channel,
        ):
            _drain(channel, lambda _: None, lambda _: None, time.monotonic() + 1.0)

    @contextlib.contextmanager
    def slot(self) -> Iterator[None]:
        """Hold one of the connection's channels for something opened by `open_channel`."""
        with self._slots:
            yield

    def docker(self) -> APIClient:
        """The host's engine, over `docker system dial-stdio` channels of this connection."""
        with self._connecting:
            if self._docker is None:
                self._docker = self.open_docker(DOCKER_SECONDS)
            return self._docker

    def open_docker(self, timeout: int) -> APIClient:
        """See Host.open_docker."""
        return ChannelAPIClient(self, timeout=timeout)


def _without_mark(stderr: str) -> str:
    return GROUP_MARK.sub("", stderr, count=1)


def _feed(channel: paramiko.Channel, stdin: IO[bytes] | None) -> None:
    """Send `stdin` in a thread of its own (reading must go on meanwhile), then half-close."""
    if stdin is None:
        channel.shutdown_write()
        return

    def copy() -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # the reading loop reports the lost link
            while chunk := stdin.read(CHUNK):
                channel.sendall(chunk)
            channel.shutdown_write()

    threading.Thread(target=copy, name="ssh-stdin", daemon=True).start()


def _drain(
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
