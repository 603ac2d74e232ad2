"""Makes the object that reaches a host: the only place that tells the head node from a host behind ssh."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.endpoint import Endpoint, is_local
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.hosts.ssh_login import connect
from run_benchmarks.hosts.ways import Ways


def hosts_of(names: Iterable[str], endpoint_of: Callable[[str], Endpoint]) -> dict[str, Host]:
    """One Host per name, not connected yet; those behind the same jump host share its connection.

    `endpoint_of` is asked for the hosts behind ssh alone.
    """
    ways = Ways(connect)
    return {name: LocalHost(name) if is_local(name) else SshHost(endpoint_of(name), ways) for name in names}
