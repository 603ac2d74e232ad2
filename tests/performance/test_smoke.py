"""Every measurement of `make bench` runs to its end at a tiny size: its figures mean nothing there, its code does.

Those on hosts, and those that train or launch ranks, take minutes and run in nightly.
"""

import math
import sys

import pytest

from tests.cluster.bed import TestBed
from tests.performance.__main__ import measurements
from tests.performance.rows import Row
from tests.performance.table import describe_machine, tabulated

FOUND = measurements()
# Measured on hosts: these take the session's instead of making their own.
ON_HOSTS = {name for name, measure in FOUND.items() if hasattr(sys.modules[measure.__module__], "measure_on")}
# More than four CPU seconds each, even at a tiny size.
LONG = {
    "training", "composed", "network", "execution", "execution_start", "launch", "packets", "many_hosts", "footprint",
    "report_page",
}  # fmt: skip


def names(*, on_hosts: bool) -> list[object]:
    """The measurements as parameters of a test."""
    found = [name for name in FOUND if (name in ON_HOSTS) is on_hosts]
    return [pytest.param(name, marks=pytest.mark.nightly if name in LONG else ()) for name in found]


def test_each_long_measurement_is_there() -> None:
    assert set(FOUND) >= LONG


def check(name: str, rows: list[Row]) -> None:
    assert rows
    assert all(math.isfinite(row.ratio) for row in rows)
    table = tabulated(name, rows, describe_machine())
    assert [row["what"] for row in table] == [row.what for row in rows]


@pytest.mark.parametrize("name", names(on_hosts=False))
def test_a_measurement_runs_to_its_end(name: str) -> None:
    check(name, FOUND[name](smoke=True))


@pytest.mark.nightly
@pytest.mark.cluster
@pytest.mark.parametrize("name", names(on_hosts=True))
def test_a_measurement_on_hosts_runs_to_its_end(name: str, testbed: TestBed) -> None:
    check(name, sys.modules[FOUND[name].__module__].measure_on(testbed, smoke=True))
