"""Spends the time of computation rows in a replay: a measured time as it is, else by the product of matrices.

A scale shrinks computation as it shrinks sizes: a time by the factor, a product in its rows.
"""

import time
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod

import torch

from training.benchmarks.aicb.pytorch.running.operations import Issue
from training.benchmarks.aicb.pytorch.work.stream import Stream
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import cycles_per_ns
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from workloads.job.errors import AicbError
from workloads.rows.ops import CommType, LogItem

SPIN_NS = 200_000
"""The end of a time that is spent without sleeping: the kernel may wake a sleeper so much later."""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices of shapes (rows, inner) and (inner, columns)."""

    rows: int
    inner: int
    columns: int

    @property
    def elements(self) -> int:
        """Elements of both operands and of the result."""
        return self.rows * self.inner + self.inner * self.columns + self.rows * self.columns


def product_of(item: LogItem, scale: Fraction) -> Product:
    """The product of a computation row. AICB's rows may have more elements than the second operand's height divides.

    Raises:
        AicbError: the row has no two shapes.
    """
    if not isinstance(item.msg_size, tuple) or min(map(min, item.msg_size)) < 1 or len(item.msg_size[1]) < 2:
        raise AicbError(
            f"row computation {item.stage}: msg_size is {item.msg_size}, not the shapes of two operands;"
            " `compute fill` gives such a row a time"
        )
    first, second = item.msg_size
    inner = second[-2]
    rows = prod(first) // inner * prod(second[:-2])
    return Product(ceil(max(1, rows) * scale), inner, second[-1])


class Computation:
    """The computation of a replay. `bytes`: of the operands of the largest product, which all share."""

    def __init__(self, stream: Stream, scale: Fraction, device: torch.device) -> None:
        """Of the stream's rows.

        Raises:
            AicbError: there are none, or one has no shapes.
        """
        rows = {place: item for place, item in enumerate(stream.items) if item.comm_type is CommType.computation}
        if not rows:
            raise AicbError(
                "timing = 'replay' needs rows of computation, and there are none: --set computation_enable=true, or a"
                " workload that has them"
            )
        self._device = device
        self._dtype = torch.bfloat16 if is_accelerator(device) else torch.float32
        self._times_ns = {
            place: int(item.elapsed_time * scale) for place, item in rows.items() if item.elapsed_time is not None
        }
        self._products = {place: product_of(item, scale) for place, item in rows.items() if place not in self._times_ns}
        self._elements = max((each.elements for each in self._products.values()), default=0)
        self.bytes = self._elements * self._dtype.itemsize
        self._buffer: torch.Tensor | None = None
        self._cycles_per_ns: float | None = None
        self._issues: dict[Product, Issue] = {}

    def allocate(self) -> None:
        """Take the memory, and learn how fast the clock of a device runs, which spends times itself."""
        self._buffer = torch.ones(self._elements, dtype=self._dtype, device=self._device)
        if is_accelerator(self._device) and self._times_ns:
            self._cycles_per_ns = cycles_per_ns(self._device)
            if self._cycles_per_ns is None:
                raise UnusableSettingsError(
                    f"timing = 'replay': {self._device} cannot be kept busy for the times of the workload's rows; leave"
                    " them out, and products of matrices take their place"
                )

    def issue(self, place: int) -> Issue | None:
        """The function that computes an item of the stream."""
        if place in self._times_ns:
            duration = self._times_ns[place]
            if self._cycles_per_ns is None:
                return lambda: _pass(duration)
            cycles = max(1, round(duration * self._cycles_per_ns))
            return accelerators(self._device).busy(cycles)
        product = self._products.get(place)
        if product is None:
            return None
        if product not in self._issues:
            self._issues[product] = self._multiply(product)
        return self._issues[product]

    def _multiply(self, product: Product) -> Issue:
        assert self._buffer is not None
        first = self._buffer[: product.rows * product.inner].view(product.rows, product.inner)
        begin = first.numel()
        second = self._buffer[begin : begin + product.inner * product.columns].view(product.inner, product.columns)
        begin += second.numel()
        result = self._buffer[begin : begin + product.rows * product.columns].view(product.rows, product.columns)

        def run() -> None:
            torch.mm(first, second, out=result)

        return run


def _pass(duration_ns: int) -> None:
    """Return after so many ns; mostly asleep, so that other ranks of the host have the core."""
    end = time.monotonic_ns() + duration_ns
    if duration_ns > SPIN_NS:
        time.sleep((duration_ns - SPIN_NS) / 1e9)
    while time.monotonic_ns() < end:
        pass
