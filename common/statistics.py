"""Says how sure repeated measurements are: median with interval, percentiles, quantiles of Student's t, without scipy.

The head node has no scipy, and Python's own `statistics` knows no Student's t.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

CONFIDENCE = 0.95
OUTLYING = 5.0
MAD = 1.4826
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


def percentile(ordered: Sequence[float], percent: int) -> float:
    """The smallest of one or more sorted values that at least `percent` % of them do not exceed (nearest rank)."""
    return ordered[max(math.ceil(len(ordered) * percent / 100) - 1, 0)]


def student_quantile(probability: float, degrees: int) -> float:
    """The value that t with `degrees` degrees of freedom (1 or more) exceeds with 1 - probability; dimensionless.

    `probability` lies between 0.5 and 1. Found by bisection, to nine digits.
    """
    low, high = 0.0, 1.0
    while student_distribution(high, degrees) < probability:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_distribution(middle, degrees) < probability else (low, middle)
    return high


def student_distribution(value: float, degrees: int) -> float:
    """Probability that t with `degrees` degrees of freedom (1 or more) is below `value`, at least 0.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
    """
    angle = math.atan(value / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    if degrees == 1:
        return 0.5 + angle / math.pi
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    for number in range(2 + odd, degrees, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + within / 2
