"""Finds the server of each GPU of a network."""

from typing import NamedTuple

from simulation.topology.fabric import NVSWITCH, Fabric
from simulation.topology.structure import joined


class Homes(NamedTuple):
    """The server of each GPU, its place there, and the NVSwitch that adds for each server."""

    server: list[int]
    slot: list[int]
    switch: dict[int, int]


def homes_of(fabric: Fabric) -> Homes:
    """GPUs that NVSwitches join are in one server; without NVSwitches as many neighbours as the file says."""
    roots = joined(fabric)
    first_switch: dict[int, int] = {}
    for node, role in enumerate(fabric.roles):
        if role == NVSWITCH:
            first_switch.setdefault(roots[node], node)
    numbers: dict[int, int] = {}
    switches: dict[int, int] = {}
    filled: dict[int, int] = {}
    servers, slots = [], []
    for gpu in range(fabric.gpus):
        key = roots[gpu] if roots[gpu] in first_switch else -1 - gpu // max(fabric.gpus_per_server, 1)
        server = numbers.setdefault(key, len(numbers))
        if key >= 0:
            switches[server] = first_switch[key]
        servers.append(server)
        slots.append(filled.get(server, 0))
        filled[server] = slots[-1] + 1
    return Homes(servers, slots, switches)
