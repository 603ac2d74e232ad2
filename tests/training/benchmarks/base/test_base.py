"""The device tests: figures of two ranks, and that a bad device is named and fails the run."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from common.errors import InputProblems
from protocol.case_config import load_case_config
from protocol.outcome import MeasuredCase, MeasuredRound, Table
from protocol.perflog import Event, PerfLogRecord, check_sequence, parse_line
from tests.base_runs import write_base_run
from tests.training.benchmarks.claimed import contradictions, unnoticed
from tests.training.benchmarks.driver.launch.launching import ALONE, exit_record, plain_processes, run
from training.benchmarks.base.pytorch import operations, products, suite
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.outcome import OUTCOME
from training.benchmarks.base.pytorch.verdict import bad_ranks, promised
from training.benchmarks.driver.launch.numa_nodes import numa_nodes
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from vendors.datasheets import datasheet
from workloads.compute import database

CPU = torch.device("cpu")
SUSTAINED, SUSTAINED_S = products.SUSTAINED, 1.0
SMALL = ["matmul_size=64", "copy_bytes=65536", "iterations=5", "warmup_iterations=1"]


def records_of(folder: Path, rank: int, event: Event) -> list[PerfLogRecord]:
    lines = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(parse_line, lines) if record is not None]
    assert check_sequence(records) == []
    return [record for record in records if record.event is event]


def values_of(folder: Path, rank: int, event: Event) -> list[Any]:
    return [record.value for record in records_of(folder, rank, event)]


def _run(folder: Path, module: str, *settings: str, data: Path | None = None, ranks: int = 2) -> int:
    arguments = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    arguments += [] if data is None else ["--data_dir", str(data)]
    code, _ = run(folder, plain_processes(ranks), [module, "--vendor", "cpu", *arguments])
    return code


TESTS = [
    *("matmul_fp64", "matmul_fp32", "matmul_bf16", "matmul_int8", "matmul_sustained", "memory", "memory_capacity"),
    *("host_to_device", "host_to_device_numa", "device_to_host"),
    *("host_matmul", "host_memory", "disk_write", "disk_read", "data_write", "data_read"),
]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of two ranks that passed every test; `data` beside them is the folder of the data."""
    folder = tmp_path_factory.mktemp("every")
    sheet = '{"memory": 0.001, "matmul_fp32": 1000, "matmul_sustained": 1000}'
    settings = [f"tests={TESTS}", f"datasheet={sheet}", 'min_percent={"memory": 50}', f"capacity_bytes={32 << 20}"]
    settings += [f"disk_bytes={8 << 20}", f"sustained_seconds={SUSTAINED_S}"]
    data = folder / "data"
    data.mkdir()
    (data / "tokens.bin").write_bytes(os.urandom(17 << 20))
    assert _run(folder, "training.benchmarks.base", *settings, data=data) == 0
    return folder


def test_products_of_a_run_become_rows_of_compute_times(every: Path, tmp_path: Path) -> None:
    """Of 64 squares, 2 * 64**3 operations at the mean time of both ranks."""
    ends = [end for end in values_of(every, 0, Event.STEP_END) if end["test"].startswith("matmul")]
    device = str(values_of(every, 0, Event.SUBMIT_INFO)[0]["device_name"])
    write_base_run(tmp_path / "run", device, ends, matmul_size=64, iterations=5, sustained_seconds=SUSTAINED_S)
    rows = {row.dtype: row for row in database.load(tmp_path / "run")}
    assert list(rows) == ["fp64", "fp32", "bf16", "int8"]
    for end in ends[:4]:
        row = rows[end["test"].removeprefix("matmul_")]
        assert row.ns == pytest.approx(sum(2 * 64**3 / (each * 1e12) * 1e9 for each in end["values_of_ranks"]) / 2)
        assert (row.shape, row.count, row.device) == ("m=64 k=64 n=64", 10, device)


def test_every_test_has_a_figure_of_every_rank(every: Path) -> None:
    assert [path.name for path in (every / "data").iterdir()] == ["tokens.bin"] and not list(every.glob(".disk*"))
    ends, (finished,) = values_of(every, 0, Event.STEP_END), values_of(every, 0, Event.FINISHED)
    assert [value["test"] for value in ends] == TESTS
    for value in ends:
        units = {"matmul_int8": "TOPS", "memory_capacity": "GB"}
        assert value["unit"] == units.get(value["test"], "TFLOPS" if "matmul" in value["test"] else "GB/s")
        if value["test"].startswith(("disk", "data")):
            assert value["all_at_once"] == sum(value["values_of_ranks"]) and value["file_system"] != "unknown"
            assert len(value["disk_models"]) == 1, "two ranks of one host have one disk"
        assert len(value["values_of_ranks"]) == 2 and value["value"] == value["values_of_ranks"][0]
        assert 0 < value["slowest"] <= value["value"]
        assert (value["correct"], value["bad_ranks"]) == ("pass", {})
        key = f"{value['test']}_{value['unit'].replace('/s', 'ps')}"
        assert finished[key] == min(value["values_of_ranks"])
    assert finished["matmul_fp32_percent"] == pytest.approx(finished["matmul_fp32_TFLOPS"] / 10)
    assert "matmul_fp64_percent" not in finished
    assert finished["memory_capacity_GB"] == (32 << 20) / 1e9
    by_node = next(value for value in ends if value["test"] == "host_to_device_numa")
    assert by_node["numa_nodes"].keys() <= set(map(str, numa_nodes()))
    assert by_node["value"] == by_node["numa_nodes"][str(by_node["nearest_numa_node"])]
    assert finished["host_to_device_numa_farthest_GBps"] == min(by_node["farthest_of_ranks"])
    declared = {metric.name for metric in OUTCOME.metrics({"tests": TESTS})}
    assert {name for name in declared if not name.endswith("_percent")} <= finished.keys()
    assert {"memory_percent", "matmul_fp32_percent"} <= declared & finished.keys()
    assert (finished["correct"], finished["bad_ranks"]) == ("pass", [])
    assert values_of(every, 1, Event.FINISHED)[0]["memory_GBps"] == finished["memory_GBps"]
    assert contradictions(every, "base", 2) == []
    assert unnoticed(every, "base", 2) == ["e2e_time"]
    assert contradictions(every, "base", 2, bad_ranks=[1])


def test_what_a_host_lacks_is_said_and_passes_nothing(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    settings = ('tests=["memory", "peers", "data_read"]', f"disk_bytes={8 << 20}")
    assert _run(tmp_path, "training.benchmarks.base", *settings, data=tmp_path / "data", ranks=1) == 0
    (memory, peers, read), (finished,) = (
        values_of(tmp_path, 0, Event.STEP_END),
        values_of(tmp_path, 0, Event.FINISHED),
    )
    assert peers["not_run"] == "1 of 1 ranks see no other device beside their own" and "values_of_ranks" not in peers
    assert read["not_run"].startswith(f"{tmp_path}/data holds 0 bytes; ")
    assert finished.keys() >= {"memory_GBps"} and not any(name.startswith(("peers", "data")) for name in finished)
    assert contradictions(tmp_path, "base", 1) == []
    measured = MeasuredRound(number=1, metrics={}, steps=[memory, peers, read], hosts={0: "n0"})
    case = MeasuredCase(name="BASE", config={}, nnodes=1, nproc=1)
    (table,) = [block for block in OUTCOME.report(case, measured) if isinstance(block, Table)]
    assert [row[0].value for row in table.rows] == ["memory", "peers", "data_read"]
    assert str(table.rows[1][5].value).startswith("not run: 1 of 1 ranks")


def test_a_bad_device_is_named_and_fails_the_run(tmp_path: Path) -> None:
    module = "tests.training.benchmarks.base.slow_workload"
    assert _run(tmp_path, module, 'tests=["matmul_fp32", "memory"]', "max_percent_below_best=90") == 1
    (finished,) = values_of(tmp_path, 0, Event.FINISHED)
    assert (finished["correct"], finished["bad_ranks"]) == ("fail", [1])
    ends = {value["test"]: value["bad_ranks"] for value in values_of(tmp_path, 0, Event.STEP_END)}
    assert ends["matmul_fp32"]["1"].startswith("wrong result")
    assert "% below the best rank, 90 % allowed" in ends["memory"]["1"]
    message = exit_record(tmp_path).failures[0].message
    assert "matmul_fp32: rank 1: wrong result" in message and "memory: rank 1: " in message


def test_the_sustained_product_runs_for_its_time_and_is_held_to_the_datasheet(every: Path) -> None:
    begin, end = (
        next(each for each in records_of(every, 0, event) if SUSTAINED in str(each.value))
        for event in (Event.STEP_BEGIN, Event.STEP_END)
    )
    # The count of products follows from a few of them: how long they take later is the machine's load.
    assert end.metadata.time_ms - begin.metadata.time_ms > 1000 * SUSTAINED_S / 4
    assert isinstance(end.value, dict) and end.value["correct"] == "pass"
    (finished,) = values_of(every, 0, Event.FINISHED)
    (value,) = (each for each in values_of(every, 0, Event.STEP_END) if each["test"] == SUSTAINED)
    assert finished["matmul_sustained_TFLOPS"] == min(value["values_of_ranks"])
    assert finished["matmul_sustained_percent"] > 0
    assert promised(SUSTAINED, Config(), datasheet("NVIDIA H200")) == 989.4


def test_limits_without_a_datasheet_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    words = ["base", "--vendor", "cpu", "--set", 'tests=["memory"]', "--set", 'min_percent={"memory": 5}']
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as end:
        suite.main()
    assert end.value.code == 2
    assert "min_percent: no datasheet for memory on this device" in capsys.readouterr().err


def _product(test: str) -> products.MatMul | products.Int8MatMul:
    # torch computes FP8 on a CPU one element after the other: right, if slow.
    return products.Fp8MatMul(32, CPU, 1) if test == "matmul_fp8" else products.create(test, 96, CPU, seed=1)


@pytest.mark.parametrize("test", ["matmul_fp64", "matmul_fp32", "matmul_bf16", "matmul_fp8", "matmul_int8"])
def test_products_are_checked(test: str) -> None:
    product = _product(test)
    product.run()
    if not isinstance(product, products.Int8MatMul):
        timed = product._product.clone()
        product.run_checked()
        assert not torch.equal(product._product, timed), "what is timed has other values than what is checked"
    assert product.is_correct()
    size = len(product._product)
    assert product.work == 2 * size**3
    assert (product._product[0] != 0).any()
    product._product[0] = product._product[0] * 17 // 16 if test == "matmul_int8" else product._product[0] * 1.02
    assert not product.is_correct()


@pytest.mark.parametrize(
    ("capability", "reason"),
    [((8, 0), "NVIDIA A100-SXM4-40GB has compute capability 8.0, 8.9 is needed"), ((8, 9), None), ((9, 0), None)],
)
def test_fp8_needs_a_device_with_its_units(
    capability: tuple[int, int], reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A100-SXM4-40GB")
    assert products.without_fp8(torch.device("cuda", 0)) == reason


def test_fp8_on_a_cpu_is_refused_with_the_reason() -> None:
    with pytest.raises(UnusableSettingsError, match="tests: matmul_fp8: the CPU has no units for 8-bit floating point"):
        operations.create("matmul_fp8", Config(), CPU)


def test_the_peer_is_the_next_device_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnusableSettingsError, match="the CPU has no such peer"):
        operations.create("peer", Config(), CPU)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda device, peer: peer.index != 3)
    assert operations.peer_of(torch.device("cuda", 1)) == torch.device("cuda", 2)
    assert operations.peer_of(torch.device("cuda", 3)) == torch.device("cuda", 0)
    with pytest.raises(UnusableSettingsError, match="cuda:2 has no access to the memory of cuda:3"):
        operations.peer_of(torch.device("cuda", 2))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UnusableSettingsError, match="this process sees one"):
        operations.peer_of(torch.device("cuda", 0))


@pytest.mark.parametrize(("test", "accesses"), [("memory", 2), ("host_to_device", 1), ("device_to_host", 1)])
def test_copies_are_checked_and_counted(test: str, accesses: int) -> None:
    copy = operations.create(test, Config(copy_bytes=4096), CPU)
    assert not copy.is_correct(), "nothing has been copied"
    copy.run()
    assert copy.is_correct()
    assert copy.work == accesses * 4096


def test_tf32_needs_a_gpu() -> None:
    with pytest.raises(UnusableSettingsError, match="matmul_tf32 needs a device with TF32"):
        operations.create("matmul_tf32", Config(), CPU)


def test_the_verdict_weighs_result_datasheet_and_peers() -> None:
    config = Config(min_percent={"memory": 50.0}, max_percent_below_best=20.0)
    values, correct = [100.0, 79.0, 30.0, 100.0], [True, True, True, False]
    assert bad_ranks("memory", config, values, correct, 100.0) == {
        1: "21.0 % below the best rank, 20 % allowed",
        2: "30.0 % of the datasheet, 50 % wanted; 70.0 % below the best rank, 20 % allowed",
        3: "wrong result",
    }
    assert bad_ranks("matmul_fp32", Config(), values, [True] * 4, 1e9) == {}


def test_the_promise_is_the_configs_before_the_datasheets() -> None:
    sheet = datasheet("NVIDIA H200")
    assert promised("matmul_bf16", Config(), sheet) == 989.4
    assert promised("memory", Config(), sheet) == 4800
    assert promised("host_to_device", Config(), sheet) == 64
    assert promised("memory", Config(datasheet={"memory": 20.0}), sheet) == 20.0
    assert promised("matmul_bf16", Config(datasheet={"memory": 20.0}), sheet) is None
    assert promised("memory", Config(), None) is None
    assert promised("matmul_fp8", Config(), sheet) == promised("matmul_int8", Config(), sheet) == 1978.9
    assert promised("memory_capacity", Config(), sheet) == pytest.approx(151.4, abs=0.1)
    assert promised("host_to_device_numa", Config(), sheet) == 64 and promised("peer", Config(), sheet) == 450
    assert promised("matmul_fp8", Config(), datasheet("NVIDIA A100-SXM4-40GB")) is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tests": ["matmul_fp4"]}, "tests"),
        ({"tests": ["matmul_int8"], "matmul_size": 40}, "matmul_size = 40; allowed with matmul_int8: multiples of 16"),
        ({"tests": ["matmul_fp8"], "matmul_size": 16}, "from 32 on"),
        ({"tests": ["peer", "memory_capacity"]}, "put memory_capacity before it"),
        ({"capacity_bytes": 1 << 30}, "capacity_bytes has no effect without memory_capacity in tests"),
        ({"tests": ["memory", "memory"]}, "memory stands there twice"),
        ({"tests": []}, "tests"),
        ({"min_percent": {"memory": 0.0}}, "memory: 0.0; allowed: above 0"),
        ({"tests": ["memory"], "min_percent": {"peer": 50.0}}, "min_percent has peer, which tests has not"),
        ({"copy_bytes": 12}, "copy_bytes = 12"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputProblems, match=message):
        load_case_config(Config, None, settings)
