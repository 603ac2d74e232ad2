"""Tells the matrix products of a workload apart: the pass that each belongs to and its sizes."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from workloads.rows.ops import CommType, LogItem

FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT = "gemm", "gemm_dgrad", "gemm_wgrad"
OPERATORS = (FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT)


@dataclass(frozen=True, slots=True, order=True)
class Gemm:
    """One product (m, k) @ (k, n). op: its operator in the database of compute times, which says how operands lie."""

    op: str
    m: int
    k: int
    n: int

    @property
    def shape(self) -> str:
        """The shape as the database of compute times has it."""
        return f"m={self.m} k={self.k} n={self.n}"


def gemm_of(item: LogItem) -> Gemm | None:
    """The product of a computation row, None for a row that is none.

    The gradient of a weight is the product whose operands are both matrices; those of activations have three axes.
    """
    if item.comm_type is not CommType.computation or not isinstance(item.msg_size, tuple):
        return None
    first, second = item.msg_size
    backward = WEIGHT_GRADIENT if len(first) == 2 else INPUT_GRADIENT
    op = FORWARD if item.stage.startswith("forward") else backward
    return Gemm(op, prod(first[:-1]), first[-1], prod(second[1:]))


def gemms_of(items: Iterable[LogItem]) -> list[Gemm]:
    """The different products of rows, in order."""
    found = (gemm_of(item) for item in items)
    return sorted({gemm for gemm in found if gemm is not None})
