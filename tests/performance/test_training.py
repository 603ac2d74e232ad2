"""The interval in which the median of the measured ratios lies."""

import random

import pytest

from tests.performance.training import median_interval


@pytest.mark.parametrize(("count", "low", "high"), [(6, 1, 6), (10, 2, 9), (30, 10, 21), (40, 14, 27)])
def test_the_interval_is_that_of_the_tables(count: int, low: int, high: int) -> None:
    """Order statistics for the median at 95 %, e.g. Conover, Practical Nonparametric Statistics, table A3."""
    values = [float(number) for number in range(1, count + 1)]
    random.Random(0).shuffle(values)
    assert median_interval(values) == (low, high)
