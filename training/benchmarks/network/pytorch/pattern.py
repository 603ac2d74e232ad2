"""Makes test data whose reduction is known exactly: integers that differ per rank and element, with a prime period.

The prime period reveals a block that is displaced by a power of two; the integers are so small that the sum over all
ranks, and every partial sum, is exact in the element type.
"""

import numpy as np
import torch
from numpy.typing import NDArray

PERIOD = 8191
_MAX_VALUE = 1 << 20
# The largest N such that the type holds every integer of 0..N exactly: 2**(significand bits) for floating point.
_EXACT_UP_TO = {
    torch.float64: 1 << 53,
    torch.float32: 1 << 24,
    torch.float16: 1 << 11,
    torch.bfloat16: 1 << 8,
    torch.int64: (1 << 63) - 1,
    torch.int32: (1 << 31) - 1,
    torch.int8: (1 << 7) - 1,
    torch.uint8: (1 << 8) - 1,
}
# The largest primes below 2**20, 2**11, 2**8 and 2**7: the modulus of moved data, by the range of the type.
_MODULI = (1048573, 2039, 251, 127)
# A pattern of fewer than three values would not distinguish ranks.
_MIN_VALUES = 3


def sent(rank: int, world_size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """The contribution of `rank`: one period, shape (PERIOD,), values 0 <= v, on the CPU."""
    return torch.from_numpy(_values(rank, world_size, dtype, seed)).to(dtype)


def summed(world_size: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """The sum of `sent` over all ranks: one period, shape (PERIOD,), exact in `dtype`, on the CPU."""
    total = np.zeros(PERIOD, dtype=np.int64)
    for rank in range(world_size):
        total += _values(rank, world_size, dtype, seed)
    return torch.from_numpy(total).to(dtype)


def moved(source: int, destination: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Data from `source` to `destination` where nothing is summed: one period, shape (PERIOD,), on the CPU.

    It differs from the data of any other pair as long as there are fewer ranks than the prime modulus of the type.
    """
    modulus = next(prime for prime in _MODULI if prime <= _EXACT_UP_TO[dtype])
    index = np.arange(PERIOD, dtype=np.int64)
    return torch.from_numpy((index * (2 * source + 1) + 7 * source + 31 * destination + seed) % modulus).to(dtype)


def fill(buffer: torch.Tensor, period: torch.Tensor) -> None:
    """Write the pattern `period` (1-D, same type and device) repeatedly over the flat `buffer`."""
    rows, tail = _rows(buffer, period)
    rows.copy_(period.expand_as(rows))
    tail.copy_(period[: tail.numel()])


def count_wrong(buffer: torch.Tensor, period: torch.Tensor, chunk_elements: int) -> torch.Tensor:
    """Number of elements of the flat `buffer` that differ from the repeated `period`: 0-d int64 on the buffer's device.

    Compares `chunk_elements` elements at a time, so that the comparison needs that many bytes of memory in addition.
    """
    rows, tail = _rows(buffer, period)
    wrong = torch.count_nonzero(tail != period[: tail.numel()])
    step = max(1, chunk_elements // period.numel())
    for begin in range(0, rows.shape[0], step):
        wrong += torch.count_nonzero(rows[begin : begin + step] != period)
    return wrong


def _rows(buffer: torch.Tensor, period: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    length = period.numel()
    whole = buffer.numel() // length * length
    return buffer[:whole].view(-1, length), buffer[whole:]


def _values(rank: int, world_size: int, dtype: torch.dtype, seed: int) -> NDArray[np.int64]:
    """Integers of one period. In small types with many ranks only every `stride`-th rank contributes to an element."""
    limit = _EXACT_UP_TO[dtype]
    stride = -(-world_size // (limit // _MIN_VALUES))
    adding = -(-world_size // stride)
    values = min(limit // adding, _MAX_VALUE)
    index = np.arange(PERIOD, dtype=np.int64)
    result = (index * (2 * rank + 1) + 7 * rank + seed) % values
    result[index % stride != rank % stride] = 0
    return result
