"""The benchmark as the controller runs it: two gloo ranks through driver.launch."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import JsonValue

from common.bandwidth import CONVENTION
from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.training.benchmarks.claimed import contradictions, unnoticed
from tests.training.benchmarks.driver.launch.launching import (
    command,
    exit_record,
    lock_is_held,
    plain_processes,
    run,
    started,
    wait_until,
)
from tests.training.benchmarks.network.nccl_parsers import CLOUDAI_HOST, cloudai, superbench

MODULE = "training.benchmarks.network"
CORRUPTING = "tests.training.benchmarks.network.corrupting_workload"
SIZES = [8, 1024, 1 << 16, 1 << 20]


@dataclass(frozen=True)
class Finished:
    """A run that has ended: exit code, the launcher's output and the folder."""

    code: int
    output: str
    folder: Path

    def log(self, rank: int) -> str:
        """A rank's log."""
        return (self.folder / f"rank{rank}.out.log").read_text(encoding="utf-8")

    def records(self, rank: int) -> list[PerfLogRecord]:
        """The PerfLog of a rank."""
        return [record for record in map(parse_line, self.log(rank).splitlines()) if record is not None]

    def values(self, rank: int, event: Event) -> list[dict[str, JsonValue]]:
        """The values of all records of an event."""
        return [each.value for each in self.records(rank) if each.event is event and isinstance(each.value, dict)]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("healthy")
    config = folder / "config.py"
    config.write_text("sizes = '8, 1K, 64K, 1M'\nwarmup_iterations = 2\niterations = 7\n")
    workload = [MODULE, "--config_file", str(config), "--vendor", "cpu", "--case", "net", "--set", "seed=5"]
    with started(command(folder, ["--nproc_per_node", "2"], workload)) as process:
        wait_until(lambda: lock_is_held(folder), "the lock is taken")
        wait_until(lambda: (folder / "rank0.out.log").exists(), "the ranks run")
        assert lock_is_held(folder)
        output, _ = process.communicate(timeout=200)
    return Finished(process.returncode, output, folder)


def test_a_healthy_run_ends_well(healthy: Finished) -> None:
    assert healthy.code == 0, healthy.output
    record = exit_record(healthy.folder)
    assert (record.exit_code, record.failures, record.interface) == (0, [], "lo")
    assert record.environment["GLOO_SOCKET_IFNAME"] == "lo"
    assert int(record.environment["OMP_NUM_THREADS"]) >= 1
    assert not lock_is_held(healthy.folder)
    assert "OMP_NUM_THREADS" not in healthy.output, "torchrun's warning"
    assert "[PerfLog]" not in healthy.output, "rank 0's lines stay in its file"


@pytest.mark.parametrize("rank", [0, 1])
def test_every_rank_keeps_the_rules(healthy: Finished, rank: int) -> None:
    records = healthy.records(rank)
    assert check_sequence(records) == []
    assert {record.metadata.rank for record in records} == {rank}
    assert healthy.values(rank, Event.TRAIN_START) == [{"total_steps": 4}]
    assert healthy.values(rank, Event.FINISHED)[0]["correct"] == "pass"


def test_what_is_said_of_the_rows_follows_from_them(healthy: Finished) -> None:
    assert contradictions(healthy.folder, "network", 2) == []
    assert unnoticed(healthy.folder, "network", 2) == ["e2e_time"]
    assert contradictions(healthy.folder, "network", 2, e2e_time=0.001)
    (said,) = contradictions(healthy.folder, "network", 2, correct="fail")
    assert said == "correct is 'fail' by FINISHED, 'pass' by the rows of its log"


def test_the_whole_config_is_submitted(healthy: Finished) -> None:
    (value,) = healthy.values(0, Event.SUBMIT_INFO)
    assert (value["schema_version"], value["vendor"], value["case"], value["backend"]) == (1, "cpu", "net", "gloo")
    assert (value["world_size"], value["nnodes"]) == (2, 1)
    config = value["config"]
    assert isinstance(config, dict)
    assert config["seed"] == 5 and config["iterations"] == 7 and config["backend"] == "gloo"


def test_each_size_is_measured_and_checked(healthy: Finished) -> None:
    begins, ends = healthy.values(0, Event.STEP_BEGIN), healthy.values(0, Event.STEP_END)
    assert [each["size_bytes"] for each in ends] == SIZES == [each["size_bytes"] for each in begins]
    for step, value in enumerate(ends, start=1):
        assert (value["step"], value["total_steps"], value["collective"]) == (step, 4, "all_reduce")
        assert (value["world_size"], value["dtype"], value["convention"]) == (2, "float32", CONVENTION)
        assert (value["correct"], value["wrong_elements"], value["wrong_ranks"]) == ("pass", 0, [])
        assert (value["iterations"], value["checked_iterations"]) == (7, 2)
        times, algbw, size = value["time_us"], value["algbw_GBps"], value["size_bytes"]
        assert isinstance(times, dict) and isinstance(algbw, float) and isinstance(size, int)
        minimum, median, p95, p99, maximum = (float(str(times[name])) for name in ("min", "p50", "p95", "p99", "max"))
        assert 0 < minimum <= median <= p95 <= p99 <= maximum
        assert algbw == pytest.approx(size / (median * 1e3), rel=1e-3)  # bytes per ns are GB/s
        assert value["busbw_GBps"] == algbw  # two ranks: the factor is 1
    summary = healthy.values(0, Event.FINISHED)[0]
    rates = [float(str(value["busbw_GBps"])) for value in ends]
    assert summary["max_busbw_GBps"] == max(rates)
    assert summary["avg_busbw_GBps"] == pytest.approx(sum(rates) / 4)
    assert summary["peak_size_bytes"] == SIZES[rates.index(max(rates))]
    assert float(str(summary["e2e_time"])) > 0


def test_only_rank_0_logs_measurements_and_the_table(healthy: Finished) -> None:
    assert all("time_us" not in value and value["correct"] == "pass" for value in healthy.values(1, Event.STEP_END))
    lines = healthy.log(0).splitlines()
    assert any(line.split()[:3] == ["#", "size", "count"] for line in lines)
    assert [int(line.split()[0]) for line in lines if " float " in line and not line.startswith("[")] == SIZES
    assert "# Out of bounds values : 0 OK" in lines
    shown = dict(cloudai(healthy.log(0)))
    assert [*shown] == SIZES, "all_reduce has one form, shown in both columns"
    for form, columns in ((False, slice(0, 3)), (True, slice(3, 6))):
        read = superbench(healthy.log(0), in_place=form)
        assert read == {size: tuple(figures[columns]) for size, figures in shown.items()}
    ends = healthy.values(0, Event.STEP_END)
    assert [each[2] for each in shown.values()] == [pytest.approx(end["busbw_GBps"], abs=0.006) for end in ends]
    ranks = [line for line in lines if line.startswith("#  Rank ")]
    devices = [re.search(CLOUDAI_HOST, line) for line in ranks]
    assert [match and match[2] for match in devices] == ["0", "1"]
    assert "# Avg bus bandwidth" not in healthy.log(1)


def test_a_csv_lies_beside_the_log(healthy: Finished) -> None:
    with (healthy.folder / "network.csv").open() as file:
        rows = list(csv.DictReader(file))
    steps = healthy.values(0, Event.STEP_END)
    assert [int(row["size_bytes"]) for row in rows] == SIZES
    assert [float(row["busbw_GBps"]) for row in rows] == [step["busbw_GBps"] for step in steps]
    assert all(float(row["time_us_min"]) <= float(row["time_us_p50"]) for row in rows)
    lines = (healthy.folder / "network.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == steps


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("corrupted")
    settings = ["--set", "sizes=1K..4K", "--set", "iterations=3", "--set", "warmup_iterations=3"]
    code, output = run(folder, plain_processes(2), [CORRUPTING, *settings])
    return Finished(code, output, folder)


def test_wrong_data_fails_the_run_and_names_size_and_rank(corrupted: Finished) -> None:
    assert corrupted.code == 1
    ends = corrupted.values(0, Event.STEP_END)
    assert [(value["size_bytes"], value["correct"]) for value in ends] == [
        (1024, "pass"),
        (2048, "fail"),
        (4096, "fail"),
    ]
    assert [(value["wrong_elements"], value["wrong_ranks"]) for value in ends] == [(0, []), (3, [1]), (3, [1])]
    for rank in range(2):
        assert check_sequence(corrupted.records(rank)) == [], "the measurement itself went to its end"
        assert corrupted.values(rank, Event.FINISHED)[0]["correct"] == "fail"
    message = exit_record(corrupted.folder).failures[0].message
    assert message == "network: all_reduce delivered wrong data at 2K, 4K"
