"""Makes what ranks contribute to a reduction, and its result: exact for each operation, type and number of ranks.

The contributions to an element are made from its result, so that a check costs the same for any number of ranks:

- sum: the result is split into uneven parts, one for each rank. No partial sum exceeds the result.
- avg: of integers, n times the result is split so; of floating point one rank contributes, the others zero.
- prod: one rank contributes a factor, all of them powers of two and signs. Every partial product is exact.
- min, max: one rank contributes the result, the others numbers above or below it.

Which rank contributes which part changes from element to element. An element's result differs in each iteration.
"""

from dataclasses import dataclass
from math import ceil, log2

import numpy as np
import torch
from numpy.typing import NDArray

from common.bandwidth import Op
from training.benchmarks.driver.workload.pattern import COLUMNS, hashes

OPS: tuple[Op, ...] = ("sum", "prod", "min", "max", "avg")
Integers = NDArray[np.int64]
Numbers = NDArray[np.float64] | Integers


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The range that a type holds exactly: the integers 0 .. `integers`, and these times 2**k for k in `low` .. 0."""

    integers: int
    low: int = 0


# Integers stay below 2**40: while they are split, products of them must not leave 64 bits. No floating-point result
# is so large that adding 1 would not change it.
RANGES: dict[torch.dtype, Range] = {
    torch.float64: Range(integers=(1 << 40) - 1, low=-8),
    torch.float32: Range(integers=(1 << 24) - 1, low=-8),
    torch.bfloat16: Range(integers=(1 << 8) - 1, low=-8),
    torch.float16: Range(integers=(1 << 11) - 1, low=-8),
    torch.float8_e4m3fn: Range(integers=(1 << 4) - 1, low=-4),
    torch.float8_e5m2: Range(integers=(1 << 3) - 1, low=-8),
    torch.int64: Range(integers=(1 << 40) - 1),
    torch.uint64: Range(integers=(1 << 40) - 1),
    torch.int32: Range(integers=(1 << 31) - 1),
    torch.uint32: Range(integers=(1 << 31) - 1),
    torch.int16: Range(integers=(1 << 15) - 1),
    torch.uint16: Range(integers=(1 << 16) - 1),
    torch.int8: Range(integers=(1 << 7) - 1),
    torch.uint8: Range(integers=(1 << 8) - 1),
}
_MOST_ROW_EXPONENT = 8
# A mean of floating-point numbers: its values from one power of two to the next, and the precision (of 1.0) above which
# these would be too close to each other.
_AVG_MANTISSAS, _AVG_EPS = 4, 2**-4


def refusal(op: Op, dtype: torch.dtype, ranks: int) -> str | None:
    """The reason, in words, why the result over `ranks` ranks cannot be exact; None if it is."""
    if op == "avg" and not dtype.is_floating_point and RANGES[dtype].integers // ranks < 2:
        return f"{dtype} cannot hold the sum of {ranks} ranks whose mean avg takes"
    return None


@dataclass(frozen=True, slots=True)
class OperandTable:
    """Elements as a table of COLUMNS columns: `columns`, shape (COLUMNS,), joined with `rows`, shape (rows,).

    Floating-point numbers and factors are multiplied, other integers are added.
    """

    columns: torch.Tensor
    rows: torch.Tensor
    dtype: torch.dtype
    multiplied: bool

    def values(self, begin: int, end: int) -> torch.Tensor:
        """The elements from `begin` to before `end`, shape (end - begin,): sums or products of row and column."""
        first, last = begin // COLUMNS, -(-end // COLUMNS)
        rows = self.rows[first:last, None]
        table = rows * self.columns if self.multiplied else rows + self.columns
        return table.view(-1)[begin - first * COLUMNS : end - first * COLUMNS].to(self.dtype)


class Operands:
    """The operands of a reduction of `count` elements over `ranks` ranks, in one element type on one device.

    `tolerance`: relative difference of a received result that is right: 0 for all but the mean of floating-point
    numbers over a number of ranks whose inverse the type does not hold.

    Raises:
        ValueError: the type cannot hold the sum whose mean would be taken.
    """

    def __init__(self, op: Op, dtype: torch.dtype, device: torch.device, *, ranks: int, seed: int, count: int) -> None:
        self._op, self._dtype, self._device, self._ranks, self.count = op, dtype, device, ranks, count
        self._range, self._is_float = RANGES[dtype], dtype.is_floating_point
        if (reason := refusal(op, dtype, ranks)) is not None:
            raise ValueError(reason)
        key = (seed, count, op)
        self._codes = _small(hashes(COLUMNS, *key, "code"))
        self._turns = _small(hashes(COLUMNS, *key, "turn")) % ranks
        self._powers = _small(hashes(COLUMNS, *key, "power"))
        signs = 1 - 2 * (_small(hashes(COLUMNS, *key, "sign")) % 2)
        self._signs = signs if dtype.is_signed else np.ones_like(signs)
        self._multiplied = self._is_float or op == "prod"
        self._row_values, self._owners = self._rows(hashes(count // COLUMNS + 2, *key, "row"))
        inexact = op == "avg" and self._is_float and ranks & (ranks - 1)
        self.tolerance = _tolerance(dtype, ranks) if inexact else 0.0

    def contribution(self, rank: int, iteration: int) -> OperandTable:
        """The contribution of `rank` in one iteration."""
        place = (rank + self._turns + iteration) % self._ranks
        rows = self._row_values
        if self._owners is not None:
            rows = np.where(self._owners == rank, rows, 1 if self._multiplied else 0)
        return self._table(self._columns(place, iteration), rows)

    def result(self, iteration: int) -> OperandTable:
        """The result of the reduction in one iteration."""
        return self._table(self._columns(None, iteration), self._row_values)

    def _table(self, columns: Numbers, rows: Numbers) -> OperandTable:
        if self._is_float:
            kind = torch.float64 if self._dtype is torch.float64 else torch.float32
        else:
            kind = torch.int64 if self._dtype.itemsize >= torch.int32.itemsize else torch.int32
        made = [torch.from_numpy(np.ascontiguousarray(each)).to(kind).to(self._device) for each in (columns, rows)]
        return OperandTable(columns=made[0], rows=made[1], dtype=self._dtype, multiplied=self._multiplied)

    def _rows(self, found: NDArray[np.uint64]) -> tuple[Numbers, Integers | None]:
        """The values with which each row is joined, and the rank that alone does it; None: all ranks do."""
        values, owners = _small(found), _small(found >> np.uint64(32)) % self._ranks
        if self._op == "prod":
            return 1 << values % (self._row_exponent + 1), owners
        if not self._is_float:
            return values % (self._integers(of_rows=True) + 1), owners if self._op == "sum" else None
        least = -1 if self._op == "avg" else self._range.low
        return np.exp2(least + values % (1 - least)), None

    def _columns(self, place: Integers | None, iteration: int) -> Numbers:
        """The contribution of the rank at `place`, an array of 0 .. ranks - 1, shape (COLUMNS,); None: the result."""
        if self._op == "avg" and self._is_float:
            return self._mean(place, iteration)
        if self._op == "prod":
            return self._product(place, iteration)
        if self._op in ("min", "max"):
            return self._extreme(place, iteration)
        if self._op == "avg":
            result = self._code(1, self._integers(), iteration) * self._signs
            return result if place is None else _split(abs(result) * self._ranks, place, self._ranks) * self._signs
        result = self._code(2, self._integers(), iteration)
        return (result if place is None else _split(result, place, self._ranks)) * self._signs

    def _integers(self, *, of_rows: bool = False) -> int:
        """The largest integer that columns (or rows) may hold for exact sums of a column's and a row's."""
        most = self._range.integers // (self._ranks if self._op == "avg" else 1)
        if self._is_float:
            return most
        return most // 2 if of_rows else most - most // 2

    def _code(self, low: int, high: int, iteration: int) -> Integers:
        """A number of `low` .. `high` for each column, another one than in the iteration before."""
        low = min(low, high - 1)
        return low + (self._codes + iteration) % (high - low + 1)

    def _mean(self, place: Integers | None, iteration: int) -> Numbers:
        found = torch.finfo(self._dtype)
        least = max(0, ceil(log2(self._ranks)) + ceil(log2(found.smallest_normal)))
        largest = int(log2(self._range.integers)) + int(log2(self._ranks))
        most = max(least + 1, min(int(log2(found.max)) - 1, largest))
        between = _AVG_MANTISSAS if found.eps < _AVG_EPS else 1
        code = self._code(0, (most - least + 1) * between - 1, iteration)
        value = np.exp2(least + code // between) * (1 + code % between / between) * self._signs
        return value / self._ranks if place is None else np.where(place == 0, value, 0.0)

    @property
    def _exponent(self) -> int:
        """The largest exponent of the powers of two in a product, those of rows among them."""
        return max(1, self._range.integers.bit_length() // 3)

    @property
    def _row_exponent(self) -> int:
        return max(1, min(_MOST_ROW_EXPONENT, self._exponent // 4))

    def _product(self, place: Integers | None, iteration: int) -> Numbers:
        factor = self._code(1, self._range.integers >> self._exponent, iteration)
        exponent = self._powers % (self._exponent - self._row_exponent + 1)
        # The first ranks of an element, this many, are negative.
        negative = self._powers // 64 % (self._ranks + 1) if self._dtype.is_signed else np.zeros_like(self._powers)
        if place is None:
            result: Integers = (factor << exponent) * (1 - 2 * (negative % 2))
        else:
            power = 1 << _split(exponent, place, self._ranks)
            result = np.where(place == 0, factor, 1) * power * np.where(place < negative, -1, 1)
        return result

    def _extreme(self, place: Integers | None, iteration: int) -> Numbers:
        most = self._integers()
        # By how much the others differ: from 2, so that no mean is rounded to the result.
        apart = max(2, min(self._ranks, most // 4))
        is_min = (self._op == "min") == (self._signs > 0)  # of the absolute values
        low, high = np.where(is_min, 1, 1 + apart), np.where(is_min, most - apart, most)
        found: Integers = low + (self._codes + iteration) % (high - low + 1)
        if place is not None:
            other = np.where(place == 0, 0, 2 + (place - 1) % (apart - 1))
            found = found + np.where(is_min, other, -other)
        return found * self._signs


def _small(found: NDArray[np.uint64]) -> Integers:
    """The lowest 31 bits of hashed numbers."""
    return (found & np.uint64((1 << 31) - 1)).astype(np.int64)


def _split(total: Integers, place: Integers, ranks: int) -> Integers:
    """The part at `place` of `total`, split into `ranks` parts >= 0 that grow with their place; all of one shape."""
    shares = ranks * (ranks + 1) // 2
    whole, rest = np.divmod(total, shares)
    end, begin = rest * ((place + 1) * (place + 2) // 2) // shares, rest * (place * (place + 1) // 2) // shares
    part: Integers = whole * (place + 1) + end - begin
    return part


def _tolerance(dtype: torch.dtype, ranks: int) -> float:
    """The relative error of a number times the rounded inverse of `ranks`, as NCCL takes a mean, or divided by it.

    Source: NCCL, ncclAvg: each rank's number is multiplied by 1/n in the element type, and the products are added.
    """
    inverse = torch.tensor(1 / ranks, dtype=torch.float64).to(dtype).to(torch.float64)
    return abs(float(inverse) * ranks - 1) + torch.finfo(dtype).eps
