"""Says whether two samples differ: an interval of the difference, the probability of chance, what would be found.

Welch's t-test of rounds errs where runs differ among themselves (placement, boot): with the spread between runs known
from the history, whole runs are the units. Sources: Welch, Biometrika 34 (1947); Holm, Scand. J. Statist. 6 (1979).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from common.statistics import student_quantile, student_tail

MAX_DEGREES = 1000
POWER = 0.8
MOST_UNITS = 10_000
BATCHES, MIN_STEPS = 10, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The variance of the mean of one run, from runs of before that were made alike, with its degrees of freedom."""

    variance: float
    degrees: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The mean of B less that of A, in the unit of the values. `error`: its standard error; `p_value`: two-sided."""

    first: float
    second: float
    error: float
    degrees: int
    p_value: float
    units: tuple[int, int]

    @property
    def value(self) -> float:
        """The difference of the means."""
        return self.second - self.first

    def half_width(self, confidence: float) -> float:
        """Half of the interval that holds the true difference with this confidence."""
        return student_quantile((1 - confidence) / 2, self.degrees) * self.error

    def found(self, confidence: float) -> float:
        """The difference that such a comparison finds with probability POWER."""
        return self.half_width(confidence) + student_quantile(1 - POWER, self.degrees) * self.error

    def needed(self, width: float, confidence: float) -> int | None:
        """The units on each side at which half of the interval is at most `width`; None beyond MOST_UNITS."""
        scale = self.error / math.sqrt(sum(1 / n for n in self.units))  # of one unit

        def suffices(units: int) -> bool:
            degrees = min(2 * units - 2, MAX_DEGREES)
            return student_quantile((1 - confidence) / 2, degrees) * scale * math.sqrt(2 / units) <= width

        found = bisect_left(range(2, MOST_UNITS), True, key=suffices) + 2
        return found if found < MOST_UNITS else None


def between_rounds(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Welch's test of the values of two runs' rounds; None where one has fewer than two."""
    sizes = len(first), len(second)
    if min(sizes) < 2:
        return None
    parts = [variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    degrees = sum(sizes) - 2
    if total > 0:
        # Shares: the squares of the variances themselves may be beyond a float, or 0.
        degrees = int(1 / sum((part / total) ** 2 / (n - 1) for part, n in zip(parts, sizes, strict=True)))
    return _difference(fmean(first), fmean(second), math.sqrt(total), max(1, degrees), sizes)


def batch_means(steps: Sequence[float]) -> list[float]:
    """Means of BATCHES equal parts of a round's steps, in their unit; the steps before these, at most a tenth, warm up.

    Steps follow one another and are alike; means of long parts are nearly independent (Conway, Management Science 9
    (1963)). With fewer than MIN_STEPS steps they are not, and there are none.
    """
    if len(steps) < MIN_STEPS:
        return []
    size = len(steps) // (BATCHES + 1)
    latest = steps[-size * BATCHES :]
    return [fmean(latest[at : at + size]) for at in range(0, len(latest), size)]


def between_runs(first: Sequence[float], second: Sequence[float], history: Spread | None) -> Difference | None:
    """Student's test of the means of runs, with the spread of both sides and the history pooled.

    None where these have less than two degrees of freedom together.
    """
    sums = [variance(values) * (len(values) - 1) for values in (first, second) if len(values) > 1]
    degrees = sum(len(values) - 1 for values in (first, second))
    if history is not None:
        sums.append(history.variance * history.degrees)
        degrees += history.degrees
    if degrees < 2:
        return None
    error = math.sqrt(math.fsum(sums) / degrees * (1 / len(first) + 1 / len(second)))
    return _difference(fmean(first), fmean(second), error, degrees, (len(first), len(second)))


def _difference(first: float, second: float, error: float, degrees: int, units: tuple[int, int]) -> Difference:
    degrees = min(degrees, MAX_DEGREES)
    certain = 1.0 if first == second else 0.0
    p_value = 2 * student_tail(abs(second - first) / error, degrees) if error > 0 else certain
    return Difference(first=first, second=second, error=error, degrees=degrees, p_value=p_value, units=units)


def spread_of(groups: Sequence[Sequence[float]]) -> Spread | None:
    """The spread of run means, in the unit of the metric, within groups of runs that were made alike.

    None without two runs of one group.
    """
    usable = [values for values in groups if len(values) > 1]
    degrees = sum(len(values) - 1 for values in usable)
    if not degrees:
        return None
    return Spread(
        variance=math.fsum(variance(values) * (len(values) - 1) for values in usable) / degrees, degrees=degrees
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Each p-value adjusted by Holm's method for the number of tests: all errors together stay at the level."""
    adjusted, largest = {}, 0.0
    for index, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - index) * p_value))
        adjusted[name] = largest
    return adjusted
