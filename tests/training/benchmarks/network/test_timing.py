import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.benchmarks.network.nccl_parsers import cloudai, cloudai_devices, superbench
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import init
from training.benchmarks.driver.workload.statistics import statistics
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.network.pytorch.measuring.compute import MatrixProducts
from training.benchmarks.network.pytorch.measuring.rotation import MOST_COPIES, back_to_back, copies_of
from training.benchmarks.network.pytorch.measuring.timing import Measurement, added_time, count_stalls, measure
from training.benchmarks.network.pytorch.message_config import MessageConfig
from training.benchmarks.network.pytorch.operations.reductions import AllReduce
from training.benchmarks.network.reporting import table


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    """This process as the only rank."""
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "0")
    placement = Placement(rank=0, world_size=1, local_rank=0, local_world_size=1, nnodes=1)
    with init("gloo", timeout_s=30, placement=placement) as group:
        yield Team.world(group)


class Recorded(AllReduce):
    """Notes what is done with it; from run number `wrong_from` on it delivers an element that is wrong."""

    wrong_from = 1 << 30

    def __init__(self, team: Team) -> None:
        super().__init__(team, torch.float32, 42)
        self.done: list[str] = []

    def refill(self) -> None:
        self.done.append("refill")
        super().refill()

    def run(self) -> None:
        super().run()
        self.done.append("run")
        if self.done.count("run") >= self.wrong_from:
            self.buffer[3] += 1

    def wrong_elements(self) -> torch.Tensor | None:
        self.done.append("compare")
        return super().wrong_elements()


@pytest.mark.parametrize(
    ("warmup", "check", "expected"),
    [
        (0, False, "refill run run run"),
        (2, False, "refill run run run run run"),
        (0, True, "refill run run run refill run compare"),
        (1, True, "refill run run run run refill run compare"),
        (3, True, "refill run compare refill run compare refill run run run run refill run compare"),
    ],
)
def test_nothing_comes_between_timed_iterations_nor_straight_before_them(
    alone: Team, warmup: int, check: bool, expected: str
) -> None:
    collective = Recorded(alone)
    collective.prepare(64)
    found = measure(collective, alone, MessageConfig(warmup_iterations=warmup, iterations=3, check=check))
    assert collective.done == expected.split()
    assert found.checked_iterations == expected.count("compare")
    assert found.verdict == ("pass" if check else "not_checked")


@pytest.mark.parametrize(("wrong_from", "wrong"), [(1, 3), (2, 2), (6, 1), (7, 0)])
def test_data_that_goes_wrong_before_or_while_it_is_timed_is_seen_afterwards(
    alone: Team, wrong_from: int, wrong: int
) -> None:
    collective = Recorded(alone)
    collective.wrong_from = wrong_from
    collective.prepare(64)
    found = measure(collective, alone, MessageConfig(warmup_iterations=3, iterations=2))
    assert (found.wrong_elements, found.verdict) == ([wrong], "fail" if wrong else "pass")


def test_statistics_of_known_times() -> None:
    found = statistics(np.arange(1.0, 101.0))
    assert (found.min, found.p50, found.max, found.mean) == (1.0, 50.5, 100.0, 50.5)
    assert (found.p25, found.p75) == (25.75, 75.25)
    assert found.p95 == pytest.approx(95.05)
    assert found.p99 == pytest.approx(99.01)
    assert found.cv == pytest.approx(np.sqrt((100**2 - 1) / 12) / 50.5)


def test_one_iteration_has_no_spread() -> None:
    assert statistics(np.array([7.0])).rounded() == {
        "min": 7.0,
        "p25": 7.0,
        "p50": 7.0,
        "p75": 7.0,
        "p95": 7.0,
        "p99": 7.0,
        "max": 7.0,
        "mean": 7.0,
        "cv": 0.0,
    }


@pytest.mark.parametrize(
    ("wrong", "verdict"), [(None, "not_checked"), ([0, 0], "pass"), ([0, 3], "fail"), ([1, 0], "fail")]
)
def test_one_wrong_rank_is_enough_to_fail(wrong: list[int] | None, verdict: str) -> None:
    found = Measurement(
        time_us=statistics(np.ones(3)), stalled_iterations=0, wrong_elements=wrong, checked_iterations=1
    )
    assert found.verdict == verdict


def test_a_stall_is_an_operation_that_waited_for_a_time_out() -> None:
    assert count_stalls(np.array([300.0, 4_000.0, 201_000.0, 450_000.0])) == 2
    assert count_stalls(np.array([1_000_000.0, 1_300_000.0, 2_100_000.0])) == 1, "long operations vary by 200 ms"
    assert count_stalls(np.array([150_000.0, 330_000.0])) == 0, "180 ms longer"
    assert count_stalls(np.array([5.0])) == 0


def test_the_table_lines_up() -> None:
    result = {
        "collective": "all_reduce",
        "in_place": True,
        "size_bytes": 1 << 20,
        "count": 1 << 18,
        "dtype": "float32",
        "world_size": 8,
        "time_us": {"min": 1.0, "p50": 2.0, "p95": 3.5},
        "algbw_GBps": 524.288,
        "busbw_GBps": 917.504,
        "wrong_elements": None,
    }
    lines = [table.header("all_reduce", 8, "H100", "c").splitlines()[-2], table.row(result)]
    assert len({len(line) for line in lines}) == 1
    left, figures = ["1048576", "262144", "float", "sum", "-1"], ["2.00", "524.29", "917.50"]
    not_run = [*figures, "N/A"]
    assert lines[1].split() == [*left, *not_run, *figures, "N/A"]
    assert table.row(result | {"wrong_elements": 4}).split()[-1] == "4"
    outside = table.row(result | {"in_place": False, "collective": "gather", "wrong_elements": 0})
    assert outside.split()[3:] == ["none", "0", *figures, "0", *not_run]
    assert outside.split()[:2] == ["1048576", "32768"], "nccl-tests counts the elements of one rank's chunk"


def test_the_end_of_the_table_is_nccl_tests() -> None:
    rows = [{"wrong_elements": 0, "busbw_GBps": 1.0}, {"wrong_elements": 0, "busbw_GBps": 2.0}]
    assert table.footer(rows) == "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 1.5\n#"
    assert "3 FAILED" in table.footer([*rows, {"wrong_elements": 3, "busbw_GBps": 0.0}])
    assert "not checked" in table.footer([{"wrong_elements": None, "busbw_GBps": 1.0}])


def test_both_forms_share_a_line() -> None:
    out = {
        "collective": "all_gather",
        "in_place": False,
        "size_bytes": 96,
        "count": 24,
        "dtype": "float8_e4m3fn",
        "world_size": 2,
        "time_us": {"p50": 2.0},
        "algbw_GBps": 1.0,
        "busbw_GBps": 0.5,
        "wrong_elements": 0,
    }
    inside = out | {"in_place": True, "time_us": {"p50": 3.0}}
    (line,) = table.rows([out, inside])
    assert line.split() == [
        "96",
        "12",
        "f8e4m3",
        "none",
        "-1",
        "2.00",
        "1.00",
        "0.50",
        "0",
        "3.00",
        "1.00",
        "0.50",
        "0",
    ]
    assert len(table.rows([inside, out])) == 2 and len(table.rows([out, inside | {"size_bytes": 8}])) == 2
    timed = out | {"nccl_tests_timing": {"time_us": 1.5, "algbw_GBps": 7.0, "busbw_GBps": 3.5}}
    assert table.row(timed).split()[5:8] == ["1.50", "7.00", "3.50"]
    late = table.row(out | {"collective": "reduce", "op": "max", "root": 3, "after_compute_ms": 10.0})
    assert late.split()[0] == "#" and late.split()[4:6] == ["max", "3"] and late.endswith("# after 10 ms of compute")


def test_other_projects_read_the_table() -> None:
    """Two hosts of two GPUs; both forms in one line, one form in both columns, nothing of what follows compute."""
    out: dict[str, Any] = {
        "collective": "all_gather",
        "in_place": False,
        "size_bytes": 1024,
        "count": 256,
        "dtype": "float32",
        "world_size": 4,
        "time_us": {"p50": 2.0},
        "algbw_GBps": 1.0,
        "busbw_GBps": 0.75,
        "wrong_elements": 0,
    }
    inside = out | {"in_place": True, "time_us": {"p50": 3.0}}
    single = out | {"size_bytes": 2048, "time_us": {"p50": 4.0}}
    late = single | {"after_compute_ms": 10.0, "time_us": {"p50": 99.0}}
    name = "NVIDIA H100 80GB HBM3"
    ranks = [table.rank_line(k, 700 + k, f"node-{k // 2}.lan", k % 2, f"0000:{k:02x}:00", name) for k in range(4)]
    head = table.header("all_gather", 4, name, "c", ranks)
    text = "\n".join([head, *table.rows([out, inside, single, late]), table.footer([out, inside, single])])
    assert superbench(text, in_place=False) == {1024: (2.0, 1.0, 0.75), 2048: (4.0, 1.0, 0.75)}
    assert superbench(text, in_place=True) == {1024: (3.0, 1.0, 0.75), 2048: (4.0, 1.0, 0.75)}
    assert cloudai(text) == [(1024, [2.0, 1.0, 0.75, 3.0, 1.0, 0.75]), (2048, [4.0, 1.0, 0.75] * 2)]
    assert cloudai_devices(text) == ({"node-0.lan": 1, "node-1.lan": 1}, {"H100 80GB HBM3"}, 4)


def test_buffers_rotate_within_the_largest_size() -> None:
    assert copies_of(1 << 20, 8 << 20, 20) == 8
    assert copies_of(1 << 20, 8 << 20, 5) == 5, "no more than iterations"
    assert copies_of(8, 1 << 30, 10_000) == MOST_COPIES
    assert copies_of(8 << 20, 8 << 20, 20) == 1


def test_back_to_back_uses_every_buffer_and_waits_once(alone: Team) -> None:
    made: list[Recorded] = []

    def make() -> Recorded:
        made.append(Recorded(alone))
        return made[-1]

    mean_us = back_to_back(make, alone, size_bytes=1024, largest_bytes=3072, warmup=2, iterations=7, aggregate=2)
    assert mean_us > 0
    assert [each.done.count("run") for each in made] == [2 * (2 + 3), 2 * 2, 2 * 2]


def test_aggregated_operations_are_timed_together_each_time_after_a_computation(alone: Team) -> None:
    collective = Recorded(alone)
    collective.prepare(64)
    computed: list[int] = []
    config = MessageConfig(warmup_iterations=0, iterations=3, aggregate=4)
    found = measure(collective, alone, config, lambda: computed.append(collective.done.count("run")))
    assert computed[:3] == [0, 4, 8]
    assert computed[3:] == [12, 12, 12, 16, 20, 20, 20, 24, 28, 28, 28, 32, 36, 36], "alone, with operations, in turn"
    assert collective.done.count("run") == 37, "one more is checked"
    assert found.verdict == "pass" and 0 < found.last_rank_us <= found.time_us.max


@pytest.mark.parametrize("disturbed", range(8))
def test_what_an_operation_adds_is_neither_hidden_nor_a_drift_of_computes_nor_one_disturbed_row(
    alone: Team, disturbed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock of its own: a transfer of 3 s that began when the last one ended, beside a compute of 2 s.

    Computes take 20 ms longer in each row than in the one before, and in one row 50 s longer.
    """
    now, last, rows, calls = 0.0, 0.0, 0, 0

    def barrier(_: Team) -> None:
        nonlocal now, last, rows
        last, rows = now, rows + 1

    def compute() -> None:
        nonlocal now, calls
        calls += 1
        now += 2.0 + rows / 50 + (50.0 if rows == disturbed else 0.0)

    def operation() -> None:
        nonlocal now, last
        now = last = max(now, last + 3.0 + rows / 50)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    monkeypatch.setattr(Team, "barrier", barrier)
    found = added_time(operation, alone, compute, 15)
    assert found == pytest.approx(1.0, abs=0.021 if disturbed else 1e-9)
    assert calls <= 5 * 15, "with one for each iteration before, no more than twice three for each"


def test_all_ranks_compute_as_many_products_as_take_the_time_asked_for(alone: Team) -> None:
    products = MatrixProducts(torch.device("cpu"))
    assert products.count(1e3 * 7 * products.product_s, alone) == 7 and products.count(0.0, alone) == 1
