"""Runs the Docker SDK over a host's SSH connection: each HTTP connection is one `docker system dial-stdio` channel.

docker-py's `ssh://` opens a second SSH connection and any number of channels; here they count towards the host's limit
and are kept open, since opening one takes about 0.2 s.
"""

import contextlib
import functools
import time
from contextlib import AbstractContextManager
from typing import Any, Protocol

import paramiko
import requests.adapters
import urllib3
import urllib3.connection

from run_benchmarks.errors import LinkLostError
from run_benchmarks.hosts.docker_client import BoundedAPIClient, BoundedChannel, Check, Limits
from run_benchmarks.hosts.login_shell import plain_command

BASE_URL = "http://docker:2375"  # never resolved: requests go through the channel
CHANNEL_URL = "http+docker://ssh"  # tells the SDK that a streamed answer's socket is a paramiko channel
MAX_CONNECTIONS = 3
DIAL = plain_command("exec docker system dial-stdio")
CONNECT_SECONDS = 10.0  # where a request has no time-out of its own


class ChannelHost(Protocol):
    """The part of a host behind SSH that is needed here: `ssh.SshHost` has such a client of its engine."""

    @property
    def name(self) -> str:
        """The host's name, as the user wrote it."""

    def cut_off(self, deadline: float) -> AbstractContextManager[None]:
        """Drop the connection if the code inside still runs after `deadline` (monotonic seconds)."""

    def channel(self, command: str, *, seconds: float) -> AbstractContextManager[paramiko.Channel]:
        """A channel that runs `command`, opened within `seconds`."""


class _ChannelConnection(urllib3.connection.HTTPConnection):
    """An HTTP connection whose socket is a channel; it holds one of the host's channel slots while it is open."""

    host_ssh: ChannelHost
    limits: Limits

    def connect(self) -> None:
        timeout = self.timeout if isinstance(self.timeout, int | float) else None
        until = time.monotonic() + (CONNECT_SECONDS if timeout is None else timeout)
        self._slot = contextlib.ExitStack()
        try:
            with self.host_ssh.cut_off(until):
                channel = self._slot.enter_context(self.host_ssh.channel(DIAL, seconds=until - time.monotonic()))
        except TimeoutError as error:
            raise LinkLostError(self.host_ssh.name, "all channels are busy") from error
        channel.settimeout(timeout)
        self.sock = BoundedChannel(channel, self.limits)

    def close(self) -> None:
        super().close()
        if (slot := getattr(self, "_slot", None)) is not None:
            slot.close()


class _ChannelPool(urllib3.HTTPConnectionPool):
    def __init__(self, host: ChannelHost, limits: Limits) -> None:
        super().__init__("docker", maxsize=MAX_CONNECTIONS, block=True)
        self._host_ssh, self._limits = host, limits

    def _new_conn(self) -> _ChannelConnection:
        connection = _ChannelConnection("docker")
        connection.host_ssh, connection.limits = self._host_ssh, self._limits
        return connection


class _ChannelAdapter(requests.adapters.HTTPAdapter):
    """Sends every request of a session through one host's pool of channels."""

    def __init__(self, host: ChannelHost, limits: Limits) -> None:
        self._pool = _ChannelPool(host, limits)
        super().__init__()

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> urllib3.HTTPConnectionPool:
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        return str(request.path_url)

    def close(self) -> None:
        self._pool.close()


class ChannelAPIClient(BoundedAPIClient):
    """A Docker client of a remote engine; its calls fail with the exceptions of a local one, docker's and requests'."""

    def __init__(self, host: ChannelHost, *, timeout: int, check: Check | None = None) -> None:
        self._host_ssh = host
        super().__init__(check=check, base_url=BASE_URL, version="auto", timeout=timeout)
        self.base_url = CHANNEL_URL

    @functools.cached_property
    def _channel_adapter(self) -> _ChannelAdapter:
        return _ChannelAdapter(self._host_ssh, self.limits)

    def get_adapter(self, url: str) -> requests.adapters.BaseAdapter:
        """The channel adapter, whatever the URL."""
        return self._channel_adapter

    def close(self) -> None:
        """Close the session and every channel."""
        self._channel_adapter.close()
        super().close()
