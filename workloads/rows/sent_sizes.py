"""Computes the bytes that are sent for a row at a scale: one rule for what runs and what is written of it. No torch.

A size times the scale is rounded up to whole bytes; where each rank of the group holds a share of it (all_gather,
reduce_scatter, all_to_all, gather, scatter), every share is rounded up alike. The elements are of the row's type, and a
size is rounded up to whole ones; without a type, bfloat16 where the bytes are even, else uint8.
"""

from fractions import Fraction
from math import ceil

from workloads.rows.ops import CommType, LogItem

ELEMENT_BYTES = {
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
    "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
EXCHANGES = frozenset({CommType.all_to_all, CommType.all_to_all_single})
SHARED = frozenset({
    CommType.all_gather, CommType.all_gather_into_tensor, CommType.reduce_scatter, CommType.reduce_scatter_tensor,
    CommType.gather, CommType.scatter, *EXCHANGES,
})  # fmt: skip
"""Calls of which each rank of the group holds a share."""


def rounded(size: int | float | Fraction, scale: Fraction, width: int) -> int:
    """`size` bytes at a scale in whole elements of `width` bytes, rounded up; in bytes."""
    return ceil(Fraction(size) * scale / width) * width


def sent_bytes(row: LogItem, ranks: int, scale: Fraction, width: int) -> int:
    """Bytes of a row's call in a group of `ranks`, of elements of `width` bytes; what is in `in_splits` counts."""
    if row.in_splits is not None:
        return sum(rounded(share, scale, width) for share in row.in_splits)
    parts = ranks if row.comm_type in SHARED else 1
    return rounded(Fraction(row.comm_bytes) / parts, scale, width) * parts
