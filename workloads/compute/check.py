"""Checks a database against itself: each row is predicted from the others, by the same look-up that users ask."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from workloads.compute.lookup import INTERPOLATED, ComputeTimes, NoTimeError
from workloads.compute.measurement import ComputeTime

LIMIT = 0.10
"""Largest median error, over the rows of all devices and operators."""


@dataclass(frozen=True, slots=True)
class Left:
    """A row that was left out: what the others predict, relative to it, and whether by interpolation."""

    row: ComputeTime
    error: float
    how: str


def leave_one_out(rows: Sequence[ComputeTime]) -> tuple[list[Left], list[ComputeTime]]:
    """Predict each row without the rows of its shape. Returns the predictions and the rows that nothing predicts."""
    groups: dict[tuple[str, str, str], list[ComputeTime]] = defaultdict(list)
    for row in dict.fromkeys(rows):
        groups[row.device, row.op, row.dtype].append(row)
    found, alone = [], []
    for (device, op, dtype), same in groups.items():
        for row in same:
            others = [
                other for other in rows if other.op == op and (other.device != device or other.shape != row.shape)
            ]
            try:
                answer = ComputeTimes(others).look_up(device, op, row.shape, dtype)
            except NoTimeError:
                alone.append(row)
                continue
            if answer.basis:
                found.append(Left(row, abs(answer.ns / row.ns - 1), answer.how))
            else:
                alone.append(row)
    return found, alone


def report(rows: Sequence[ComputeTime]) -> tuple[list[str], float | None]:
    """The lines of the check, a line for each device and operator, and the median error as a
    fraction (None: nothing to check)."""
    left, alone = leave_one_out(rows)
    groups: dict[tuple[str, str, str], list[Left]] = defaultdict(list)
    for each in left:
        groups[each.row.device, each.row.op, each.row.dtype].append(each)
    lines = [f"{'device':<24} {'op':<26} {'type':<5} {'rows':>5} {'median':>8} {'p90':>8} {'largest':>8}  interpolated"]
    for (device, op, dtype), same in sorted(groups.items()):
        errors = sorted(each.error for each in same)
        between = sum(each.how == INTERPOLATED for each in same)
        p90 = errors[min(len(errors) - 1, int(0.9 * len(errors)))]
        lines.append(
            f"{device:<24} {op:<26} {dtype:<5} {len(same):>5} {median(errors):>8.1%} {p90:>8.1%} {errors[-1]:>8.1%}"
            f"  {between} of {len(same)}"
        )
    if alone:
        lines.append(f"{len(alone)} rows have no other row that could predict them")
    middle = median(each.error for each in left) if left else None
    return lines, middle
