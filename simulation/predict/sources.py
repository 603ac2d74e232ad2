"""Says of each kernel whether its time was measured at its shape, is interpolated, or follows from a rate.

ERRORS holds, in %, how far off nine of ten times are (test_sources.py): products of an H200 that this project measured
at the tables' shapes, and kernels that only move data there; products of every GPU between shapes that were left out,
and attention of that H200.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simulation.predict import kernels, operations
from simulation.predict.duration import STREAMS, Stopwatch
from simulation.predict.iteration import Prediction
from simulation.predict.operations import Attention, Operation, Part, Product, Traffic
from simulation.predict.weights import layers_of

MEASURED, INTERPOLATED, ROOFLINE, EXTRAPOLATED = "measured", "interpolated", "roofline", "extrapolated"
"""Extrapolated: larger or smaller than what was measured, at the rate of the tables' edge."""
ERRORS: Mapping[str, float | None] = {MEASURED: 10.0, INTERPOLATED: 16.0, ROOFLINE: 10.0, EXTRAPOLATED: None}
"""None: nothing was measured there."""


class Kernel(NamedTuple):
    """A kernel of one micro-batch on the slowest stage: its shape, us of one, how many a stage runs, its source."""

    where: str
    is_backward: bool
    part: str
    shape: str
    us: float
    times: int
    source: str


def kernels_of(found: Prediction) -> list[Kernel]:
    """The products, attention and kernels that move data, in their order; what recomputation repeats counts once."""
    return [*_kernels(found)]


def _kernels(found: Prediction) -> Iterator[Kernel]:
    job, watch = found.job, Stopwatch(found.job, found.machine)
    slowest = max(range(job.pp), key=lambda stage: found.stages_ms[stage])
    dense, expert = layers_of(job, slowest)
    counts = {"embedding": int(slowest == 0), "dense": dense, "expert": expert, "head": int(slowest == job.pp - 1)}
    its: dict[str, Part | None] = operations.parts(job)._asdict()
    for where, count in counts.items():
        part = its[where]
        for is_backward in (False, True) if part and count else ():
            assert part is not None
            for each in part.backward if is_backward else part.forward:
                if isinstance(each, Product | Attention | Traffic):
                    name, us = watch.timed(each)
                    yield Kernel(where, is_backward, name, _shape(each), us, count, source_of(watch, each))


def _shape(each: Product | Attention | Traffic) -> str:
    if isinstance(each, Product):
        return f"{each.times} of {each.m:g} x {each.n} x {each.k}"
    if isinstance(each, Attention):
        return f"{each.heads:g} heads of {each.qk} and {each.v} over {each.seq:g}"
    return f"{each.bytes:.4g} bytes in {each.kernels}"


def source_of(watch: Stopwatch, each: Operation) -> str:
    """The source of a kernel's time in a burst; factors of sustained clocks have their own."""
    gpu, low = watch.machine.gpu, watch.precision
    if isinstance(each, Product):
        dtype = low if low != "bf16" and not each.wide else "bf16"
        grid = kernels.grids()[kernels.PRODUCT, gpu, dtype]
        source = _of_place(grid, (each.m * min(STREAMS, each.times), each.n, each.k))
        # Of products that are scaled by rows there is a ratio to those of one scale.
        return INTERPOLATED if source == MEASURED and dtype != "bf16" and watch.job.by_rows else source
    if not isinstance(each, Attention):
        return ROOFLINE
    grid = kernels.grids()[kernels.ATTENTION, gpu, "bf16"]
    place = (each.seq, max(each.heads, grid.axes[1][0]), (each.qk + each.v) / 2)
    source = _of_place(grid, place)
    # Of backward passes and windows there are ratios to a whole forward pass.
    return INTERPOLATED if source == MEASURED and (each.backward or each.full < 1) else source


def _of_place(grid: kernels.Grid, place: tuple[float, ...]) -> str:
    if place in grid.values:
        return MEASURED
    inside = all(axis[0] <= size <= axis[-1] for axis, size in zip(grid.axes, place, strict=True))
    return INTERPOLATED if inside else EXTRAPOLATED


def shares(its: list[Kernel]) -> dict[str, float]:
    """Of the time of kernels, in %, what comes of each source; the largest first."""
    found: dict[str, float] = {}
    for each in its:
        found[each.source] = found.get(each.source, 0.0) + each.us * each.times
    total = sum(found.values()) or 1.0
    return {key: 100 * us / total for key, us in sorted(found.items(), key=lambda item: -item[1])}


def sentence(its: list[Kernel]) -> str:
    """The shares with their error bars, for a person."""
    return ", ".join(f"{share:.0f} % {key}{_error(key)}" for key, share in shares(its).items())


def _error(source: str) -> str:
    percent = ERRORS[source]
    return "" if percent is None else f" (9 of 10 within {percent:g} %)"
