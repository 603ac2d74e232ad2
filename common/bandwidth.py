"""Computes bandwidth as nccl-tests defines it: one convention for all records of this project.

S is the size of a message in bytes, t the time of one operation in seconds, n the number of ranks, GB = 1e9 bytes.
algbw = S / t. busbw = algbw * factor(n) is comparable with the speed of the hardware's links for any n.

Source: nccl-tests, doc/PERFORMANCE.md.
"""

from collections.abc import Callable
from typing import Literal

GB = 1e9
Op = Literal["sum", "prod", "min", "max", "avg"]
"""Operations of a reduction on the elements of all ranks."""
CONVENTION = (
    "nccl-tests: algbw = S / t, busbw = algbw * factor(world_size); GB = 1e9 bytes; "
    "t = p50 over iterations of the slowest rank's time"
)


def _reduce_and_spread(world_size: int) -> float:
    return 2 * (world_size - 1) / world_size


def _all_but_own(world_size: int) -> float:
    return (world_size - 1) / world_size


def _whole(world_size: int) -> float:
    return 1.0 if world_size > 1 else 0.0


def _nothing(world_size: int) -> float:
    return 0.0


# S means: all_reduce, broadcast, reduce: one rank's buffer; send_recv: one message, in one direction; all_gather: the
# whole output; reduce_scatter: the whole input; all_to_all: one rank's input, all chunks; gather, scatter: all chunks
# at the root. A barrier has no S.
_FACTORS: dict[str, Callable[[int], float]] = {
    "all_reduce": _reduce_and_spread, "all_gather": _all_but_own, "reduce_scatter": _all_but_own,
    "all_to_all": _all_but_own, "all_to_all_uneven": _all_but_own, "all_to_all_v": _all_but_own,
    "hypercube": _all_but_own, "gather": _all_but_own, "scatter": _all_but_own, "broadcast": _whole, "reduce": _whole,
    "send_recv": _whole, "send_recv_two_way": _whole, "send_recv_ring": _whole, "barrier": _nothing,
}  # fmt: skip


COLLECTIVES = frozenset(_FACTORS)


def bus_factor(collective: str, world_size: int) -> float:
    """busbw / algbw (dimensionless) of `collective` among `world_size` ranks; 0 for one rank, which uses no link.

    Source: nccl-tests, doc/PERFORMANCE.md.

    Raises:
        ValueError: the collective is unknown, or the world size is below 1.
    """
    if collective not in _FACTORS:
        raise ValueError(f"unknown collective {collective!r}; allowed: {', '.join(sorted(_FACTORS))}")
    if world_size < 1:
        raise ValueError(f"world_size = {world_size}; allowed: 1 or more")
    return _FACTORS[collective](world_size)


def algbw_gbps(size_bytes: int, seconds: float) -> float:
    """Algorithm bandwidth S / t in GB/s (1e9 bytes) of a message of `size_bytes` in `seconds`.

    Source: nccl-tests, doc/PERFORMANCE.md.

    Raises:
        ValueError: `seconds` is not above 0.
    """
    if seconds <= 0:
        raise ValueError(f"seconds = {seconds}; allowed: above 0")
    return size_bytes / seconds / GB


def busbw_gbps(collective: str, size_bytes: int, seconds: float, world_size: int) -> float:
    """Bus bandwidth in GB/s (1e9 bytes): `algbw_gbps` times `bus_factor`.

    Source: nccl-tests, doc/PERFORMANCE.md.

    Raises:
        ValueError: as for `bus_factor` and `algbw_gbps`.
    """
    return algbw_gbps(size_bytes, seconds) * bus_factor(collective, world_size)


# Each rank of a host sends by itself to ranks of other hosts: its messages, or its parts for them, add up.
_MESSAGES = ("send_recv", "send_recv_two_way")
_PARTS = ("all_to_all", "all_to_all_uneven", "all_to_all_v", "hypercube")
_AT_THE_ROOT = ("gather", "scatter")


def host_factor(collective: str, world_size: int, hosts: int) -> float:
    """Bytes per second that leave the busiest host for others / algbw (dimensionless), among `hosts` hosts of equally
    many ranks, in one direction; for one host `bus_factor`.

    A ring crosses each host's border once, so that the bus bandwidth is the host's. The messages of pairs of ranks, and
    the parts of an all_to_all, cross it rank by rank: of 8 ranks a host, 8 messages at once.

    Raises:
        ValueError: as for `bus_factor`, or the ranks cannot be spread equally over the hosts.
    """
    factor = bus_factor(collective, world_size)
    if hosts < 1 or world_size % hosts:
        raise ValueError(f"{world_size} ranks on {hosts} hosts; allowed: equally many on each")
    width = world_size // hosts
    if hosts == 1:
        return factor
    if collective in _MESSAGES:
        return float(width)
    elsewhere = (world_size - width) / world_size
    return width * elsewhere if collective in _PARTS else elsewhere if collective in _AT_THE_ROOT else factor


def host_gbps(collective: str, busbw: float, world_size: int, hosts: int) -> float:
    """GB/s (1e9 bytes) that leave the busiest of `hosts` hosts in one direction, from the bus bandwidth in GB/s.

    0 for one rank. Where the hosts have different numbers of ranks, the bus bandwidth.
    """
    if world_size < 2 or hosts < 1 or world_size % hosts or busbw == 0:
        return busbw
    return busbw * host_factor(collective, world_size, hosts) / bus_factor(collective, world_size)
