"""What is kept of a long run: in constant memory, and every iteration in a file."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from training.benchmarks.network.pytorch.measuring.soak import MOST_WINDOWS, IterationFile, Soak, change_points
from training.benchmarks.network.reporting.answers import soaked


def test_the_file_can_be_read_while_it_grows(tmp_path: Path) -> None:
    file = IterationFile(tmp_path / "iterations")
    for batch in range(3):
        file.append(10.0 * batch, 8 << batch, np.array([1e6, 2e6, 3e6]))
        found = {path.stem: np.load(path, mmap_mode="r") for path in (tmp_path / "iterations").iterdir()}
        assert {len(column) for column in found.values()} == {3 * (batch + 1)}
    file.close()
    assert found["size_bytes"].tolist() == [8, 8, 8, 16, 16, 16, 32, 32, 32]
    assert found["at_s"].tolist() == [0, 1, 3, 10, 11, 13, 20, 21, 23]
    assert found["time_us"].dtype == np.float32 and found["time_us"].tolist()[:3] == [1e6, 2e6, 3e6]


def test_quantiles_are_those_of_all_iterations_within_a_bin() -> None:
    draw = np.random.default_rng(1)
    times = draw.lognormal(5.0, 0.5, 100_000)
    soak = Soak()
    for batch in np.split(times, 100):
        soak.add(0.0, batch)
    reported = {"size": "8", "histogram": soak.news(), "max_us": soak.longest_us}
    found = soaked([{"soak": reported}])["8"]
    for name, share in (("p50_us", 0.5), ("p99_us", 0.99), ("p999_us", 0.999)):
        assert found[name] == pytest.approx(float(np.quantile(times, share)), rel=0.1)
    assert found["max_us"] == times.max() and found["iterations"] == 100_000
    assert soak.news() == []


def test_a_change_of_the_level_is_found_and_noise_is_none() -> None:
    draw = np.random.default_rng(2)
    for _ in range(20):
        assert change_points(range(300), (100 * draw.lognormal(0, 0.05, 300)).tolist()) == []
    levels = 100 * draw.lognormal(0, 0.05, 300)
    levels[120:200] *= 1.5
    up, down = change_points([float(second) for second in range(300)], levels.tolist())
    assert up.at_s == pytest.approx(120, abs=2) and down.at_s == pytest.approx(200, abs=2)
    assert up.before_us == pytest.approx(100, rel=0.05) and up.after_us == pytest.approx(150, rel=0.05)
    assert down.after_us == pytest.approx(100, rel=0.05)
    assert change_points([0.0, 1.0], [1.0, 9.0]) == [], "too few"


def test_a_spike_is_no_change() -> None:
    levels = [100.0 + place % 3 for place in range(200)]
    levels[50] = 5000.0
    assert change_points(range(200), levels) == []


def _kept_bytes(batches: int) -> int:
    """Memory that a soak of so many batches holds at its end."""
    draw = np.random.default_rng(3)
    tracemalloc.start()
    soak = Soak()
    for batch in range(batches):
        soak.add(float(batch), draw.lognormal(5.0, 0.1, 20))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert soak.changes() == []
    return held


def test_a_run_of_four_times_the_length_keeps_no_more_memory() -> None:
    _kept_bytes(MOST_WINDOWS)  # what numpy loads at its first use
    short, long = _kept_bytes(4 * MOST_WINDOWS), _kept_bytes(16 * MOST_WINDOWS)
    assert long < 1.5 * short < 1 << 20
