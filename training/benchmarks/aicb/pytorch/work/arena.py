"""Plans the one buffer of a rank: the places of a stream's inputs and outputs, apart while their calls overlap.

No torch. Without overlapping calls the arena is as large as the largest call's input and output together.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.aicb.pytorch.work.stream import Epoch, Stream

_MOST_DIVISOR = 1 << 40


@dataclass(frozen=True, slots=True)
class Arena:
    """`offsets` has for each epoch the byte at which each row's buffers begin, shape (rows,)."""

    bytes: int
    offsets: list[NDArray[np.int64]]


def plan(stream: Stream, totals: list[int]) -> Arena:
    """The places of all calls; `totals`: bytes of each of the stream's items.

    Each call takes the lowest place that is free from its issue until it is waited for.
    """
    known: dict[tuple[bytes, bytes], tuple[int, NDArray[np.int64]]] = {}
    offsets, most = [], 0
    for epoch in stream.epochs:
        key = epoch.items.tobytes(), epoch.until.tobytes()
        if key not in known:
            known[key] = _placed(epoch, totals)
        size, places = known[key]
        most = max(most, size)
        offsets.append(places)
    return Arena(most, offsets)


def _placed(epoch: Epoch, totals: list[int]) -> tuple[int, NDArray[np.int64]]:
    places = np.zeros(len(epoch.items), np.int64)
    held: list[tuple[int, int, int]] = []  # (offset, end, waited for after this row)
    most = 0
    for index, (item, until) in enumerate(zip(epoch.items.tolist(), epoch.until.tolist(), strict=True)):
        size = totals[item]
        held = [each for each in held if each[2] >= index]
        offset = 0
        for begin, end, _ in held:
            if offset + size <= begin:
                break
            offset = max(offset, end)
        most = max(most, offset + size)
        places[index] = offset
        if until > index and size:
            held = sorted([*held, (offset, offset + size, until)])
    return most, places


def fitting_scale(scale: Fraction, need: int, free: int) -> str:
    """The largest scale 1/2**k below `scale` with which `need` bytes at `scale` shrink to `free` bytes at most."""
    divisor = 1
    while divisor < _MOST_DIVISOR and (Fraction(1, divisor) >= scale or need / scale / divisor > free):
        divisor *= 2
    return f"1/{divisor}"
