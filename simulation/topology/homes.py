"""Finds the server of each GPU of a network."""

from typing import NamedTuple

from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.structure import joined


class Homes(NamedTuple):
    """Each GPU's server and place there; a server's NVSwitches that add: those that all its GPUs link to."""

    server: list[int]
    slot: list[int]
    switches: dict[int, list[int]]


def homes_of(fabric: Fabric) -> Homes:
    """GPUs that NVSwitches join are in one server; without NVSwitches as many neighbours as the file says."""
    roots = joined(fabric)
    with_switch = {roots[node] for node, role in enumerate(fabric.roles) if role == NVSWITCH}
    numbers: dict[int, int] = {}
    filled: dict[int, int] = {}
    servers, slots = [], []
    for gpu in range(fabric.gpus):
        key = roots[gpu] if roots[gpu] in with_switch else -1 - gpu // max(fabric.gpus_per_server, 1)
        server = numbers.setdefault(key, len(numbers))
        servers.append(server)
        slots.append(filled.get(server, 0))
        filled[server] = slots[-1] + 1
    return Homes(servers, slots, _adding(fabric, servers, filled))


def _adding(fabric: Fabric, servers: list[int], gpus_of: dict[int, int]) -> dict[int, list[int]]:
    """The NVSwitches of each server to which as many GPUs have links as it has."""
    linked: dict[int, set[int]] = {}
    roles = fabric.roles
    for one, other, _kind in fabric.links():
        if roles[other] == NVSWITCH and roles[one] == GPU:
            linked.setdefault(other, set()).add(one)
        elif roles[one] == NVSWITCH and roles[other] == GPU:
            linked.setdefault(one, set()).add(other)
    found: dict[int, list[int]] = {}
    for switch, gpus in sorted(linked.items()):
        server = servers[next(iter(gpus))]
        if len(gpus) == gpus_of[server]:
            found.setdefault(server, []).append(switch)
    return found
