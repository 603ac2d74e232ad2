"""Runs `run.py trust`: shows the keys of all hosts and jump hosts, and records the unknown ones."""

from collections.abc import Callable

from run_benchmarks.console.console import complain, say
from run_benchmarks.console.language import words
from run_benchmarks.errors import ConnectError, HostKeyError
from run_benchmarks.hosts import host_keys
from run_benchmarks.hosts.connections import Connections
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.ssh_login import connect, scan
from run_benchmarks.settings.cluster import ClusterConf
from run_benchmarks.settings.host_access import endpoint_of


def trust_hosts(cluster: ClusterConf, agree: Callable[[str], bool]) -> dict[str, bool]:
    """Ask for each unknown key whether to record it; by host, whether it answered and showed no wrong key.

    A host behind a jump host is asked through it, so that the jump host's key comes first.
    """
    found = dict[str, bool]()
    asked: set[Endpoint] = set()
    ways = Connections(connect)
    ways.enter()
    try:
        for name in cluster.ssh_hosts:
            for endpoint in endpoint_of(name, cluster).way:
                if endpoint not in asked:
                    asked.add(endpoint)
                    found[endpoint.host] = _trust(endpoint, ways, agree) and found.get(endpoint.host, True)
    finally:
        ways.leave()
    return found


def _trust(endpoint: Endpoint, ways: Connections, agree: Callable[[str], bool]) -> bool:
    host, known = endpoint.host, host_keys.load(endpoint)
    try:
        key = scan(endpoint, ways)
    except ConnectError as error:
        complain(str(error))
        return False
    shown = host_keys.fingerprint(key)
    try:
        host_keys.verify(endpoint, known, key)
    except HostKeyError as error:
        same_kind = any(other.get_name() == key.get_name() for other in known.keys)
        if same_kind or key in known.revoked or known.authorities:
            complain(str(error))
            return False
    else:
        said = words("{key} is recorded", key=shown) if key in known.keys else words("{key} is certified", key=shown)
        say(f"{host}: {said}")
        return True
    if agree(f"{host}: {shown}: {words('trust it?')}"):
        host_keys.record(endpoint, key)
        say(words("{host}: recorded in {file}", host=host, file=endpoint.known_hosts))
    return True
