"""Opens connections to hosts: direct ones, through jump hosts, through a command of the head node (ProxyCommand).

All hosts behind one jump host share one connection to it, each with a channel of its own: 512 hosts cost it one login,
whereas its MaxStartups would refuse most of 512.

A dead name server takes 10 to 20 s until the resolver gives up, and no call of the resolver can be cut short, so `dial`
looks names up within its time limit.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import queue
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

import paramiko

from run_benchmarks.errors import ConnectError, tail
from run_benchmarks.hosts.endpoint import Endpoint

AddressInfo = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]  # socket.getaddrinfo's


def dial(host: str, port: int, *, seconds: float) -> socket.socket:
    """A socket connected to `port` of `host` (a name or an address), at the first of its addresses that answers.

    Raises:
        TimeoutError: `seconds` were not enough; the message says whether the name server or the host did not answer.
        ConnectionResetError: each address dropped the connection as soon as it was made.
        OSError: the name is unknown, or no address accepts the connection; the message has the reason for each.
    """
    until = time.monotonic() + seconds
    reasons: dict[str, type[OSError]] = {}
    for family, kind, protocol, _, address in _look_up(host, port, seconds):
        left = until - time.monotonic()
        if left <= 0:
            reasons["timed out"] = TimeoutError
            break
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(left)
            connection.connect(address)
        except OSError as error:
            connection.close()
            reasons[str(error) or type(error).__name__] = type(error)
        else:
            return connection
    kinds = set(reasons.values())
    alike = kinds in ({TimeoutError}, {ConnectionResetError})
    raise (kinds.pop() if alike else OSError)("; ".join(sorted(reasons)))


def _look_up(host: str, port: int, seconds: float) -> Sequence[AddressInfo]:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    answers: queue.SimpleQueue[Sequence[AddressInfo] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, name=f"look-up of {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no name server says within {seconds:g} s what address {host} has") from None
    if isinstance(answer, OSError):
        raise type(answer)(*answer.args[:1], f"the name {host} does not resolve ({answer.strerror or answer})")
    return answer


ALIVE_SECONDS = 3.0
PROXY_END_SECONDS = 1.0
SAID_LINES, MAX_SAID_BYTES = 5, 1 << 16


class ProxySocket(socket.socket):
    """The near end of a socket whose far end is a command's stdin and stdout; closing it ends the command."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    said = ""  # the last lines of what the command wrote to stderr, once it has ended

    def attach(self, process: subprocess.Popen[bytes], errors: IO[bytes]) -> None:
        """Take over the command."""
        self.process, self.errors, self._ending = process, errors, threading.Lock()

    def close(self) -> None:
        """Close it; a command that does not end then is killed with its group."""
        super().close()
        with self._ending:
            if self.errors.closed:
                return
            try:
                self.process.wait(PROXY_END_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            with self.errors:
                self.errors.seek(0)
                self.said = tail(self.errors.read(MAX_SAID_BYTES).decode("utf-8", errors="replace"), SAID_LINES)


class Passage:
    """A channel through a jump host, with the interface of a socket. A lost connection closes it without an error.

    paramiko's own channel fails with EOFError in the thread of the connection that it carries: that thread would not
    wake those who wait, and its traceback would reach the console.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    @property
    def _closed(self) -> bool:  # paramiko asks a socket so whether it is closed
        return self._channel.closed

    def send(self, data: bytes) -> int:
        """Send some of the bytes; returns how many."""
        return self._channel.send(data)

    def recv(self, size: int) -> bytes:
        """The next bytes, at most `size`; none at the end."""
        return self._channel.recv(size)

    def settimeout(self, seconds: float | None) -> None:
        """Let each call wait for `seconds`; None: indefinitely."""
        self._channel.settimeout(seconds)

    def close(self) -> None:
        """Close the channel; does nothing if the connection that carries it is gone."""
        with contextlib.suppress(EOFError, OSError):
            self._channel.close()


Connection = socket.socket | Passage


def run_proxy(command: str) -> ProxySocket:
    """Start a ProxyCommand.

    Raises:
        OSError: the command cannot be started.
    """
    with contextlib.ExitStack() as stack:
        near, far = socket.socketpair()
        stack.callback(near.close)
        errors = stack.enter_context(tempfile.TemporaryFile())
        with far:
            process = subprocess.Popen(
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=far.fileno(),
                stdout=far.fileno(),
                stderr=errors,
                start_new_session=True,
            )
        stack.pop_all()
    proxy = ProxySocket(near.family, near.type, near.proto, fileno=near.detach())
    proxy.attach(process, errors)
    return proxy


class _Jump:
    """One jump host's connection, made when it is first needed, closed after its last use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.transport: paramiko.Transport | None = None


class Connections:
    """Opens connections; shared by the hosts of a run. `log_in` makes the connections to jump hosts."""

    def __init__(self, log_in: Callable[[Endpoint, Connections], paramiko.Transport]) -> None:
        self._log_in = log_in
        self._jumps: dict[Endpoint, _Jump] = {}
        self._lock = threading.Lock()
        self._users = 0

    def open(self, endpoint: Endpoint, until: float) -> Connection:
        """A connection to an endpoint's port, by `until` (monotonic seconds).

        Raises:
            OSError: the host cannot be reached.
            ConnectError: a jump host on the way cannot be reached, or refuses the login or the forwarding.
        """
        if endpoint.proxy_command:
            return run_proxy(endpoint.proxy_command)
        if endpoint.jump is None:
            return dial(endpoint.target, endpoint.port, seconds=until - time.monotonic())
        return self._through(endpoint, endpoint.jump, until)

    def _through(self, endpoint: Endpoint, jump: Endpoint, until: float) -> Passage:
        target = (endpoint.target, endpoint.port)
        transport = self._connected(endpoint, jump)
        seconds = max(until - time.monotonic(), ALIVE_SECONDS)
        # paramiko's own limit is for the answer: a connection that accepts no more data blocks it earlier.
        watchdog = threading.Timer(seconds + ALIVE_SECONDS, transport.close)
        watchdog.daemon = True
        watchdog.start()
        try:
            return Passage(transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=seconds))
        except paramiko.ChannelException as error:
            raise ConnectError(
                endpoint.host,
                f"the jump host {jump.host} does not connect to {target[0]} port {target[1]}: {error.text}",
            ) from error
        except (paramiko.SSHException, OSError, EOFError) as error:
            if not _answers(transport):  # other users of this connection have lost it, too
                transport.close()
            why = str(error) or type(error).__name__
            raise ConnectError(
                endpoint.host, f"through the jump host {jump.host} to {target[0]} port {target[1]}: {why}"
            ) from error
        finally:
            watchdog.cancel()

    def _connected(self, endpoint: Endpoint, jump: Endpoint) -> paramiko.Transport:
        with self._lock:
            shared = self._jumps.setdefault(jump, _Jump())
        with shared.lock:
            if shared.transport is None or not shared.transport.is_active():
                try:
                    shared.transport = self._log_in(jump, self)
                except ConnectError as error:
                    raise type(error)(endpoint.host, f"jump host {error}") from error
            return shared.transport

    def enter(self) -> None:
        """Register a user of these ways."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """Unregister a user; with the last one the jump hosts' connections are closed."""
        with self._lock:
            self._users -= 1
            jumps = list(self._jumps.values()) if self._users == 0 else []
        for jump in reversed(jumps):  # the far ones first
            with jump.lock:
                if jump.transport is not None:
                    jump.transport.close()
                    jump.transport = None

    @staticmethod
    def said(connection: Connection | None) -> str:
        """The stderr of the command behind a connection, as the end of a message."""
        if isinstance(connection, ProxySocket) and connection.said:
            return f"; its ProxyCommand wrote: {connection.said}"
        return ""


def _answers(transport: paramiko.Transport) -> bool:
    """Whether the other end answers a request, even with a refusal."""
    try:
        transport.open_session(timeout=ALIVE_SECONDS).close()
    except paramiko.ChannelException:
        return True
    except (paramiko.SSHException, OSError, EOFError) as error:
        return transport.is_active() and "Timeout" not in str(error)
    return True
