"""Percentiles and values between sizes are those of numpy, quantiles and tails of Student's t those of scipy."""

import math
import random

import numpy as np
import pytest
from scipy.stats import t as student

from common.interpolation import over_logs
from common.statistics import percentile, student_quantile, student_tail

SIZES, VALUES = (2, 4, 16, 100), (1.0, 5.0, 2.0, 8.0)


@pytest.mark.parametrize("percent", [0, 5, 50, 95, 99, 100])
def test_a_percentile_is_that_of_numpy_by_nearest_rank_and_interpolated(percent: int) -> None:
    draw = random.Random(percent)
    for count in (*range(1, 42), 100, 199, 200):
        ordered = sorted(draw.random() for _ in range(count))
        assert percentile(ordered, percent) == np.percentile(ordered, percent, method="inverted_cdf")
        assert percentile(ordered, percent, "linear") == pytest.approx(np.percentile(ordered, percent), rel=1e-12)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 10, 30, 1000, 50_000])
def test_quantiles_and_tails_of_student_are_those_of_scipy(degrees: int) -> None:
    for chance in (0.5, 0.49, 0.3, 0.2, 0.025, 1e-3, 1e-6, 1e-12, 1e-30):
        value = student.isf(chance, degrees)
        assert student_quantile(chance, degrees) == pytest.approx(value, rel=1e-9, abs=1e-12)
        assert student_tail(value, degrees) == pytest.approx(chance, rel=1e-9)


@pytest.mark.parametrize("degrees", [1, 2, 4])
def test_far_out_the_tail_of_student_is_its_leading_term(degrees: int) -> None:
    """The closed forms for 1, 2 and 4 degrees of freedom; where these underflow, it is 0."""
    constant = {1: 1 / math.pi, 2: 0.5, 4: 3.0}[degrees]
    for value in (1e70, 1e160, 1e200, 1e307, math.inf):
        tail = constant * (1 / value) ** degrees
        assert student_tail(value, degrees) == pytest.approx(tail, rel=1e-9, abs=1e-307)
    far = math.log(constant) / degrees + 300 / degrees * math.log(10)
    assert math.log(student_quantile(1e-300, degrees)) == pytest.approx(far, rel=1e-12)


def test_nothing_is_beyond_noise_that_is_not_known() -> None:
    assert math.isinf(student_quantile(0.001, 0))


def test_between_sizes_and_outside_them_values_are_those_of_numpy() -> None:
    for at in np.geomspace(0.5, 1000, 400).tolist():
        expected = np.interp(np.log(at), np.log(SIZES), VALUES)
        assert over_logs(SIZES, VALUES, at) == pytest.approx(float(expected), rel=1e-12)
    assert [over_logs(SIZES, VALUES, size) for size in SIZES] == [*VALUES]
    assert over_logs((8,), (3.0,), 1) == over_logs((8,), (3.0,), 9) == 3.0
