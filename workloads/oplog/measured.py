"""Gives each executed row its bytes and bandwidth, by the project's one definition of bandwidth.

algbw = bytes / time, busbw = algbw * factor(ranks). AICB calls GiB/s GB/s and takes factor 1 for all_to_all and for the
tensor variants; here the factors are nccl-tests', and a group of one rank, which uses no link, has bandwidth 0.
"""

from fractions import Fraction

from common.bandwidth import bus_factor
from workloads.oplog import UNITS
from workloads.oplog.facts import LogFacts
from workloads.rows.calls import SIZES
from workloads.rows.ops import CommType, LogItem, sent_bytes

FEW_BYTES = 1 << 20
"""Bytes from which on an operation counts for the best bandwidth: below it measures latency."""
_COLLECTIVES = {
    CommType.all_gather_into_tensor: "all_gather",
    CommType.reduce_scatter_tensor: "reduce_scatter",
    CommType.all_to_all_single: "all_to_all",
    CommType.isend: "send_recv",
    CommType.irecv: "send_recv",
}


def group_ranks(row: LogItem, facts: LogFacts | None = None) -> int:
    """Number of ranks that take part in a row: 2 for a send or receive; 1 where nothing says it."""
    if row.comm_type in (CommType.isend, CommType.irecv):
        return 2
    if row.ranks is not None:
        return len(row.ranks)
    named = facts.groups.get(row.comm_group.name) if facts and row.comm_group else None
    return len(named) if named else row.comm_group_size or 1


def executed_bytes(row: LogItem, facts: LogFacts | None = None) -> int:
    """Bytes of a row in a run: at a scale like 1/64 those that were sent, at scale 1 those that the workload states."""
    scale = Fraction(1 if facts is None else facts.scale)
    if scale == 1 or not row.comm_bytes:
        return round(row.comm_bytes)
    return sent_bytes(row, group_ranks(row, facts), scale, SIZES.get(row.dtype or "uint8", 1))


def bandwidths(row: LogItem, size_bytes: int, ms: float, ranks: int, units: str = "GB") -> tuple[float, float]:
    """algbw and busbw of a row in `units` a second (GB or GiB); 0 where nothing was sent, or no time was measured.

    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    return bandwidths_of(row.comm_type, size_bytes, ms, ranks, units) if row.is_communication else (0.0, 0.0)


def bandwidths_of(kind: CommType, size_bytes: int, ms: float, ranks: int, units: str = "GB") -> tuple[float, float]:
    """algbw and busbw in `units` a second (GB or GiB) of a type of communication; 0 where nothing was sent."""
    if ms <= 0 or not size_bytes:
        return 0.0, 0.0
    algbw = size_bytes / (ms / 1000) / UNITS[units]
    factor = bus_factor(_COLLECTIVES.get(kind, kind.name), ranks)
    return (algbw if factor else 0.0), algbw * factor
