"""The measured times of matrix products and attention, interpolated over their shapes.

data/gpu_kernels.csv.xz holds medians over the frameworks in the tables of aiconfigurator-core 0.12.0 (Apache-2.0,
NVIDIA; systems/data/*/gemm and attention), at shapes dense enough to interpolate: us of bursts, not of hours. Decoding
attention (one token of a sequence with all before it) by the tokens before, the sequences times heads of keys and
values, and the queries that share such a head, all 128 wide. Sums over GPUs of a server by the engines' own kernels, of
the newest version of each, by GPUs and bytes.
"""

import lzma
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product
from math import exp, log
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).with_name("data") / "gpu_kernels.csv.xz"
PRODUCT, ATTENTION, DECODE, REDUCE = "product", "attention", "decode", "all_reduce"
DECODE_WIDTHS = 2 * 128


class Grid(NamedTuple):
    """Measured times on a grid of sizes: the logarithm of us for one unit of work. Points may be missing."""

    axes: tuple[tuple[int, ...], ...]
    values: dict[tuple[int, ...], float]

    def at(self, place: Sequence[float]) -> float:
        """The value at a place, straight in the logarithms of the sizes; beyond the grid that of its edge."""
        sides = [_around(axis, size) for axis, size in zip(self.axes, place, strict=True)]
        total = weight = 0.0
        for corner in product(*sides):
            share = 1.0
            for _, part in corner:
                share *= part
            known = self.values.get(tuple(size for size, _ in corner))
            if known is not None and share > 0:
                total += share * known
                weight += share
        if not weight:
            near = min(self.values, key=lambda key: sum(log(a / b) ** 2 for a, b in zip(key, place, strict=True)))
            return self.values[near]
        return total / weight


def _around(axis: tuple[int, ...], size: float) -> tuple[tuple[int, float], ...]:
    """The sizes beside a size and their weights."""
    if size <= axis[0]:
        return ((axis[0], 1.0),)
    if size >= axis[-1]:
        return ((axis[-1], 1.0),)
    upper = bisect_right(axis, size)
    low, high = axis[upper - 1], axis[upper]
    share = log(size / low) / log(high / low)
    return ((low, 1 - share), (high, share))


@cache
def grids() -> dict[tuple[str, str, str], Grid]:
    """By kernel, GPU and type."""
    rows: dict[tuple[str, str, str], dict[tuple[int, ...], float]] = {}
    text = lzma.decompress(DATA.read_bytes()).decode()
    for line in text.splitlines()[1:]:
        kernel, gpu, dtype, *sizes, us = line.split(",")
        m, n, k = map(int, sizes)
        work = {
            PRODUCT: _product_work(m, n, k), ATTENTION: _attention_work(m, n, 2 * k),
            DECODE: _decode_work(m, n, DECODE_WIDTHS), REDUCE: n,
        }[kernel]  # fmt: skip
        place = (m, n) if kernel in (ATTENTION, REDUCE) else (m, n, k)
        rows.setdefault((kernel, gpu, dtype), {})[place] = log(float(us) / work)
    return {key: Grid(_axes(values), values) for key, values in rows.items()}


def _axes(values: dict[tuple[int, ...], float]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(set(axis))) for axis in zip(*values, strict=True))


def _product_work(m: float, n: float, k: float) -> float:
    return m * n * k


def _attention_work(seq: float, heads: float, widths: float) -> float:
    return seq * seq * heads * widths


def _decode_work(context: float, units: float, widths: float) -> float:
    return context * units * widths


@lru_cache(maxsize=1 << 14)
def product_us(gpu: str, dtype: str, m: int, n: int, k: int) -> float:
    """Microseconds of x(m, k) @ w(n, k)^T in a burst.

    Raises:
        KeyError: nothing was measured of this GPU and type.
    """
    return exp(grids()[PRODUCT, gpu, dtype].at((m, n, k))) * _product_work(m, n, k)


@lru_cache(maxsize=1 << 12)
def attention_us(gpu: str, seq: float, heads: float, qk: int, v: int) -> float:
    """Microseconds of the causal forward pass of `heads` heads (times samples) over `seq` tokens in 16 bits.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    return exp(grids()[ATTENTION, gpu, "bf16"].at((seq, heads))) * _attention_work(seq, heads, qk + v)


def decode_us(gpu: str, context: float, units: float, shared: float, widths: int) -> float:
    """Microseconds of one token's attention in 16 bits to `context` tokens of `units` heads of keys and values (times
    sequences), each of which `shared` queries read; widths: of a key and a value together.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    grid = grids()[DECODE, gpu, "bf16"]
    context = max(context, grid.axes[0][0])  # fewer tokens take as long as the fewest that were measured
    return exp(grid.at((context, units, shared))) * _decode_work(context, units, widths)


def all_reduce_us(gpu: str, ranks: int, size: float) -> float:
    """Microseconds of an engine's sum of `size` bytes over `ranks` GPUs of a server.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    return exp(grids()[REDUCE, gpu, "bf16"].at((ranks, size))) * size


@cache
def shortest_us(gpu: str) -> float:
    """Microseconds of the shortest product of this GPU in 16 bits: what any kernel of a graph takes at least."""
    return min(exp(value) * _product_work(*place) for place, value in grids()[PRODUCT, gpu, "bf16"].values.items())
