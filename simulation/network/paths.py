"""Chooses the way of a flow among equal next hops by ns-3's hash; compiled by numba."""

from simulation.network import hashing
from simulation.network.event_heap import jit
from simulation.network.hashing import HOST_SEED
from simulation.network.packet_state import NONE, Simulation
from simulation.network.routing import Places

LOST = -3

hashed = jit(hashing.hashed)


@jit
def find_path(sim: Simulation, path: Places, source: int, target: int, sport: int, dport: int) -> None:
    """Write the ports from `source` to `target` into `path`; what is left of it stays NONE, all of it without a way."""
    word = sport | (dport << 16)
    sip, dip = sim.nodes[source].address, sim.nodes[target].address
    node, length = source, 0
    while node != target and sim.route_count[node, target] > 0:
        path[length] = next_port(sim, node, target, (sip, dip, word, HOST_SEED if node == source else node))
        node = sim.ports[path[length]].peer
        length += 1


@jit
def next_port(sim: Simulation, node: int, target: int, key: tuple[int, int, int, int]) -> int:
    """The port by which a packet leaves a node towards its target; the hash of `key` chooses among equal ones."""
    first, count = sim.route_begin[node, target], sim.route_count[node, target]
    if count == 1:
        return sim.route_hops[first]
    return sim.route_hops[first + hashed(key[0], key[1], key[2], key[3]) % count]


@jit
def port_from(sim: Simulation, node: int, cached: int, ends: tuple[int, int, int, int]) -> int:
    """The port by which a packet goes on from a node: that of its flow's path, if the path still leads over the node.

    `ends` are source, target and ports. NONE where it has arrived, LOST where no way leads on.
    """
    source, target, sport, dport = ends
    if node == target:
        return NONE
    if cached != NONE and sim.ports[cached].owner == node and not sim.ports[cached].down:
        return cached
    if sim.route_count[node, target] == 0:
        return LOST
    sip, dip = sim.nodes[source].address, sim.nodes[target].address
    return next_port(sim, node, target, (sip, dip, sport | (dport << 16), node))
