"""Estimates a time from neighbours: linear in the logarithms of sizes and time.

Two rows that differ from the wanted shape in one axis alone, one below and one above, answer by the straight line
between them. Otherwise the neighbours that are nearest answer by weighted least squares around the operator's own
work, so that one neighbour alone scales by work and several correct it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from common.interpolation import over_logs
from workloads.compute.measurement import ComputeTime
from workloads.compute.operators import Operator, Shape

NEIGHBOURS = 8
RIDGE = 0.15
"""Weight of "time grows as work does" against the neighbours, where they do not say otherwise."""
NEAREST = 0.02
"""Added to a squared distance, so that a neighbour at hand does not outweigh all others."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """ns: the time; neighbours: the rows that it comes from, the nearest first; straight: from two along one axis."""

    ns: float
    neighbours: tuple[ComputeTime, ...]
    straight: bool


def work(op: Operator, shape: Shape) -> float:
    """The work that the time grows with: operations and traffic at today's balance (100 operations a byte)."""
    return op.flops(shape) + 200.0 * op.elements(shape)


def distance(op: Operator, one: Shape, other: Shape) -> float:
    """Squared distance of two shapes in logarithms of their sizes."""
    return sum(log(one[axis] / other[axis]) ** 2 for axis in op.sizes)


def within(op: Operator, shape: Shape, rows: Sequence[ComputeTime], reach: float) -> bool:
    """Whether each size lies between the smallest and the largest of the rows, or off by the ratio `reach` at most."""
    for axis in op.sizes:
        sizes = [row.axes[axis] for row in rows]
        if not min(sizes) / reach <= shape[axis] <= max(sizes) * reach:
            return False
    return True


def estimate(op: Operator, shape: Shape, rows: Sequence[ComputeTime]) -> Estimate:
    """The time of a shape from rows (at least one) of the same operator."""
    line = _straight(op, shape, rows)
    if line is not None:
        return line
    near = sorted(rows, key=lambda row: distance(op, shape, row.axes))[:NEIGHBOURS]
    axes = [axis for axis in op.sizes if len({row.axes[axis] for row in near}) > 1]
    excess = _weighted_fit(
        [[1.0, *(log(row.axes[axis] / shape[axis]) for axis in axes)] for row in near],
        [log(row.ns / work(op, row.axes)) for row in near],
        [1.0 / (NEAREST + distance(op, shape, row.axes)) for row in near],
    )
    return Estimate(exp(excess) * work(op, shape), tuple(near), straight=False)


def _straight(op: Operator, shape: Shape, rows: Sequence[ComputeTime]) -> Estimate | None:
    """The straight line along the one axis in which the closest pair of rows encloses the shape."""
    best: tuple[float, ComputeTime, ComputeTime, str] | None = None
    for axis in op.sizes:
        same = [row for row in rows if all(row.axes[each] == shape[each] for each in op.sizes if each != axis)]
        below = max((row for row in same if row.axes[axis] < shape[axis]), key=lambda row: row.axes[axis], default=None)
        above = min((row for row in same if row.axes[axis] > shape[axis]), key=lambda row: row.axes[axis], default=None)
        if below is not None and above is not None:
            gap = log(above.axes[axis] / below.axes[axis])
            if best is None or gap < best[0]:
                best = (gap, below, above, axis)
    if best is None:
        return None
    _, below, above, axis = best
    ends = below.axes[axis], above.axes[axis]
    return Estimate(exp(over_logs(ends, (log(below.ns), log(above.ns)), shape[axis])), (below, above), straight=True)


def _weighted_fit(points: list[list[float]], values: list[float], weights: list[float]) -> float:
    """The constant of the weighted least-squares fit of values by points (constant first), slopes held near 0."""
    size, total = len(points[0]), sum(weights)
    matrix = [
        [sum(w * p[i] * p[j] for w, p in zip(weights, points, strict=True)) for j in range(size)] for i in range(size)
    ]
    right = [sum(w * p[i] * v for w, p, v in zip(weights, points, values, strict=True)) for i in range(size)]
    for i in range(1, size):
        matrix[i][i] += RIDGE * total
    return _solve(matrix, right)[0]


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """The solution of a symmetric positive definite system, by elimination."""
    size = len(right)
    for i in range(size):
        for j in range(i + 1, size):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [b - factor * a for a, b in zip(matrix[i], matrix[j], strict=True)]
            right[j] -= factor * right[i]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (right[i] - sum(matrix[i][j] * found[j] for j in range(i + 1, size))) / matrix[i][i]
    return found
