"""The times of trees, PAT and NVLS across servers, as NCCL reckons them when it chooses an algorithm.

A latency for the start and for every hop, and the bytes of the busiest link over its bandwidth. Source: NCCL 2.2x,
src/graph/tuning.cc (latencies in microseconds by protocol and link, efficiencies of protocols, NVLS and PAT).
"""

from math import log2
from typing import NamedTuple

from simulation.analytical.algorithms import NVLS_RING, NVLS_TREE, PAT, TREE
from simulation.analytical.machine import Cluster
from simulation.analytical.placement import GroupPlacement

LL, LL128, SIMPLE = 0, 1, 2
MIB = 1 << 20
PAT_BYTES = (MIB // 2, MIB)  # SimCCL 2.30 uses PAT between these sizes, as measured with NCCL 2.30.7 on H20
_TREE_START_US, _TREE_NVLINK_US, _TREE_NIC_US = (6.8, 14.0, 8.4), (0.6, 1.25, 4.0), (5.0, 8.5, 14.0)
_TREE_EFFICIENCY = (1 / 3.8, 120 / 128, 0.92)
ONE_HOP_US = _TREE_START_US[SIMPLE] + _TREE_NIC_US[SIMPLE]
"""The start of a large message and one hop through NICs."""
_PAT_START_US, _PAT_RANK_US, _PAT_HOP_DIVISOR, _PAT_EFFICIENCY = 8.0, 2.8, 3.5, 0.75
_NVLS_US, _NVLS_TREE_NIC_US, _NVLS_NIC_US, _NVLS_EFFICIENCY = 25.0, 20.9, 18.0, 0.85


class TunedTime(NamedTuple):
    """Microseconds of start and hops, and of the bytes on the busiest link."""

    latency_us: float
    bandwidth_us: float


def protocol(size_bytes: int) -> int:
    """NCCL's number of a ring's or tree's protocol: the labels that SimCCL 2.30 gives by size."""
    return LL if size_bytes <= 4 * MIB else LL128 if size_bytes <= 16 * MIB else SIMPLE


def tuned(algorithm: str, cluster: Cluster, placed: GroupPlacement, size_bytes: int) -> TunedTime:
    """The time of one of algorithms.TUNED for a message of `size_bytes` in a group that spans servers."""
    size, ranks, servers = float(size_bytes), placed.ranks, placed.servers
    nics = cluster.nic * placed.nics
    if algorithm == TREE:
        label = protocol(size_bytes)
        hops = (ranks / servers - 1) * _TREE_NVLINK_US[label] + log2(servers) * _TREE_NIC_US[label]
        slowest = min(nics, cluster.nvlink) if placed.per_server > 1 else nics
        return TunedTime(_TREE_START_US[label] + 2 * hops, _us(2 * size, slowest * _TREE_EFFICIENCY[label]))
    if algorithm == PAT:
        hops = log2(ranks) * _TREE_NIC_US[SIMPLE] / _PAT_HOP_DIVISOR + ranks * _PAT_RANK_US
        return TunedTime(_PAT_START_US + hops, _us(size * (ranks - 1) / ranks, nics * _PAT_EFFICIENCY))
    assert algorithm in (NVLS_TREE, NVLS_RING)
    inside = _us(size, cluster.nvlink * _NVLS_EFFICIENCY)
    if algorithm == NVLS_TREE:
        return TunedTime(_NVLS_US + 2 * log2(servers) * _NVLS_TREE_NIC_US, max(inside, _us(2 * size, nics)))
    across = _us(2 * size * (servers - 1) / servers, nics)
    return TunedTime(_NVLS_US + 2 * (servers - 1) * _NVLS_NIC_US, max(inside, across))


def pat_is_used(size_bytes: int) -> bool:
    """Whether a message has a size for which PAT was measured to be faster than the ring."""
    return PAT_BYTES[0] <= size_bytes <= PAT_BYTES[1]


def _us(size_bytes: float, gbps: float) -> float:
    """Microseconds for bytes at GB/s."""
    return size_bytes / gbps / 1e3
