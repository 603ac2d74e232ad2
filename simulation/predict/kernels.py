"""The measured times of matrix products, attention and experts, interpolated over their shapes.

data/gpu_kernels.csv.xz holds medians over the frameworks in the tables of aiconfigurator-core 0.12.0 (Apache-2.0,
NVIDIA; systems/data/*/gemm and attention), at shapes dense enough to interpolate: us of bursts, not of hours;
`python -m tests.simulation.predict.kernel_tables` makes it. Decoding
attention (one token of a sequence with all before it) by the tokens before, the sequences times heads of keys and
values, and the queries that share such a head, all 128 wide. Latent attention (systems/data/*/mla, DeepSeek's widths)
of whole sequences by tokens and heads times sequences, decoding by the tokens before, sequences and heads. Sums over
GPUs of a server by the engines' own kernels, of the newest version of each, by GPUs and bytes.

data/experts.csv has the four figures of `experts_us` that explain the tables of experts (systems/data/*/moe, balanced,
each table of an engine as much, by 2500 of its rows) with the least mean error of the logarithm, and the median and
90th percentile of its errors in %; the same script finds them.
"""

import csv
import lzma
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import product
from math import exp, log
from pathlib import Path
from typing import NamedTuple

from common.interpolation import log_place

DATA = Path(__file__).with_name("data") / "gpu_kernels.csv.xz"
EXPERTS = DATA.with_name("experts.csv")
PRODUCT, ATTENTION, DECODE, REDUCE = "product", "attention", "decode", "all_reduce"
LATENT, LATENT_DECODE = "latent", "latent_decode"
DECODE_WIDTHS = 2 * 128
LATENT_WIDTHS = 2 * 512 + 64
"""Of what a head of DeepSeek's compares and sums of each token, without positions and with."""
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5625}
"""Of a weight; 16 of four bits have a scale of eight."""

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
"""Where a time is from. Extrapolated: at the rate of the tables' edge."""


def table_source(*, is_measured: bool, is_within: bool) -> str:
    """Where a table's value is from: a measurement, between measurements, or beyond them."""
    return MEASURED if is_measured else INTERPOLATED if is_within else EXTRAPOLATED


class Grid(NamedTuple):
    """Measured times on a grid of sizes: the logarithm of us for one unit of work. Points may be missing."""

    axes: tuple[tuple[int, ...], ...]
    values: dict[tuple[int, ...], float]

    def source(self, place: Sequence[float]) -> str:
        """Where the value at a place is from."""
        within = all(axis[0] <= size <= axis[-1] for axis, size in zip(self.axes, place, strict=True))
        return table_source(is_measured=tuple(place) in self.values, is_within=within)

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
    low, share = log_place(axis, size)
    return ((axis[low], 1 - share), *([(axis[low + 1], share)] if share else []))


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
            DECODE: _decode_work(m, n, DECODE_WIDTHS), REDUCE: n, LATENT: _attention_work(m, n, 2 * k),
            LATENT_DECODE: _decode_work(m, n, LATENT_WIDTHS),
        }[kernel]  # fmt: skip
        place = (m, n) if kernel in (REDUCE, LATENT) else (m, n, k)
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
    """Microseconds of the causal forward pass of `heads` heads (times samples) over `seq` tokens in 16 bits. Heads of
    64 take longer for a FLOP than those of 128 (of A100 as long: it has no times of them).

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    grid = grids()[ATTENTION, gpu, "bf16"]
    heads = max(heads, grid.axes[1][0])  # fewer take as long: each has its own multiprocessors
    return exp(grid.at((seq, heads, (qk + v) / 2))) * _attention_work(seq, heads, qk + v)


def decode_us(gpu: str, context: float, units: float, shared: float, widths: int) -> float:
    """Microseconds of one token's attention in 16 bits to `context` tokens of `units` heads of keys and values (times
    sequences), each of which `shared` queries read; widths: of a key and a value together.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    grid = grids()[DECODE, gpu, "bf16"]
    context = max(context, grid.axes[0][0])  # fewer tokens take as long as the fewest that were measured
    return exp(grid.at((context, units, shared))) * _decode_work(context, units, widths)


def latent_us(gpu: str, seq: float, heads: float, widths: int) -> float:
    """Microseconds of an engine's latent attention of whole sequences, forward, by `heads` heads (times sequences).

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    grid = grids()[LATENT, gpu, "bf16"]
    seq = max(seq, grid.axes[0][0])
    return exp(grid.at((seq, heads))) * _attention_work(seq, heads, widths)


def latent_decode_us(gpu: str, context: float, batch: int, heads: int, widths: int) -> float:
    """Microseconds of one token's latent attention, without projections, in `batch` sequences to `context` tokens.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    grid = grids()[LATENT_DECODE, gpu, "bf16"]
    context = max(context, grid.axes[0][0])
    return exp(grid.at((context, batch, heads))) * _decode_work(context, batch, widths)


class ExpertRates(NamedTuple):
    """Of experts' kernels: us of a pass at least, the rate at which weights are read, that of products, and that of
    tokens' copies, which are sorted, weighted and summed.
    """

    us: float
    weights_GBps: float  # noqa: N815 - the unit's own spelling
    TFLOPS: float
    copies_GBps: float  # noqa: N815


def _expert_rows() -> Iterator[tuple[tuple[str, str], dict[str, str]]]:
    for row in csv.DictReader(EXPERTS.read_text(encoding="utf-8").splitlines()):
        yield (row["gpu"], row["dtype"]), row


@cache
def expert_rates() -> dict[tuple[str, str], ExpertRates]:
    """The measured rates of experts' kernels, by GPU and type of the products."""
    return {key: ExpertRates(*(float(row[name]) for name in ExpertRates._fields)) for key, row in _expert_rows()}


@cache
def expert_errors() -> dict[tuple[str, str], float]:
    """In %, what nine of ten of the tables' times are within that those rates explain."""
    return {key: float(row["p90"]) for key, row in _expert_rows()}


def experts_us(gpu: str, dtype: str, copies: float, pairs: float, experts: int, sizes: tuple[int, int]) -> float:
    """Microseconds of a rank's experts without gradients, from sorting the tokens to their weighted sum.

    copies: tokens times the experts that each takes, over all ranks; pairs: of those that come, spread evenly, to this
    rank's `experts`; sizes: elements of an expert's weights, of a token.

    Raises:
        KeyError: nothing was measured of this GPU and type.
    """
    rates, (weights, hidden) = expert_rates()[gpu, dtype], sizes
    pairs = max(1.0, pairs)
    read = WEIGHT_BYTES[dtype] * weights * min(experts, pairs) / rates.weights_GBps / 1e3
    return rates.us + read + 2 * pairs * weights / rates.TFLOPS / 1e6 + 2 * copies * hidden / rates.copies_GBps / 1e3


def all_reduce_us(gpu: str, ranks: int, size: float) -> float:
    """Microseconds of an engine's sum of `size` bytes over `ranks` GPUs of a server.

    Raises:
        KeyError: nothing was measured of this GPU.
    """
    return exp(grids()[REDUCE, gpu, "bf16"].at((ranks, size))) * size


def all_reduce_source(gpu: str, ranks: int, size: float) -> str:
    """Where the time of a sum of `size` bytes is from."""
    return grids()[REDUCE, gpu, "bf16"].source((ranks, size))


@cache
def shortest_us(gpu: str) -> float:
    """Microseconds of the shortest product of this GPU in 16 bits: what any kernel of a graph takes at least."""
    return min(exp(value) * _product_work(*place) for place, value in grids()[PRODUCT, gpu, "bf16"].values.items())
