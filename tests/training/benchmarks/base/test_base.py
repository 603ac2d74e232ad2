"""The device tests: figures of two ranks, and that a bad device is named and fails the run."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.benchmarks.driver.launch.launching import exit_record, run
from training.benchmarks.base.pytorch import operations
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.outcome import OUTCOME
from training.benchmarks.base.pytorch.verdict import bad_ranks, promised
from training.benchmarks.driver.protocol.case_config import load_case_config
from training.benchmarks.driver.protocol.datasheet import datasheet
from training.benchmarks.driver.protocol.perflog import Event, check_sequence, parse_line
from training.benchmarks.driver.protocol.problems import ConfigError
from training.benchmarks.driver.workload.usage import UnusableSettingsError

CPU = torch.device("cpu")
SMALL = ["matmul_size=64", "copy_bytes=65536", "iterations=5", "warmup_iterations=1"]


def _values(folder: Path, rank: int, event: Event) -> list[Any]:
    lines = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
    records = [record for record in map(parse_line, lines) if record is not None]
    assert check_sequence(records) == []
    return [record.value for record in records if record.event is event]


def _run(folder: Path, module: str, *settings: str) -> int:
    arguments = [part for setting in (*SMALL, *settings) for part in ("--set", setting)]
    code, _ = run(folder, ["--nproc_per_node", "2"], [module, "--vendor", "cpu", *arguments])
    return code


def test_every_test_has_a_figure_of_every_rank(tmp_path: Path) -> None:
    tests = ["matmul_fp64", "matmul_fp32", "matmul_bf16", "memory", "host_to_device", "device_to_host"]
    sheet = '{"memory": 0.001, "matmul_fp32": 1000}'
    code = _run(
        tmp_path, "training.benchmarks.base", f"tests={tests}", f"datasheet={sheet}", 'min_percent={"memory": 50}'
    )
    assert code == 0
    ends, (finished,) = _values(tmp_path, 0, Event.STEP_END), _values(tmp_path, 0, Event.FINISHED)
    assert [value["test"] for value in ends] == tests
    for value in ends:
        assert value["unit"] == ("TFLOPS" if "matmul" in value["test"] else "GB/s")
        assert len(value["values_of_ranks"]) == 2 and value["value"] == value["values_of_ranks"][0]
        assert 0 < value["slowest"] <= value["value"]
        assert (value["correct"], value["bad_ranks"]) == ("pass", {})
        key = f"{value['test']}_{value['unit'].replace('/s', 'ps')}"
        assert finished[key] == min(value["values_of_ranks"])
    assert finished["matmul_fp32_percent"] == pytest.approx(finished["matmul_fp32_TFLOPS"] / 10)
    assert "matmul_fp64_percent" not in finished
    declared = {metric.name for metric in OUTCOME.metrics({"tests": tests})}
    assert {name for name in declared if not name.endswith("_percent")} <= finished.keys()
    assert {"memory_percent", "matmul_fp32_percent"} <= declared & finished.keys()
    assert (finished["correct"], finished["bad_ranks"]) == ("pass", [])
    assert _values(tmp_path, 1, Event.FINISHED)[0]["memory_GBps"] == finished["memory_GBps"]


def test_a_bad_device_is_named_and_fails_the_run(tmp_path: Path) -> None:
    module = "tests.training.benchmarks.base.slow_workload"
    assert _run(tmp_path, module, 'tests=["matmul_fp32", "memory"]', "max_percent_below_best=90") == 1
    (finished,) = _values(tmp_path, 0, Event.FINISHED)
    assert (finished["correct"], finished["bad_ranks"]) == ("fail", [1])
    ends = {value["test"]: value["bad_ranks"] for value in _values(tmp_path, 0, Event.STEP_END)}
    assert ends["matmul_fp32"]["1"].startswith("wrong result")
    assert "% below the best rank, 90 % allowed" in ends["memory"]["1"]
    message = exit_record(tmp_path).failures[0].message
    assert "matmul_fp32: rank 1: wrong result" in message and "memory: rank 1: " in message


def test_limits_without_a_datasheet_are_refused(tmp_path: Path) -> None:
    assert _run(tmp_path, "training.benchmarks.base", 'tests=["memory"]', 'min_percent={"memory": 5}') == 2
    assert "min_percent: no datasheet for memory on this device" in exit_record(tmp_path).failures[0].message


@pytest.mark.parametrize("test", ["matmul_fp64", "matmul_fp32", "matmul_bf16"])
def test_products_are_checked(test: str) -> None:
    product = operations.MatMul(test, 96, CPU, seed=1)
    product.run()
    assert product.is_correct()
    assert product.work == 2 * 96**3
    product._product[0, 5] *= 1.02
    assert not product.is_correct()


@pytest.mark.parametrize(("test", "accesses"), [("memory", 2), ("host_to_device", 1), ("device_to_host", 1)])
def test_copies_are_checked_and_counted(test: str, accesses: int) -> None:
    copy = operations.create(test, Config(copy_bytes=4096), CPU)
    assert not copy.is_correct(), "nothing has been copied"
    copy.run()
    assert copy.is_correct()
    assert copy.work == accesses * 4096


def test_tf32_needs_a_gpu() -> None:
    with pytest.raises(UnusableSettingsError, match="matmul_tf32 needs a CUDA device"):
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tests": ["matmul_fp8"]}, "tests"),
        ({"tests": ["memory", "memory"]}, "memory stands there twice"),
        ({"tests": []}, "tests"),
        ({"min_percent": {"memory": 0.0}}, "memory: 0.0; allowed: above 0"),
        ({"copy_bytes": 12}, "copy_bytes = 12"),
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_case_config(Config, None, settings)
