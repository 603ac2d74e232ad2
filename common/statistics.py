"""Says how sure repeated measurements are: median with interval, percentiles, quantiles of Student's t, without scipy.

The head node has no scipy, and Python's own `statistics` knows no Student's t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, median
from typing import Literal

CONFIDENCE = 0.95
OUTLYING = 5.0
MAD = 1.4826
QUARTILES_PER_STD = 1.349
FEWEST_PEERS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Median:
    """The median of repeated values, and the interval of order statistics that holds the true median.

    `confidence` is the interval's coverage for any distribution: 0.95 where the repeats suffice (6), else that of
    minimum and maximum, 1 - 2**(1 - n) for n values.
    """

    value: float
    low: float
    high: float
    confidence: float
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One group at one size over the repeats: its rate (1/s) and busbw (GB/s)."""

    group: str
    hosts: tuple[str, ...]
    node_ranks: tuple[int, ...]
    world_size: int
    rate: Median
    busbw_gbps: Median


def median_of(values: Sequence[float]) -> Median:
    """Median and distribution-free confidence interval, in the unit of `values`.

    Source: binomial order statistics, as in David and Nagaraja, "Order Statistics" (2003), section 7.1.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("values: none given; a median needs 1 or more")
    ordered, n = sorted(values), len(values)
    # Number of the 2**n equally likely outcomes beyond one end. Integers: 0.5**n is 0 from 1075 values on.
    place, below, term = 1, 1, n
    while place < n // 2 and 1 - (below + term) / 2 ** (n - 1) >= CONFIDENCE:
        below += term
        place, term = place + 1, term * (n - place) // (place + 1)
    coverage = 1 - below / 2 ** (n - 1)
    return Median(
        value=median(ordered), low=ordered[place - 1], high=ordered[n - place], confidence=max(0.0, coverage), n=n
    )


def behind(
    values: Sequence[float | None], limit: float, better: Literal["higher", "lower"] = "higher"
) -> dict[int, float]:
    """By place, percent worse than the median of those that are outliers among four or more; None is no value.

    An outlier is worse by more than `limit` percent and OUTLYING times the scatter: MAD times the median absolute
    deviation, a normal law's standard deviation (Rousseeuw and Croux, JASA 88, 1993).
    """
    present = [value for value in values if value is not None]
    if len(present) < FEWEST_PEERS:
        return {}
    middle, sign = median(present), 1 if better == "higher" else -1
    least = max(limit / 100 * middle, OUTLYING * scatter(present))
    short = {place: sign * (middle - value) for place, value in enumerate(values) if value is not None}
    return {place: 100 * by / middle for place, by in short.items() if by > least}


def scatter(values: Sequence[float]) -> float:
    """A robust standard deviation of one or more values, in their unit; see `behind`."""
    middle = median(values)
    return MAD * median(abs(value - middle) for value in values)


def percentile(
    ordered: Sequence[float], percent: int, method: Literal["nearest rank", "linear"] = "nearest rank"
) -> float:
    """A percentile of one or more sorted values, in their unit.

    By nearest rank it is the smallest that at least `percent` % of them do not exceed; linear interpolates between two
    of them, as numpy does.
    """
    if method == "nearest rank":
        return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]
    place = (len(ordered) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


@lru_cache(maxsize=4096)
def student_quantile(chance: float, degrees: int) -> float:
    """The value that t with `degrees` degrees of freedom exceeds with the probability `chance`, above 0 and up to 0.5.

    Dimensionless; infinite without a degree of freedom. By Newton's steps in the logarithms of both.
    """
    if degrees < 1:
        return math.inf
    value = -NormalDist().inv_cdf(chance)
    for _ in range(100 if value > 0 else 0):
        tail, weight = _student(value, degrees)
        step = math.log(tail / chance) * tail / weight
        value *= math.exp(step)
        if abs(step) < 1e-12:
            break
    return value


def student_tail(value: float, degrees: int) -> float:
    """Probability (0 to 1) that t with `degrees` degrees of freedom (1 or more) exceeds `value`, at least 0.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.1.
    """
    return _student(value, degrees)[0]


def _student(value: float, degrees: int) -> tuple[float, float]:
    """That probability, and `value` times the density of t there."""
    half, ratio = degrees / 2, value * value / degrees
    ways = math.lgamma(half + 0.5) - math.lgamma(half) - math.lgamma(0.5)
    far = 1 / (1 + ratio)
    if far > 0:
        weight = math.exp(ways - half * math.log1p(ratio)) * math.sqrt(ratio / (1 + ratio))
    else:  # the square is beyond the largest number
        weight = math.exp(ways - half * (2 * math.log(value) - math.log(degrees)))
    if far < (half + 1) / (half + 2.5):
        return weight / degrees * _beta_fraction(far, half, 0.5), weight
    return 0.5 - weight * _beta_fraction(ratio * far, 0.5, half), weight


def _beta_fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, for x below (a + 1) / (a + b + 2).

    Source: NIST Digital Library of Mathematical Functions, 8.17.22; by Lentz's method (Applied Optics 15, 1976).
    """
    whole = above = 1.0
    below = 0.0
    for at in range(1, 100_000):
        m = at // 2
        up = -(a + m) * (a + b + m) if at % 2 else m * (b - m)
        part = up * x / ((a + at - 1) * (a + at))
        above, below = 1 + part / above, 1 / (1 + part * below)
        whole *= above * below
        if abs(above * below - 1) < 1e-15:
            break
    return 1 / whole
