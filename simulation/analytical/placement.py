"""Finds the servers that a group of ranks in Megatron's order spans, and its GPUs and NICs in each."""

from math import gcd
from typing import NamedTuple

from simulation.analytical.machine import Cluster, Division
from workloads.rows.grid import MegatronGrid


class GroupPlacement(NamedTuple):
    """ranks of the group, stride between them; servers it spans, per_server: its GPUs in the server with the fewest.

    nics: the NICs of that server that fall to the group, a fraction where GPUs share NICs.
    """

    ranks: int
    stride: int
    servers: int
    per_server: int
    nics: float


def ranks_and_stride(group: str, division: Division) -> tuple[int, int]:
    """Size of a group, and the distance of its neighbours in ranks."""
    grid = MegatronGrid(division.tp, division.ep, division.dp // division.ep, division.pp)
    return grid.count(group), grid.stride(group)


def place(group: str, division: Division, cluster: Cluster) -> GroupPlacement:
    """The placement of the group that is worst off, among all groups of the kind."""
    ranks, stride = ranks_and_stride(group, division)
    size = cluster.gpus_per_server
    if ranks <= 1:
        return GroupPlacement(1, stride, 1, 1, 0.0)
    if cluster.gpus <= size:
        return GroupPlacement(ranks, stride, 1, ranks, float(cluster.nics_per_server))
    if stride >= size:
        return GroupPlacement(ranks, stride, ranks, 1, cluster.nics_per_server / size)
    step = gcd(ranks * stride, size)
    blocks = min(max(1, cluster.gpus // (ranks * stride)), size // step)  # further ones stand as these do
    starts = {(number * ranks * stride + offset) % size for number in range(blocks) for offset in range(stride)}
    worst = [_from(start, ranks, stride, size) for start in starts]
    across = [(servers, fewest) for servers, fewest in worst if servers > 1]
    if not across:
        return GroupPlacement(ranks, stride, 1, ranks, float(cluster.nics_per_server))
    fewest = min(fewest for _, fewest in across)
    servers = max(servers for servers, _ in across)
    return GroupPlacement(ranks, stride, servers, fewest, cluster.nics_per_server * fewest / size)


def _from(start: int, ranks: int, stride: int, size: int) -> tuple[int, int]:
    """Servers and the fewest ranks in one of them, of a group that starts at a place in its first server."""
    servers = (start + (ranks - 1) * stride) // size + 1
    first = -(-(size - start) // stride)
    if servers == 1:
        return 1, ranks
    last_start = start + (ranks - 1) * stride
    last = (last_start % size) // stride + 1
    return servers, min(first, last, *([size // stride] if servers > 2 else []))
