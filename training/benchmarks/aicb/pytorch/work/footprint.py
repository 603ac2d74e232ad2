"""Counts the bytes that a call reads and writes on a rank. No torch, no numpy."""

from dataclasses import dataclass

from workloads.rows.calls import Call
from workloads.rows.ops import EXCHANGES, CommType

LINE_BYTES = 16
"""Buffers begin at multiples of it."""
GATHERING = frozenset({CommType.all_gather, CommType.all_gather_into_tensor})
SCATTERING = frozenset({CommType.reduce_scatter, CommType.reduce_scatter_tensor})


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes that a call reads and writes; a call in place has one buffer, which is its output."""

    output: int
    input: int = 0

    @property
    def total(self) -> int:
        """Bytes of both, each in whole lines."""
        return lines(self.output) + lines(self.input)


def lines(size: int) -> int:
    """`size` bytes in whole lines."""
    return -(-size // LINE_BYTES) * LINE_BYTES


def footprint(call: Call, rank: int) -> Footprint:
    """The buffers of `rank`, in bytes."""
    if call.comm_type in GATHERING:
        return Footprint(call.bytes, call.share)
    if call.comm_type in SCATTERING:
        return Footprint(call.share, call.bytes)
    if call.comm_type in EXCHANGES:
        return Footprint(call.bytes if call.out_splits is None else sum(call.out_splits), call.bytes)
    if call.comm_type is CommType.gather:
        return Footprint(call.bytes if rank == call.peer else 0, call.share)
    if call.comm_type is CommType.scatter:
        return Footprint(call.share, call.bytes if rank == call.peer else 0)
    return Footprint(call.bytes)
