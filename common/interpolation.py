"""Interpolates what was measured at some sizes: straight in the logarithm of the size."""

from bisect import bisect_right
from collections.abc import Sequence
from math import log2


def log_place(axis: Sequence[float], at: float) -> tuple[int, float]:
    """The number of the last of the ascending sizes in `axis` (one or more, above 0) up to `at`, and which share (0 to
    1) of the way to the next one is left behind in the logarithm. Outside it is an end and 0.
    """
    if at <= axis[0]:
        return 0, 0.0
    if at >= axis[-1]:
        return len(axis) - 1, 0.0
    low = bisect_right(axis, at) - 1
    return low, log2(at / axis[low]) / log2(axis[low + 1] / axis[low])


def over_logs(axis: Sequence[float], values: Sequence[float], at: float) -> float:
    """The value (in the unit of `values`, one for each size in `axis`) at a size; outside as `log_place` says."""
    low, share = log_place(axis, at)
    return values[low] + share * (values[low + 1] - values[low]) if share else values[low]
