"""Makes the object that reaches a host: the only place that tells the head node, hosts behind ssh and Slurm's apart."""

from collections.abc import Callable, Iterable

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.connections import Connections
from run_benchmarks.hosts.endpoint import Endpoint, is_local
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.slurm.allocation import Allocation
from run_benchmarks.hosts.slurm.host import SlurmHost
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.hosts.ssh_login import connect


def hosts_of(
    names: Iterable[str], endpoint_of: Callable[[str], Endpoint], allocation: Allocation | None = None
) -> dict[str, Host]:
    """One Host per name, not connected yet; those behind the same jump host share its connection.

    `endpoint_of` is asked for the hosts behind ssh alone; those of an allocation are reached through it.
    """
    if allocation is not None:
        return {name: SlurmHost(name, allocation) for name in names}
    ways = Connections(connect)
    return {name: LocalHost(name) if is_local(name) else SshHost(endpoint_of(name), ways) for name in names}
