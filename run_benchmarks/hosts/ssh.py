"""A host over SSH: one connection for the whole run (more if its sshd limits sessions), with deadlines of our own.

paramiko's own time-outs are per read, a lost link shows as exit status -1, and closing a channel leaves the remote
process running. Therefore each command first reports its process group, both streams are drained in one loop, and a
command past its deadline is killed by group over a second channel. An unreachable host kills it by its clock.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import paramiko
from docker import APIClient

from run_benchmarks.errors import (
    DeadlineError,
    HostError,
    LinkLostError,
    LoginShellError,
    NotBegunError,
    shown,
)
from run_benchmarks.hosts import login_shell
from run_benchmarks.hosts.base import (
    CANCELLED,
    POLL_SECONDS,
    CancelledError,
    Capture,
    Completed,
    ConnectionAdvice,
)
from run_benchmarks.hosts.connections import Connections
from run_benchmarks.hosts.docker_channel import ChannelAPIClient
from run_benchmarks.hosts.docker_client import Check
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.host_engine import HostEngine
from run_benchmarks.hosts.ssh_links import Links
from run_benchmarks.hosts.ssh_login import CONNECT_SECONDS, connect

CHUNK = 1 << 18
QUIET_SECONDS = 0.2
SEND_BYTES = 1 << 15  # size of a packet: paramiko sends no more at once


def find_group(channel: paramiko.Channel, err: login_shell.MarkedStderr, limit: float) -> int | None:
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
    """Send the whole chunk; the channel's time-out is the reading loop's: a full window is no error."""
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
    """Explain a missing exit status: the group was killed with its shell (CANCELLED), or the link broke.

    Raises:
        EOFError: the link broke.
    """
    time.sleep(POLL_SECONDS)  # paramiko closes the channels of a lost link before it reports the loss
    if channel.eof_received and channel.get_transport().is_active():
        return CANCELLED
    raise EOFError("the connection broke")


MAX_CHANNELS = 6  # sshd's MaxSessions is 10 by default; the rest is for a user's own login and for killing
KILL_SECONDS, CANCEL_SECONDS = 1.0, 5.0  # to kill a command past its deadline; a cancelled one that has time left
CUT_SECONDS = 1.6  # after a deadline; a call that has not ended then waits for buffers that nobody empties

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its relevant messages are in our own errors


class SshHost:
    """One host behind SSH. See Host for the meaning of the methods.

    `ways` are shared by the hosts of a run, so that those behind one jump host share the connection to it.
    """

    needs_docker_client = True  # hosts/docker_channel.py

    def __init__(self, endpoint: Endpoint, ways: Connections | None = None) -> None:
        self.name = endpoint.host
        self.endpoint = endpoint
        self._ways = ways or Connections(connect)
        self._uses_ways = False
        self._links = Links(self.name, lambda: connect(endpoint, self._ways))
        self._address = ""
        self._noise = ""
        self._connecting = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_CHANNELS)
        self._engine = HostEngine(self.name, self._client)

    @property
    def address(self) -> str:
        """The peer address of the connection; for a host behind another, the address at which that one reaches it."""
        return self._address

    def connect(self) -> None:
        """Connect, or connect again after the link was lost.

        Raises:
            ConnectError: the host cannot be reached or refuses the login.
            HostKeyError: the host's key is not trusted.
        """
        with self._connecting:
            if self._links.is_open():
                return
            self._drop()
            self._ways.enter()
            self._uses_ways = True
            try:
                transport = self._links.open()
                self._address = self._own_address() if self._is_behind() else transport.getpeername()[0]
            except BaseException:
                self._drop()
                raise

    def _is_behind(self) -> bool:
        return self.endpoint.jump is not None or bool(self.endpoint.proxy_command)

    def _own_address(self) -> str:
        """The address that the host itself reports; "" if it cannot (the check then says why)."""
        with contextlib.suppress(HostError):
            words = self.run(["sh", "-c", 'echo "$SSH_CONNECTION"'], deadline=CONNECT_SECONDS).stdout.split()
            if len(words) == 4:  # the client's address and port, its own address and port
                return words[2]
        return self.endpoint.target

    def reconnect(self) -> None:
        """Drop the connection in any state and make a new one.

        Raises:
            ConnectError: the host cannot be reached or refuses the login.
            HostKeyError: the host's key is not trusted.
        """
        with self._connecting:
            self._drop()
        self.connect()

    def close(self) -> None:
        """Close the Docker client and the connection."""
        with self._connecting:
            self._drop()

    def _drop(self) -> None:
        self._links.close()
        if self._uses_ways:
            self._uses_ways = False
            self._ways.leave()
        self._engine.close()

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """Advice on start files that print, and on few sessions, which are probed.

        Raises:
            LinkLostError: the host does not answer.
        """
        found = []
        if self._noise:
            remark = ConnectionAdvice(
                subject="login shell",
                found=f"text from its start files before a command's output: {self._noise[:200]!r}",
                expected="start files that print nothing for what is not interactive",
                action=f"guard it in {login_shell.START_FILES}; it is left out of the output meanwhile",
            )
            found.append(remark)
        granted = self._links.probe(MAX_CHANNELS, time.monotonic() + CONNECT_SECONDS)
        if granted < MAX_CHANNELS:
            remark = ConnectionAdvice(
                subject="ssh sessions",
                found=f"{granted} at once on a connection (MaxSessions in its sshd_config)",
                expected=f"{MAX_CHANNELS}",
                action="further connections are opened, each a login that takes its time; to spare them, raise "
                "MaxSessions to 10, sshd's default",
            )
            found.append(remark)
        return tuple(found)

    @contextlib.contextmanager
    def channel(
        self, command: str, *, seconds: float = CONNECT_SECONDS, reserved: bool = False
    ) -> Iterator[paramiko.Channel]:
        """A channel that runs `command`, within the limit of channels (a `reserved` one may exceed it: it kills).

        Raises:
            TimeoutError: no channel of the bound became free within `seconds`.
            LinkLostError: the connection is gone, or the host did not open the channel within `seconds`.
        """
        until = time.monotonic() + seconds
        if not reserved and not self._slots.acquire(timeout=max(0.0, seconds)):
            raise TimeoutError
        try:
            with contextlib.closing(self._links.session(command, until)) as session:
                yield session.channel
        finally:
            if not reserved:
                self._slots.release()

    @contextlib.contextmanager
    def cut_off(self, deadline: float) -> Iterator[None]:
        """Drop the connection if the code inside still runs CUT_SECONDS after `deadline` (monotonic seconds).

        paramiko waits forever on a full connection that accepts no more data, even to close a channel.
        """
        timer = threading.Timer(max(0.0, deadline + CUT_SECONDS - time.monotonic()), self._links.close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

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
        """Run a command over a channel of the connection, killed with its process group after `deadline` seconds."""
        started = time.monotonic()
        out, err = Capture(), login_shell.MarkedStderr()
        begun = login_shell.Beginning(on_stdout or out.add)
        command, is_open = login_shell.bounded_command(argv, deadline), False
        try:
            with self.cut_off(started + deadline), self.channel(command, seconds=deadline) as channel:
                is_open = True
                feed(channel, stdin)
                try:
                    exit_code = drain(channel, begun.add, err.add, started + deadline, cancel)
                except CancelledError:
                    self._cancel(channel, err, is_sending=stdin is not None)
                    exit_code, check = CANCELLED, False
                except TimeoutError:
                    self._kill_group(channel, err, KILL_SECONDS)
                    raise
                if exit_code == -1:
                    exit_code = killed_or_lost(channel)
        except TimeoutError as error:
            if is_open and not begun.seen:
                late = login_shell.began_late(deadline, begun.noise, err.text())
                raise NotBegunError(self.name, argv, deadline, late) from error
            raise DeadlineError(self.name, argv, deadline, out.text() + err.text()) from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            trouble = f"while `{shown(argv)}` ran: {error or 'end of file'}"
            raise LinkLostError(self.name, trouble, err.text()) from error
        completed = Completed(
            argv=tuple(argv),
            exit_code=exit_code,
            stdout=out.text(),
            stderr=err.text(),
            seconds=time.monotonic() - started,
        )
        self._noise = self._noise or begun.noise
        if not begun.seen and exit_code != CANCELLED:
            raise LoginShellError(self.name, login_shell.ended_early(exit_code, begun.noise, completed.stderr))
        if check:
            completed.check(self.name)
        return completed

    def _cancel(self, channel: paramiko.Channel, err: login_shell.MarkedStderr, *, is_sending: bool) -> None:
        """Kill a command. Nothing passes what is still being sent to it: that needs a new connection."""
        if is_sending:
            self._links.close(at_once=True)
            with contextlib.suppress(HostError):
                self.connect()
        self._kill_group(channel, err, CANCEL_SECONDS)

    def _kill_group(self, channel: paramiko.Channel, err: login_shell.MarkedStderr, seconds: float) -> None:
        """Kill the group of a command within `seconds`, or not at all: the host then does it by its own clock."""
        limit = time.monotonic() + seconds
        group = find_group(channel, err, limit)
        if group is None:
            return
        with (
            contextlib.suppress(LinkLostError, TimeoutError, OSError),
            self.channel(
                login_shell.plain_command(f"kill -KILL -{group}"), seconds=limit - time.monotonic(), reserved=True
            ) as killer,
        ):
            drain(killer, lambda _: None, lambda _: None, limit)

    def docker(self) -> APIClient:
        """The host's engine, over `docker system dial-stdio` channels of this connection."""
        return self._engine.client()

    def open_docker(self, timeout: int, check: Check | None = None) -> APIClient:
        """Another client of the engine, whose calls may take `timeout` seconds; the caller closes it."""
        return self._engine.open(timeout, check)

    def _client(self, timeout: int, check: Check | None) -> APIClient:
        return ChannelAPIClient(self, timeout=timeout, check=check)
