"""The algorithms of a collective in a group, each with the bus bandwidth that its hardware allows.

Ring (NCCL's, P GPUs of the group in each server): a GPU passes (P-1)/P of the traffic on over NVLink, and the servers'
border carries all of it over the group's NICs: min(nvlink * P/(P-1), nic * NICs).
Tree, PAT and NVLS across servers have the times of NCCL's tuning (nccl_tuning.py). NVLS in one server: each byte goes
once up to the switch and once down, whatever the number of GPUs. AllToAll: a GPU sends n-P of n-1 parts over its share
of the NICs, P-1 over NVLink.
"""

from typing import NamedTuple

from simulation.analytical.efficiency import ALLTOALL_TABLE, NIC, NVLINK
from simulation.analytical.machine import Cluster
from simulation.analytical.parts import NVLS_MEASURED_RANKS
from simulation.analytical.placement import GroupPlacement
from workloads.formats.simai_text import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, REDUCESCATTER

RING, TREE, NVLS, PAIRWISE, MEASURED = "ring", "tree", "NVLS", "pairwise", "measured"
NVLS_TREE, NVLS_RING, PAT = "NVLS, tree", "NVLS, ring", "PAT"
TUNED = (TREE, NVLS_TREE, NVLS_RING, PAT)


class Algorithm(NamedTuple):
    """bandwidth: bus bandwidth in GB/s (nccl-tests' definition) at full efficiency; limit: what bounds it."""

    algorithm: str
    bandwidth: float
    limit: str
    table: str


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests defines it (doc/PERFORMANCE.md)."""
    if collective == BROADCAST:
        return 1.0
    return (2 if collective == ALLREDUCE else 1) * (ranks - 1) / ranks


def algorithms(cluster: Cluster, placed: GroupPlacement, collective: str) -> list[Algorithm]:
    """Ring first; AllToAll has one.

    Raises:
        ValueError: no NIC falls to the group, though it spans servers.
    """
    if placed.servers > 1 and placed.nics <= 0:
        raise ValueError(f"its group spans {placed.servers} servers, but no NIC falls to it")
    if collective == ALLTOALL:
        return [_pairwise(cluster, placed)]
    ring = _ring(cluster, placed)
    if collective == ALLREDUCE:
        return [ring, *_reducing(cluster, placed, ring)]
    if collective in (ALLGATHER, REDUCESCATTER) and placed.servers == placed.ranks > 1:
        return [ring, ring._replace(algorithm=PAT)]
    return [ring]


def _reducing(cluster: Cluster, placed: GroupPlacement, ring: Algorithm) -> list[Algorithm]:
    """The algorithms of an AllReduce beside the ring."""
    if placed.servers == 1:
        if cluster.nvls is None:
            return []
        measured_factor = bus_factor(ALLREDUCE, NVLS_MEASURED_RANKS)
        nvls = cluster.nvls / measured_factor * bus_factor(ALLREDUCE, placed.ranks)
        return [Algorithm(NVLS, nvls, "NVSwitch", NVLINK)]
    found = [ring._replace(algorithm=TREE)]
    if cluster.nvls is not None and placed.per_server > 1:
        found += [ring._replace(algorithm=NVLS_TREE), ring._replace(algorithm=NVLS_RING)]
    return found


def _ring(cluster: Cluster, placed: GroupPlacement) -> Algorithm:
    if placed.servers == 1:
        return Algorithm(RING, cluster.nvlink, "NVLink", NVLINK)
    across = cluster.nic * placed.nics
    if placed.per_server > 1:
        within = cluster.nvlink * placed.per_server / (placed.per_server - 1)
        if within < across:
            return Algorithm(RING, within, "NVLink", NVLINK)
    return Algorithm(RING, across, "NIC", NIC)


def _pairwise(cluster: Cluster, placed: GroupPlacement) -> Algorithm:
    if placed.servers == 1:
        return Algorithm(PAIRWISE, cluster.nvlink, "NVLink", ALLTOALL_TABLE)
    others = placed.ranks - 1
    across = cluster.nic * placed.nics / placed.per_server * others / (placed.ranks - placed.per_server)
    if placed.per_server > 1:
        within = cluster.nvlink * others / (placed.per_server - 1)
        if within < across:
            return Algorithm(PAIRWISE, within, "NVLink", ALLTOALL_TABLE)
    return Algorithm(PAIRWISE, across, "NIC", ALLTOALL_TABLE)
