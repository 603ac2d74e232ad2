"""Chooses the way of a flow among equal next hops by ns-3's hash; compiled by numba."""

import numpy as np

from simulation.network.event_heap import jit
from simulation.network.packet_state import Places, Simulation

HOST_SEED = 0x8BADF00D


@jit
def hashed(first: int, second: int, third: int, seed: int) -> int:
    """MurmurHash3 (32 bits) of three words."""
    mask = np.int64(0xFFFFFFFF)
    h = np.int64(seed)
    for word in (first, second, third):
        k = (word * 0xCC9E2D51) & mask
        k = ((k << 15) | (k >> 17)) & mask
        k = (k * 0x1B873593) & mask
        h ^= k
        h = ((h << 13) | (h >> 19)) & mask
        h = (h * 5 + 0xE6546B64) & mask
    h ^= 12
    h ^= h >> 16
    h = (h * 0x85EBCA6B) & mask
    h ^= h >> 13
    h = (h * 0xC2B2AE35) & mask
    return h ^ (h >> 16)


@jit
def find_path(sim: Simulation, path: Places, source: int, target: int, sport: int, dport: int) -> None:
    """Write the ports from `source` to `target` into `path`; what is left of it stays NONE."""
    word = sport | (dport << 16)
    sip, dip = sim.nodes[source].address, sim.nodes[target].address
    node, length = source, 0
    while node != target:
        first, count = sim.route_begin[node, target], sim.route_count[node, target]
        choice = 0
        if count > 1:
            choice = hashed(sip, dip, word, HOST_SEED if node == source else node) % count
        path[length] = sim.route_hops[first + choice]
        node = sim.ports[path[length]].peer
        length += 1
