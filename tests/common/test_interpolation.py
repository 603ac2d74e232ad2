"""Values between measured sizes are those of numpy.interp over logarithms; outside them those of the ends."""

import numpy as np
import pytest

from common.interpolation import over_logs

SIZES, VALUES = (2, 4, 16, 100), (1.0, 5.0, 2.0, 8.0)


def test_between_sizes_and_outside_them_values_are_those_of_numpy() -> None:
    for at in np.geomspace(0.5, 1000, 400).tolist():
        expected = np.interp(np.log(at), np.log(SIZES), VALUES)
        assert over_logs(SIZES, VALUES, at) == pytest.approx(float(expected), rel=1e-12)
    assert [over_logs(SIZES, VALUES, size) for size in SIZES] == [*VALUES]
    assert over_logs((8,), (3.0,), 1) == over_logs((8,), (3.0,), 9) == 3.0
