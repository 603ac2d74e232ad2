"""Looks a compute time up: measured exactly, between measured neighbours, or by the roofline of another device.

The roofline model: S. Williams, A. Waterman, D. Patterson, "Roofline", CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from math import inf, log, sqrt
from statistics import median

from vendors.datasheets import Datasheet, datasheets
from workloads.compute import local_fit
from workloads.compute.measurement import ComputeTime, device_name, sheet_of
from workloads.compute.operators import DTYPE_BYTES, Operator, Shape, operator, parse_shape, shape_text
from workloads.job.errors import AicbError

EXACT, INTERPOLATED, ROOFLINE = "exact", "interpolated", "roofline"
REACH = 2.0
"""How far outside the measured sizes neighbours still answer, as a factor."""
ACROSS_DEVICES = 0.2
"""Least error of a time that comes from another device. In the shipped tables A100 and H100 reach shares of their peaks
that differ by up to 15 % (gated_activation: 0.51 and 0.59)."""
PER_DOUBLING = 0.1
"""Least error for each doubling (of all sizes together) between a shape and the row whose share of the peak it gets."""
LAUNCH_NS = 5000
"""A roofline below this is a lower bound alone: starting a kernel takes as long."""
RELATED_OPERATORS = {
    "gemm_dgrad": "gemm", "gemm_wgrad": "gemm", "experts_dgrad": "experts", "experts_wgrad": "experts",
}  # fmt: skip
"""Whose share of the peak stands in where an operator was measured nowhere: a product whose operands lie otherwise."""
RELATED_TYPES = {"bf16": "fp16", "fp16": "bf16"}
"""The type whose share of the peak stands in: tensor cores have one rate for both. Another device's rows of the same
type stand before it: they tell bf16 products of an H100 to 5 %, its own fp16 rows of other programs to 13 % (medians,
test_gpu_tables.py).
"""
JUDGED = 8
"""Nearest rows that are predicted from the others to find the error of an interpolation. In tables of H100 the largest
of eight covers 85 % of the interpolated products that were left out.
"""


class NoTimeError(AicbError):
    """Neither a measurement nor a datasheet gives a time; the message says what is there."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A time in ns, how it was found, and its error bar relative to it (inf: a lower bound alone).

    basis: the rows that it comes from. bound: "compute" or "memory" by arithmetic intensity, for a roofline.
    """

    ns: float
    how: str
    error: float
    basis: tuple[ComputeTime, ...]
    why: str
    bound: str | None = None


class ComputeTimes:
    """Measurements, to be looked up by device, operator, type and shape."""

    def __init__(self, rows: Iterable[ComputeTime]) -> None:
        self.rows = list(dict.fromkeys(rows))
        self._groups: dict[tuple[str, str, str], list[ComputeTime]] = defaultdict(list)
        for row in self.rows:
            self._groups[row.device, row.op, row.dtype].append(row)

    def look_up(self, device: str, op: str, shape: str | Shape, dtype: str, kernel: str | None = None) -> Answer:
        """The time of one call. kernel: only rows of this one are used; without it any.

        Raises:
            NoTimeError: nothing gives a time.
            AicbError: the operator, shape or type is unknown.
        """
        try:
            wanted = parse_shape(op, shape) if isinstance(shape, str) else shape
        except ValueError as error:
            raise AicbError(str(error)) from None
        if dtype not in DTYPE_BYTES:
            raise AicbError(f"dtype {dtype!r} is none of {', '.join(DTYPE_BYTES)}")
        name = device_name(device)
        found = self._measured(name, op, wanted, dtype, kernel)
        return found or self._roofline(name, op, wanted, dtype, kernel)

    def candidates(self, device: str, op: str, shape: Shape, dtype: str, kernel: str | None) -> list[ComputeTime]:
        """The rows of a device that may answer: of the operator, type and kernel, with the same switches."""
        return [
            row
            for row in self._groups.get((device, op, dtype), ())
            if kernel in (None, row.kernel) and all(row.axes[mode] == shape[mode] for mode in operator(op).modes)
        ]

    def _measured(self, device: str, op: str, shape: Shape, dtype: str, kernel: str | None) -> Answer | None:
        rows = self.candidates(device, op, shape, dtype, kernel)
        text = shape_text(op, shape)
        same = [row for row in rows if row.shape == text]
        if same:
            return _exact(same)
        known = operator(op)
        one_each = merged(rows)
        if len(one_each) < 2 or not local_fit.within(known, shape, one_each, REACH):
            return None
        found = local_fit.estimate(known, shape, one_each)
        error = _error_of(known, shape, found, one_each)
        what = "between two along one axis" if found.straight else f"from {len(found.neighbours)} neighbours"
        return Answer(found.ns, INTERPOLATED, error, found.neighbours, what)

    def _roofline(self, device: str, op: str, shape: Shape, dtype: str, kernel: str | None) -> Answer:
        sheet = sheet_of(device)
        if sheet is None or dtype not in sheet.tflops:
            raise NoTimeError(self._nothing(device, op, shape, dtype, sheet))
        known = operator(op)
        least, bound = roof(known, shape, dtype, sheet)
        scaled = self._sources(op, shape, dtype, kernel)
        stands_in = None
        for near_op, near_type in _related(op, dtype):
            if not scaled:
                stands_in = f"{near_op} in {near_type}"
                scaled = self._sources(near_op, shape, near_type, kernel)
        if not scaled:
            why = f"the peak of {sheet.name} alone: nothing like it was measured, so this is a lower bound"
            return Answer(least, ROOFLINE, inf, (), why, bound)
        # A device says most of itself, then the one whose answer is the surest.
        (ratio, error, basis), other = min(scaled, key=lambda entry: (entry[1] != device, entry[0][1]))
        error = error if other == device and stands_in is None else max(error, ACROSS_DEVICES)
        why = f"scaled from {other} by {'FLOPS' if bound == 'compute' else 'bandwidth'}"
        why += f", from {stands_in}" if stands_in else ""
        if ratio * least < LAUNCH_NS:
            error, why = inf, f"{why}; as short as the start of a kernel, so this is a lower bound"
        return Answer(ratio * least, ROOFLINE, error, basis, why, bound)

    def _sources(
        self, op: str, shape: Shape, dtype: str, kernel: str | None
    ) -> list[tuple[tuple[float, float, tuple[ComputeTime, ...]], str]]:
        """The source, by `_source`, of each device with rows of an operator and type, and the device."""
        devices = sorted({key[0] for key in self._groups if key[1:] == (op, dtype)})
        found = [(self._source(device, operator(op), op, shape, dtype, kernel), device) for device in devices]
        return [(answer, device) for answer, device in found if answer is not None]

    def _source(
        self, device: str, known: Operator, op: str, shape: Shape, dtype: str, kernel: str | None
    ) -> tuple[float, float, tuple[ComputeTime, ...]] | None:
        """How many times its roofline a device takes for a shape, with the error of that and the rows; None: unknown.

        The error is that of the device's own answer (beyond its rows PER_DOUBLING) and the range of this ratio over its
        nearest rows: as far as it differs between shapes it may differ between devices.
        """
        sheet = sheet_of(device)
        rows = merged(self.candidates(device, op, shape, dtype, kernel))
        if sheet is None or dtype not in sheet.tflops or not rows:
            return None
        measured = self._measured(device, op, shape, dtype, kernel)
        near = sorted(rows, key=lambda row: local_fit.distance(known, shape, row.axes))[: local_fit.NEIGHBOURS]
        ratios = [row.ns / roof(known, row.axes, dtype, sheet)[0] for row in near]
        ratio = ratios[0] if measured is None else measured.ns / roof(known, shape, dtype, sheet)[0]
        spread = max(abs(each / ratio - 1) for each in ratios)
        doublings = sqrt(local_fit.distance(known, shape, near[0].axes)) / log(2)
        error = max(spread, PER_DOUBLING * doublings if measured is None else measured.error)
        return ratio, error, (near[0],) if measured is None else measured.basis

    def _nothing(self, device: str, op: str, shape: Shape, dtype: str, sheet: Datasheet | None) -> str:
        rows = self.candidates(device, op, shape, dtype, None)
        if rows:
            near = min(rows, key=lambda row: local_fit.distance(operator(op), shape, row.axes))
            there = f"the nearest of its {len(rows)} rows is {near.shape}"
        else:
            there = f"no row of it is {op} in {dtype}; measured devices: {', '.join(self.devices) or 'none'}"
        sheets = ", ".join(each.name for each in datasheets())
        lacks = (
            f"it has no datasheet here (there are {sheets})"
            if sheet is None
            else f"its datasheet has no rate of {dtype}"
        )
        return f"device {device!r}: {op} {shape_text(op, shape)} {dtype} is out of reach: {there}; {lacks}"

    @property
    def devices(self) -> list[str]:
        """Every device with a row."""
        return sorted({row.device for row in self.rows})


def roof(op: Operator, shape: Shape, dtype: str, sheet: Datasheet) -> tuple[float, str]:
    """The least time of a shape in ns by the datasheet, and what bounds it: "compute" or "memory"."""
    compute = op.flops(shape) / (sheet.tflops[dtype] * 1e3)
    memory = op.elements(shape) * DTYPE_BYTES[dtype] / sheet.memory_GBps
    return (compute, "compute") if compute >= memory else (memory, "memory")


def _related(op: str, dtype: str) -> list[tuple[str, str]]:
    """Operators and types whose rows may stand in, the nearest first."""
    ops = [op, *([RELATED_OPERATORS[op]] if op in RELATED_OPERATORS else [])]
    types = [dtype, *([RELATED_TYPES[dtype]] if dtype in RELATED_TYPES else [])]
    return [(each, kind) for each in ops for kind in types if (each, kind) != (op, dtype)]


def merged(rows: Sequence[ComputeTime]) -> list[ComputeTime]:
    """One row for each shape: the median of those of several kernels, versions or sources."""
    by_shape: dict[str, list[ComputeTime]] = defaultdict(list)
    for row in rows:
        by_shape[row.shape].append(row)
    return [sorted(each, key=lambda row: row.ns)[len(each) // 2] for each in by_shape.values()]


def _exact(rows: list[ComputeTime]) -> Answer:
    if len(rows) == 1:
        return Answer(rows[0].ns, EXACT, rows[0].spread, tuple(rows), "measured")
    middle = median(row.ns for row in rows)
    error = max(max(abs(row.ns / middle - 1), row.spread) for row in rows)
    kinds = len({(row.kernel, row.versions, row.source) for row in rows})
    return Answer(middle, EXACT, error, tuple(rows), f"the median of {len(rows)} measurements, {kinds} kinds of them")


def _error_of(op: Operator, shape: Shape, found: local_fit.Estimate, rows: list[ComputeTime]) -> float:
    """The largest error with which the nearest rows are predicted from the other rows, and the neighbours' spread."""
    errors = [row.spread for row in found.neighbours]
    for row in nsmallest(JUDGED, rows, key=lambda row: local_fit.distance(op, shape, row.axes)):
        others = [other for other in rows if other.shape != row.shape]
        errors.append(abs(local_fit.estimate(op, row.axes, others).ns / row.ns - 1))
    return max(errors)
