"""Makes the data that ranks send each other where nothing is reduced, and finds wrong elements in what they received.

An element is a hash of the seed, the message's length and the element's index, to which numbers for the source and the
iteration are added; the destination shifts the elements. Messages of two sources or of two consecutive iterations
differ in every element: such data is wrong everywhere, also in a message of one element.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

# Columns of the table that a buffer is seen as. Prime, so that blocks of any usual size are displaced against it.
COLUMNS = 8191
# Elements that are made and compared at a time, in whole rows, and the bytes of scratch memory that each of them takes:
# three numbers of 8 bytes and one comparison.
CHUNK_ELEMENTS = 128 * COLUMNS
SCRATCH_BYTES = 25

# The integer type of as many bytes: data is compared bit by bit, and no type lacks the arithmetic.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_NUMPY_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}
# What an iteration adds to an element. Odd: its multiples by 0 .. 2**k - 1 all differ modulo 2**k. And by how many
# elements the data is shifted for each destination, and for each 2**k sources and iterations. COLUMNS is prime.
_PER_ITERATION = 0x85EBCA77
_SHIFT_OF_DESTINATION, _SHIFT_OF_SOURCES, _SHIFT_OF_ITERATIONS = 1373, 4021, 2503


def hashes(count: int, *key: int | str) -> NDArray[np.uint64]:
    """`count` hashed numbers of 64 bits, shape (count,), the same on every host for the same `key`.

    Source: Steele, Lea, Flood: Fast splittable pseudorandom number generators (splitmix64), 2014.
    """
    start = zlib.crc32(repr(key).encode()) | zlib.crc32(repr(key[::-1]).encode()) << 32
    value = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(start)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


class Data(Protocol):
    """The data of a buffer, element by element."""

    def values(self, begin: int, end: int) -> torch.Tensor:
        """Elements `begin` to before `end`, a new tensor (end - begin,) of the buffer's type on its device."""
        ...


class Messages:
    """The data of messages of `count` elements between any two ranks, in one element type on one device.

    Floating-point elements have any bits but the sign and the highest of the exponent: none is infinite or no number.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device, *, seed: int, count: int) -> None:
        size = dtype.itemsize
        self._dtype, self._bits = dtype, 8 * size - (2 if dtype.is_floating_point else 0)
        # One row more for the rest of the last one, one for the shift.
        columns, rows = hashes(COLUMNS, seed, count, "column"), hashes(count // COLUMNS + 3, seed, count, "row")
        self._columns = torch.from_numpy(columns.astype(_NUMPY_BITS[size])).to(device)
        self._rows = torch.from_numpy(rows.astype(_NUMPY_BITS[size])).to(device)

    def between(self, source: int, destination: int, iteration: int) -> Message:
        """The message from rank `source` to rank `destination` (0 where all receive the same) in one iteration."""
        offset = source + iteration * _PER_ITERATION
        shift = (source >> self._bits) * _SHIFT_OF_SOURCES + (iteration >> self._bits) * _SHIFT_OF_ITERATIONS
        shift += destination * _SHIFT_OF_DESTINATION
        return Message(self._columns, self._rows, self._dtype, self._bits, offset=offset, shift=shift)


class Message:
    """One message: `values` of it are computed when they are asked for."""

    def __init__(
        self, columns: torch.Tensor, rows: torch.Tensor, dtype: torch.dtype, bits: int, *, offset: int, shift: int
    ) -> None:
        self._columns, self._rows, self._dtype, self._bits = columns, rows, dtype, bits
        self._shift = shift % columns.numel()
        self._offset = torch.tensor(_signed(offset, bits), dtype=torch.int64).to(rows.dtype).to(rows.device)

    def values(self, begin: int, end: int) -> torch.Tensor:
        """The elements from `begin` to before `end`, shape (end - begin,), as sender and receiver compute them."""
        begin, end = begin + self._shift, end + self._shift
        first, last = begin // COLUMNS, -(-end // COLUMNS)
        table = (self._rows[first:last, None] + self._offset) + self._columns
        if self._dtype.is_floating_point:
            table &= (1 << self._bits) - 1
        return table.view(-1)[begin - first * COLUMNS : end - first * COLUMNS].view(self._dtype)


def fill(buffer: torch.Tensor, data: Data, begin: int = 0) -> None:
    """Write the elements of `data` from index `begin` on into the flat `buffer`."""
    for part, offset in _parts(buffer):
        part.copy_(data.values(begin + offset, begin + offset + part.numel()))


def count_wrong(buffer: torch.Tensor, data: Data, begin: int = 0, tolerance: float = 0.0) -> torch.Tensor:
    """Number of elements of the flat `buffer` that differ in any bit from those of `data` from index `begin` on.

    0-d int64 on the buffer's device. With a `tolerance`, elements differ whose relative difference is larger.
    """
    wrong = torch.zeros((), dtype=torch.int64, device=buffer.device)
    bits = BITS[buffer.dtype.itemsize]
    for part, offset in _parts(buffer):
        expected = data.values(begin + offset, begin + offset + part.numel())
        if tolerance:
            exact = expected.to(torch.float64)
            is_close = (part.to(torch.float64) - exact).abs() <= tolerance * exact.abs()  # False for no number
            wrong += torch.count_nonzero(~is_close)
        else:
            wrong += torch.count_nonzero(part.view(bits) != expected.view(bits))
    return wrong


def scratch_bytes(count: int) -> int:
    """Memory, in bytes, that `fill` and `count_wrong` need beside a buffer of `count` elements."""
    return SCRATCH_BYTES * (min(count, CHUNK_ELEMENTS) + 2 * COLUMNS)


def _parts(buffer: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """The flat buffer in parts of CHUNK_ELEMENTS, each with the index of its first element."""
    for begin in range(0, buffer.numel(), CHUNK_ELEMENTS):
        yield buffer[begin : begin + CHUNK_ELEMENTS], begin


def _signed(number: int, bits: int) -> int:
    """`number` modulo 2**bits, as the signed integer of 64 bits with the same lowest bits."""
    lowest = number % (1 << bits)
    return lowest - (1 << 64) if lowest >= 1 << 63 else lowest
