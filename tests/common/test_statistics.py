"""Percentiles are those of numpy's inverse of the distribution; Student's t is tested where curves are judged."""

import random

import numpy as np
import pytest

from common.statistics import percentile


@pytest.mark.parametrize("percent", [0, 5, 50, 95, 99, 100])
def test_a_percentile_is_the_value_of_the_nearest_rank(percent: int) -> None:
    draw = random.Random(percent)
    for count in (*range(1, 42), 100, 199, 200):
        ordered = sorted(draw.random() for _ in range(count))
        assert percentile(ordered, percent) == np.percentile(ordered, percent, method="inverted_cdf")
