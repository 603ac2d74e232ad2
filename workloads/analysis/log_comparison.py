"""Compares two executed workloads by class of operation: the ratio of their times with a bootstrap interval.

Records of one iteration share its disturbances, so whole iterations are drawn again, not records.
"""

from dataclasses import dataclass

import numpy as np

from workloads.analysis.merged import Merged, OpClass
from workloads.oplog.file import Numbers

RESAMPLES = 2000
INTERVAL = (2.5, 97.5)
"""Percentiles: the interval holds the ratio with 95 %."""
LEAST_ITERATIONS = 5


@dataclass(frozen=True, slots=True)
class ClassRatio:
    """A class in both runs: median over iterations of its mean time in ms, and the second's over the first's.

    low, high: 95 % interval of the ratio, equal to it where a run has fewer than LEAST_ITERATIONS iterations.
    differs: whether the interval leaves 1 out.
    """

    op_class: OpClass
    first_ms: float
    second_ms: float
    ratio: float
    low: float
    high: float
    differs: bool


@dataclass(frozen=True, slots=True)
class LogComparison:
    """Classes of both runs, those with the largest change in time first; and those that only one of them has."""

    classes: list[ClassRatio]
    only_first: list[OpClass]
    only_second: list[OpClass]


def compare_logs(first: Merged, second: Merged) -> LogComparison:
    """The second run beside the first; the answer is the same each time for the same logs.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13 (percentile interval).
    """
    ours, theirs = _by_iteration(first), _by_iteration(second)
    random = np.random.default_rng(0)
    found = []
    for each in ours.keys() & theirs.keys():
        one, two = float(np.median(ours[each])), float(np.median(theirs[each]))
        if one <= 0:
            continue
        low, high = _interval(ours[each], theirs[each], random) or (two / one, two / one)
        surely = min(len(ours[each]), len(theirs[each])) >= LEAST_ITERATIONS and not low <= 1 <= high
        found.append(ClassRatio(each, one, two, two / one, low, high, surely))
    found.sort(key=lambda each: (-abs(each.second_ms - each.first_ms), each.op_class))
    return LogComparison(found, sorted(ours.keys() - theirs.keys()), sorted(theirs.keys() - ours.keys()))


def _interval(
    first: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    second: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    random: np.random.Generator,
) -> tuple[float, float] | None:
    if min(len(first), len(second)) < LEAST_ITERATIONS:
        return None
    drawn = [
        np.median(times[random.integers(0, len(times), (RESAMPLES, len(times)))], axis=1) for times in (first, second)
    ]
    low, high = np.percentile(drawn[1] / np.maximum(drawn[0], 1e-9), INTERVAL)
    return float(low), float(high)


def _by_iteration(merged: Merged) -> "dict[OpClass, np.ndarray[tuple[int], np.dtype[np.float64]]]":
    """The mean time in ms of each class in each of its iterations, shape (iterations,)."""
    if not len(merged):
        return {}
    numbers, iteration = np.unique(merged.iteration, return_inverse=True)
    cell: Numbers = merged.op_class * len(numbers) + iteration
    size = len(merged.classes) * len(numbers)
    counts = np.bincount(cell, minlength=size).reshape(len(merged.classes), -1)
    sums = np.bincount(cell, weights=merged.done_ns - merged.issue_ns, minlength=size).reshape(counts.shape)
    return {
        each: (sums[number][counts[number] > 0] / counts[number][counts[number] > 0]) / 1e6
        for number, each in enumerate(merged.classes)
    }
