"""Docker clients whose calls have a time-out in total, whereas the SDK's own restarts with every byte.

A streaming call (an image, a build, logs) may take any time; its time-out limits the silence of the engine. If the
client has a `check`, it is called while a call waits, and an exception from it ends the call.
"""

import contextlib
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeVar

import docker
import docker.transport
import docker.transport.unixconn
import paramiko
import requests
import requests.adapters

from run_benchmarks.hosts.login_shell import Beginning

ValueT = TypeVar("ValueT")
Check = Callable[[], None]
CHECK_SECONDS = 0.5
MAX_ANSWER_BYTES = 64 << 20  # of a call that does not stream
SEND_BYTES = 1 << 15  # size of a packet: paramiko sends no more at once


class Limits(threading.local):
    """Limits of this thread's present call: `until` is monotonic seconds, `left` bytes to be read."""

    def __init__(self, check: Check | None) -> None:
        self.check = check
        self.until = self.left = math.inf

    def count(self, size: int) -> int:
        """Count `size` bytes that were read; OSError if the answer is longer than any that we ask for."""
        self.left -= size
        if self.left < 0:
            raise OSError(f"the engine answers with more than {MAX_ANSWER_BYTES} bytes")
        return size

    def wait(
        self, settimeout: Callable[[float | None], None], quiet: float | None, action: Callable[[], ValueT]
    ) -> ValueT:
        """Run `action` on a socket, for at most `quiet` seconds.

        Raises:
            TimeoutError: the time is over.
            Exception: whatever `check` raises.
        """
        end = min(self.until, math.inf if quiet is None else time.monotonic() + quiet)
        try:
            while True:
                if self.check is not None:
                    self.check()
                left = end - time.monotonic()
                if left <= 0:
                    raise TimeoutError("timed out")
                step = left if self.check is None else min(left, CHECK_SECONDS)
                settimeout(None if math.isinf(step) else step)
                try:
                    return action()
                except TimeoutError:
                    continue
        finally:
            settimeout(quiet)


class BoundedAPIClient(docker.APIClient):
    """A Docker client with bounded calls, see the module. Subclasses make connections that use `limits`."""

    def __init__(self, *, check: Check | None = None, **options: Any) -> None:
        self.limits = Limits(check)
        super().__init__(**options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request and, unless it is streamed, read the answer; both within the request's time-out."""
        timeout = options.get("timeout")
        if options.get("stream") or not isinstance(timeout, int | float):
            return super().send(request, **options)
        self.limits.until, self.limits.left = time.monotonic() + timeout, MAX_ANSWER_BYTES
        try:
            return super().send(request, **options)
        finally:
            self.limits.until = self.limits.left = math.inf

    @contextlib.contextmanager
    def total(self, seconds: float) -> Iterator[None]:
        """Limit everything read in this context to `seconds`, including streams."""
        self.limits.until = time.monotonic() + seconds
        try:
            yield
        finally:
            self.limits.until = math.inf

    def _disable_socket_timeout(self, socket: Any) -> None:
        """Do nothing: the SDK would allow the engine unlimited silence in the middle of an image."""


class BoundedSocket(socket.socket):
    """A socket that waits as `limits` allows; its own time-out limits the silence of the peer."""

    limits: Limits

    def recv_into(self, *arguments: Any) -> int:
        """Receive into a buffer; returns the number of bytes, which count towards the limits."""
        receive = super().recv_into
        return self.limits.count(self.limits.wait(self.settimeout, self.gettimeout(), lambda: receive(*arguments)))

    def sendall(self, data: Any, flags: int = 0) -> None:
        """Send all bytes, and check the limits while the engine takes none."""
        send = super().send
        view = memoryview(data).cast("B")
        sent = 0
        while sent < len(view):
            rest = view[sent:]
            sent += self.limits.wait(self.settimeout, self.gettimeout(), partial(send, rest, flags))


class BoundedChannel:
    """A paramiko channel in place of a socket that waits as `limits` allows.

    Output of the login shell before the command's mark is dropped.
    """

    def __init__(self, channel: paramiko.Channel, limits: Limits) -> None:
        self._channel, self._limits = channel, limits
        self._after: list[bytes] = []
        self._begun = Beginning(self._after.append)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._channel, name)

    def makefile(self, mode: str = "rb", bufsize: int = -1) -> paramiko.ChannelFile:
        """The channel as a file, from which the HTTP client reads."""
        return paramiko.ChannelFile(self, mode, bufsize)  # type: ignore[arg-type]

    def recv(self, size: int) -> bytes:
        """The next bytes of the command, at most `size`; none at its end.

        Raises:
            ConnectionError: the login shell ends before the command begins.
        """
        while not self._begun.seen:
            if not (chunk := self._receive(size)):
                raise ConnectionError(f"the login shell ended before its command began: {self._begun.noise[:200]!r}")
            self._begun.add(chunk)
        if self._after:
            first = self._after.pop()
            if len(first) > size:
                self._after.append(first[size:])
            return first[:size]
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        channel = self._channel
        data = self._limits.wait(channel.settimeout, channel.gettimeout(), partial(channel.recv, size))
        self._limits.count(len(data))
        return data

    def sendall(self, data: bytes) -> None:
        """Send all bytes, and check the limits while the channel takes none."""
        channel, sent = self._channel, 0
        while sent < len(data):
            rest = data[sent : sent + SEND_BYTES]
            sent += self._limits.wait(channel.settimeout, channel.gettimeout(), partial(channel.send, rest))


class LocalAPIClient(BoundedAPIClient):
    """A client of the engine that the environment names; one reached over TCP or ssh keeps the SDK's time-outs."""

    def mount(self, prefix: str | bytes, adapter: requests.adapters.BaseAdapter) -> None:
        """Take our own adapter instead of the SDK's where the engine is reached over a Unix socket."""
        if isinstance(adapter, docker.transport.UnixHTTPAdapter):
            adapter = _UnixAdapter(adapter, self.limits)
        super().mount(prefix, adapter)


class _UnixConnection(docker.transport.unixconn.UnixHTTPConnection):
    limits: Limits

    def connect(self) -> None:
        super().connect()
        plain = self.sock
        assert plain is not None
        timeout = plain.gettimeout()
        bounded = BoundedSocket(plain.family, plain.type, plain.proto, fileno=plain.detach())
        bounded.limits = self.limits
        bounded.settimeout(timeout)
        self.sock = bounded


class _UnixPool(docker.transport.unixconn.UnixHTTPConnectionPool):
    limits: Limits

    def _new_conn(self) -> _UnixConnection:  # type: ignore[override]
        connection = _UnixConnection(self.base_url, self.socket_path, self.timeout)  # type: ignore[arg-type]
        connection.limits = self.limits
        return connection


class _UnixAdapter(docker.transport.UnixHTTPAdapter):
    def __init__(self, like: Any, limits: Limits) -> None:
        super().__init__(f"http+unix://{like.socket_path}", like.timeout, max_pool_size=like.max_pool_size)
        self._limits = limits

    def get_connection(self, url: Any, proxies: Any = None) -> _UnixPool:
        with self.pools.lock:
            pool: _UnixPool | None = self.pools.get(url)
            if pool is None:
                pool = _UnixPool(url, self.socket_path, self.timeout, maxsize=self.max_pool_size)
                pool.limits = self._limits
                self.pools[url] = pool
            return pool
