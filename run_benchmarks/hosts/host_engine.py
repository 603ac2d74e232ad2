"""Keeps one client of a host's Docker engine, which everybody who asks the host shares."""

import contextlib
import threading
from collections.abc import Callable

from docker import APIClient
from docker.errors import DockerException

from run_benchmarks.errors import ClusterDynoError, ConnectError
from run_benchmarks.hosts.base import DOCKER_SECONDS
from run_benchmarks.hosts.docker_client import Check


class HostEngine:
    """The engine of one host. `make` makes a client from time-out (seconds) and check, as Host.open_docker has them."""

    def __init__(self, host: str, make: Callable[[int, Check | None], APIClient]) -> None:
        self._host, self._make = host, make
        self._client: APIClient | None = None
        self._lock = threading.Lock()

    def client(self) -> APIClient:
        """The client that everybody shares, made at the first call.

        Raises:
            ConnectError: no engine answers.
        """
        with self._lock:
            if self._client is None:
                self._client = self.open(DOCKER_SECONDS)
            return self._client

    def open(self, timeout: int, check: Check | None = None) -> APIClient:
        """A new client of the engine, whose calls may take `timeout` seconds; the caller closes it.

        Raises:
            ConnectError: no engine answers.
        """
        try:
            return self._make(timeout, check)
        except DockerException as error:
            if isinstance(error.__cause__, ClusterDynoError):
                raise error.__cause__ from error
            raise ConnectError(self._host, f"no Docker engine answers: {error}") from error

    def close(self) -> None:
        """Close the shared client, in any state of its connection; the next call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):  # a broken connection must not keep us from dropping it
                client.close()
