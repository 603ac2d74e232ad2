"""Finds the server of each GPU of a network."""

from typing import NamedTuple

from simulation.topology.fabric import GPU, NVSWITCH, Fabric


class Homes(NamedTuple):
    """The server of each GPU, its place there, and the NVSwitch that adds for each server."""

    server: list[int]
    slot: list[int]
    switch: dict[int, int]


def homes_of(fabric: Fabric) -> Homes:
    """GPUs that share an NVSwitch are in one server; without NVSwitches as many neighbours as the file says."""
    first_switch: dict[int, int] = {}
    for one, other, _kind in fabric.links():
        for gpu, switch in ((one, other), (other, one)):
            if fabric.roles[gpu] == GPU and fabric.roles[switch] == NVSWITCH:
                first_switch[gpu] = min(switch, first_switch.get(gpu, switch))
    numbers: dict[int, int] = {}
    switches: dict[int, int] = {}
    filled: dict[int, int] = {}
    servers, slots = [], []
    for gpu in range(fabric.gpus):
        key = first_switch.get(gpu, -1 - gpu // max(fabric.gpus_per_server, 1))
        server = numbers.setdefault(key, len(numbers))
        if key >= 0:
            switches[server] = key
        servers.append(server)
        slots.append(filled.get(server, 0))
        filled[server] = slots[-1] + 1
    return Homes(servers, slots, switches)
