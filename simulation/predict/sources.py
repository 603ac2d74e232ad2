"""Says of each kernel and collective whether its time was measured at its size, is interpolated, or is of a model.

ERRORS holds, in %, how far off nine of ten times are (test_sources.py): products of an H200 that this project measured
at the tables' shapes, and kernels that only move data there; products of every GPU between shapes that were left out,
and attention of that H200.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from simulation.predict import kernels, operations
from simulation.predict.duration import STREAMS, Sent, Stopwatch
from simulation.predict.iteration import Prediction
from simulation.predict.operations import Attention, Decoding, Experts, Operation, Part, Product, Traffic
from workloads.job.weights import layers_of

MEASURED, INTERPOLATED, EXTRAPOLATED = kernels.MEASURED, kernels.INTERPOLATED, kernels.EXTRAPOLATED
ROOFLINE, FITTED = "roofline", "fitted"
"""By the memory's rate; by rates that were fitted to tables of experts."""
ERRORS: Mapping[str, float | None] = {
    MEASURED: 10.0, INTERPOLATED: 16.0, ROOFLINE: 10.0, EXTRAPOLATED: None, FITTED: None,
}  # fmt: skip
"""None: nothing was measured there; of what was fitted the fit says it (data/experts.csv)."""


class Kernel(NamedTuple):
    """A kernel of one micro-batch on the slowest stage: its shape, us of one, how many a stage runs, its source."""

    where: str
    is_backward: bool
    part: str
    shape: str
    us: float
    times: int
    source: str
    error_percent: float | None


def kernels_of(found: Prediction) -> list[Kernel]:
    """The products, attention and kernels that move data, in their order; what recomputation repeats counts once."""
    job = found.job
    slowest = max(range(job.pp), key=lambda stage: found.stages_ms[stage])
    dense, expert = layers_of(job, slowest)
    counts = (int(slowest == 0), dense, expert, int(slowest == job.pp - 1))
    return kernels_by(Stopwatch(job, found.machine), operations.parts(job), counts)


def kernels_by(watch: Stopwatch, its: operations.Parts, counts: tuple[int, int, int, int]) -> list[Kernel]:
    """The kernels of pieces of a model, of which there are so many, as the watch times them."""
    found = []
    for (where, part), count in zip(its._asdict().items(), counts, strict=True):
        assert part is None or isinstance(part, Part)
        for is_backward in (False, True) if part and count else ():
            assert part is not None
            for each in part.backward if is_backward else part.forward:
                if not isinstance(each, operations.Collective):
                    name, us = watch.timed(each)
                    source = source_of(watch, each)
                    error = (
                        kernels.expert_errors()[watch.machine.gpu, watch.precision]
                        if source == FITTED
                        else ERRORS[source]
                    )
                    found.append(Kernel(where, is_backward, name, _shape(each), us, count, source, error))
    return found


def _shape(each: Operation) -> str:
    match each:
        case Product():
            return f"{each.times} of {each.m:g} x {each.n} x {each.k}"
        case Attention():
            return f"{each.heads:g} heads of {each.qk} and {each.v} over {each.seq:g}"
        case Decoding():
            return f"{each.units} heads of {each.widths} after {each.context}, {each.shared} queries each"
        case Experts():
            return f"{each.experts} experts, {each.pairs:g} tokens"
        case _:
            return f"{each.bytes:.4g} bytes in {each.kernels}" if isinstance(each, Traffic) else each.op


def source_of(watch: Stopwatch, each: Operation) -> str:
    """The source of a kernel's time in a burst; factors of sustained clocks have their own."""
    if isinstance(each, Traffic):
        return ROOFLINE
    if isinstance(each, Experts):
        return FITTED
    if isinstance(each, Product):
        return _of_product(watch, each)
    is_latent = watch.is_engine and watch.job.latent is not None
    if isinstance(each, Decoding):
        its = (each.context, watch.job.mbs, each.units // watch.job.mbs) if is_latent else each[:3]
        grid = kernels.grids()[kernels.LATENT_DECODE if is_latent else kernels.DECODE, watch.machine.gpu, "bf16"]
        return grid.source(its)
    assert isinstance(each, Attention)
    return _of_attention(watch.machine.gpu, each, is_latent=is_latent)


def _of_product(watch: Stopwatch, each: Product) -> str:
    low = watch.precision
    dtype = low if low != "bf16" and not each.wide else "bf16"
    grid = kernels.grids()[kernels.PRODUCT, watch.machine.gpu, dtype]
    source = grid.source((each.m * min(STREAMS, each.times), each.n, each.k))
    # Of products that are scaled by rows there is a ratio to those of one scale.
    return INTERPOLATED if source == MEASURED and dtype != "bf16" and watch.job.by_rows else source


def _of_attention(gpu: str, each: Attention, *, is_latent: bool) -> str:
    grid = kernels.grids()[kernels.LATENT if is_latent else kernels.ATTENTION, gpu, "bf16"]
    widths = () if is_latent else ((each.qk + each.v) / 2,)
    # Fewer heads take as long as the fewest that were measured.
    source = grid.source((each.seq, each.heads if is_latent else max(each.heads, grid.axes[1][0]), *widths))
    # Of backward passes and windows there are ratios to a whole forward pass.
    return INTERPOLATED if source == MEASURED and (each.backward or each.full < 1) else source


def shares(its: Sequence[Kernel]) -> dict[str, float]:
    """Of the time of kernels, in %, what comes of each source; the largest first."""
    found: dict[str, float] = {}
    for each in its:
        found[each.source] = found.get(each.source, 0.0) + each.us * each.times
    total = sum(found.values()) or 1.0
    return {key: 100 * us / total for key, us in sorted(found.items(), key=lambda item: -item[1])}


def sentence(its: Sequence[Kernel]) -> str:
    """The shares with their error bars, for a person."""
    errors = {each.source: each.error_percent for each in its}
    return ", ".join(f"{share:.0f} % {key}{_error(errors[key])}" for key, share in shares(its).items())


def _error(percent: float | None) -> str:
    return "" if percent is None else f" (9 of 10 within {percent:g} %)"


def sent_sentence(its: Iterable[Sent]) -> str:
    """Where the times of collectives and messages are from, for a person."""
    found: dict[str, dict[str, None]] = {}
    for each in its:
        apart = f", {each.stride} apart" if each.stride > 1 else ""
        found.setdefault(each.source, {})[f"{each.op} of {each.ranks} ranks{apart}"] = None
    return "; ".join(f"{source}: {', '.join(names)}" for source, names in found.items())
