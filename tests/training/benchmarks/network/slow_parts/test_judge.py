"""The judge of pairs, groups and searches: Student's t of the noise, but for the user's bound, as scipy has it."""

import math
from dataclasses import replace

import pytest
from scipy.stats import t

from training.benchmarks.network.slow_parts.chance import ALPHA
from training.benchmarks.network.slow_parts.judge import Bounds, Judge
from training.benchmarks.network.slow_parts.noise import Settled

# Four figures of two classes, whose noise of 3 degrees is 2 %, and 1 % without extreme repeats.
VALUES = [0.0, 0.0, 0.5, 0.5]
SETTLED = Settled(repeats=(VALUES, VALUES), values=VALUES, noise=0.02, degrees=3, calm=0.01, wild=0.1)


@pytest.mark.parametrize(("alpha", "spread"), [(ALPHA, 0.0), (0.02, 0.0), (ALPHA, 0.04)])
def test_a_deviation_is_an_outlier_beyond_what_noise_exceeds_by_chance(alpha: float, spread: float) -> None:
    judge = Judge(SETTLED, [0.0] * 4, 0.01, 5, classes=[0, 0, 1, 1], spreads={0: spread, 1: 0.0}, alpha=alpha)
    for each, noise in (judge, max(0.02, spread)), (judge.without_extremes(), max(0.01, spread)):
        limit = t.isf(alpha / 5, 3) * noise
        assert each.exceeds(1.001 * limit, 0) and not each.exceeds(0.999 * limit, 0)
        assert each.p_value(limit, 0) == pytest.approx(alpha)
    assert not judge.exceeds(100.0, -1), "compared with nobody"


def test_the_spread_of_each_class_is_that_of_what_is_left_of_it() -> None:
    values = [0.0, 0.1, 0.2, 5.0, 5.0, 5.0]
    settled = replace(SETTLED, repeats=(values,), values=values, noise=0.01)
    judge = Judge(settled, [0.0] * 6, 0.1, 6, classes=[0] * 3 + [1] * 3)
    assert judge.noise == pytest.approx({0: 0.14826, 1: 0.01})


def test_only_what_exceeds_the_users_bound_is_an_outlier() -> None:
    bounds = Bounds(slow_percent=20, late_percent=150)
    assert (bounds.of("bandwidth"), bounds.of("latency")) == pytest.approx((math.log(1.25), math.log(2.5)))
    found = {bound: Judge(SETTLED, [0.0] * 4, bound, 4, spreads={0: 0.0}).outliers() for bound in (0.4, 0.6)}
    assert found == {0.4: [2, 3], 0.6: []}
