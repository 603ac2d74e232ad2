"""The log-in to a host over SSH: its host key is checked, and whatever goes wrong says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import paramiko
from paramiko.ssh_exception import NoValidConnectionsError

from run_benchmarks.errors import ConnectError, HostKeyError
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
    try:
        client.get_host_keys().update(load(endpoint.known_hosts, endpoint.host, endpoint.port))
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
        raise ConnectError(endpoint.host, f"port {endpoint.port} cannot be reached: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    """Why no connection came about; paramiko hides it behind one error for all the addresses of a name."""
    if isinstance(error, NoValidConnectionsError):
        return "; ".join(sorted({str(each) for each in error.errors.values()}))
    return str(error) or type(error).__name__
