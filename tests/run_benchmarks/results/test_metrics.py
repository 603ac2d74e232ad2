"""Metrics of several rounds, each by its own rule."""

from typing import Any

import pytest

from run_benchmarks.results.metrics import Rule, combine
from run_benchmarks.results.summary import show_spread


def test_values_are_combined_by_the_metric_s_own_rule() -> None:
    rounds = [
        {"avg_busbw_GBps": 1.0, "peak_size_bytes": 2097152, "max_busbw_GBps": 1.5, "min_p50_us": 30.0, "count": 3},
        {"avg_busbw_GBps": 2.0, "peak_size_bytes": 16777216, "max_busbw_GBps": 2.5, "min_p50_us": 20.0, "count": 3},
        {"avg_busbw_GBps": 6.0, "peak_size_bytes": 16777216, "max_busbw_GBps": 7.5, "min_p50_us": 40.0, "count": 3},
    ]
    metrics, spread = combine(rounds)
    assert metrics == {
        "avg_busbw_GBps": 3.0,
        "peak_size_bytes": [2097152, 16777216, 16777216],
        "max_busbw_GBps": 7.5,
        "min_p50_us": 20.0,
        "count": 3,
    }
    assert spread.keys() == {"avg_busbw_GBps", "max_busbw_GBps", "min_p50_us"}
    found = spread["avg_busbw_GBps"]
    assert (found.rule, found.n, found.mean, found.min, found.max) == (Rule.MEAN, 3, 3.0, 1.0, 6.0)
    assert found.std == pytest.approx(7**0.5)  # (4 + 1 + 9) / 2
    assert show_spread(metrics["avg_busbw_GBps"], found) == "3 (1 to 6, std 2.646, n 3)"
    assert show_spread(metrics["max_busbw_GBps"], spread["max_busbw_GBps"]).startswith("7.5 (max of 1.5 to 7.5, ")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("converged", [True, True], True),
        ("converged", [True, False], [True, False]),
        ("correct", ["pass", "pass"], "pass"),
        ("answer", ["a", "b"], ["a", "b"]),
        ("e2e_time", [2, 4], 3.0),
        ("global_steps", [50, 60], [50, 60]),
        ("peak_memory_bytes", [5, 9], 9.0),
        ("ours_over_nccl_tests", [{"1M": 1.0}, {"1M": 1.1}], [{"1M": 1.0}, {"1M": 1.1}]),
        ("mfu", [None, None], None),
        ("a_metric_of_theirs", [0.5, 1.5], 1.0),
        ("tokens", [10**400, 1], [10**400, 1]),
        ("e2e_time", [10**400, 1.0], [10**400, 1.0]),
        ("e2e_time", ["NaN", 1.0], ["NaN", 1.0]),
    ],
)
def test_what_is_averaged_and_what_never(name: str, values: list[Any], expected: Any) -> None:
    assert combine([{name: value} for value in values])[0] == {name: expected}


def test_a_metric_of_some_rounds_and_none() -> None:
    assert combine([{"late_us": 5}, {}]) == ({"late_us": 5}, {})
    assert combine([]) == ({}, {})
