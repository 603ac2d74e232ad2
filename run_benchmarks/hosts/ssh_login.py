"""The log-in to a host over SSH: its host key is checked, and whatever goes wrong says what to do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import paramiko

from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts.dialling import dial
from run_benchmarks.hosts.host_keys import RefuseUnknownKey, fingerprint, load

if TYPE_CHECKING:
    from run_benchmarks.hosts.ssh import Endpoint

CONNECT_SECONDS = 10.0


def log_in(client: paramiko.SSHClient, endpoint: Endpoint) -> None:
    """Connect `client`.

    Raises:
        HostKeyError: the host's key is unknown or another than the recorded one.
        ConnectError: the host is not reached, or does not let us in.
        paramiko.SSHException: anything else, such as a banner that does not come.
    """
    client.set_missing_host_key_policy(RefuseUnknownKey(endpoint.host, endpoint.known_hosts))
    until = time.monotonic() + CONNECT_SECONDS
    try:
        client.get_host_keys().update(load(endpoint.known_hosts, endpoint.host, endpoint.port))
        connection = dial(endpoint.host, endpoint.port, seconds=CONNECT_SECONDS)
        left = max(until - time.monotonic(), 0.1)
        client.connect(
            endpoint.host,
            port=endpoint.port,
            username=endpoint.user,
            key_filename=str(endpoint.key) if endpoint.key else None,
            look_for_keys=endpoint.key is None,
            allow_agent=endpoint.key is None,
            sock=connection,
            timeout=left,
            banner_timeout=left,
            auth_timeout=left,
        )
    except paramiko.BadHostKeyException as error:
        raise HostKeyError(
            endpoint.host,
            f"host key CHANGED: recorded is {fingerprint(error.expected_key)}, it shows {fingerprint(error.key)}; "
            f"somebody may be in between. If the host was reinstalled, remove its line from {endpoint.known_hosts} "
            f"(ssh-keygen -R) and run `run.py trust`",
        ) from error
    except paramiko.AuthenticationException as error:
        key = f"key {endpoint.key}" if endpoint.key else "the agent's and default keys"
        raise ConnectError(endpoint.host, f"log-in as {endpoint.user} with {key} was refused ({error})") from error
    except EOFError as error:
        raise ConnectError(endpoint.host, f"port {endpoint.port}: the connection was closed at the log-in") from error
    except OSError as error:
        raise ConnectError(
            endpoint.host, f"port {endpoint.port} cannot be reached: {str(error) or type(error).__name__}"
        ) from error
