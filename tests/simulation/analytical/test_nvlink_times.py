"""Times of collectives inside a server against measurements that the curves were not made of."""

import csv
from pathlib import Path
from statistics import median, quantiles

import pytest

from simulation.analytical.nvlink_times import OF_CELL, nvlink_us
from simulation.analytical.parts import GPUS
from tests.docs.pages import ROOT
from tests.simulation.analytical import asking

HELD_BACK = ROOT / "tests" / "data" / "simulation" / "nvlink" / "held_back.csv"
CELL_OF = {operation: cell for cell, operation in OF_CELL.items() if cell != "BROADCAST"}


def errors(gpu: str, least: int = 0) -> list[float]:
    with HELD_BACK.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == gpu and int(row["bytes"]) >= least]
    told = [
        nvlink_us(gpu, CELL_OF[row["operation"]], int(row["gpus"]), int(row["bytes"]), GPUS[gpu].nvlink) for row in rows
    ]
    return [abs((us or 0) / float(row["us"]) - 1) for us, row in zip(told, rows, strict=True)]


@pytest.mark.parametrize("least", [0, 1 << 20])
@pytest.mark.parametrize("gpu", ["A100", "H100", "H200", "B200"])
def test_the_half_that_was_held_back_is_met(gpu: str, least: int) -> None:
    found = errors(gpu, least)
    assert len(found) == (120 if least else 252)
    assert median(found) <= 0.02 and quantiles(found, n=10)[-1] <= 0.15


def test_large_reductions_are_those_of_16_bit_numbers() -> None:
    """NVSwitches add no int8, so that its AllReduce takes a quarter longer."""
    with HELD_BACK.open(encoding="utf-8") as file:
        halves = [
            (int(row["bytes"]), float(row["us"]))
            for row in csv.DictReader(file)
            if (row["gpu"], row["operation"], row["gpus"], row["type"]) == ("H100", "all_reduce", "8", "half")
        ]
    large = [
        (nvlink_us("H100", "ALLREDUCE", 8, size, GPUS["H100"].nvlink), us) for size, us in halves if size > 1 << 24
    ]
    assert len(large) == 3
    assert all(told == pytest.approx(us, rel=0.07) for told, us in large)


@pytest.mark.parametrize(("lower", "between", "upper"), [(2, 3, 4), (4, 6, 8)])
def test_a_group_between_two_measured_ones_takes_a_time_between_theirs(lower: int, between: int, upper: int) -> None:
    few, some, many = (
        nvlink_us("H100", "ALLGATHER", ranks, 1 << 28, GPUS["H100"].nvlink) or 0 for ranks in (lower, between, upper)
    )
    assert few * 1.02 < some < many / 1.02


@pytest.mark.parametrize("gpu", sorted(set(GPUS)))
@pytest.mark.parametrize("cell", sorted(OF_CELL))
def test_time_grows_with_size_and_falls_with_bandwidth(gpu: str, cell: str) -> None:
    for ranks in (2, 3, 4, 6, 8, 72):
        times = [nvlink_us(gpu, cell, ranks, 1 << step, GPUS[gpu].nvlink) or 0 for step in range(36)]
        assert times == sorted(times) and times[0] > 0
        slow = nvlink_us(gpu, cell, ranks, 1 << 30, GPUS[gpu].nvlink / 2) or 0
        assert slow > 1.8 * times[30]


def test_nv_beside_g_type_is_obeyed_by_nvls(tmp_path: Path) -> None:
    workload = asking.write(tmp_path / "w.txt", [asking.row("ALLREDUCE 1073741824")], tp=8)
    words = ("-g", "8", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100")
    full = asking.times(workload, *words)["forward"]
    half = asking.times(workload, *words, "-nv", "185.4")["forward"]
    assert full["algorithm"] == half["algorithm"] == "NVLS"
    assert half["communication_us"] == pytest.approx(2 * full["communication_us"], rel=0.02)
