"""The preview of layout = "auto" for a plan: from the memory that is told, for any training and nothing else."""

from typing import Any

import pytest

from run_benchmarks.commands.layout_view import layout_rows
from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.base.pytorch.config import Config as BaseConfig
from training.benchmarks.driver.training.layout import layout_preview
from training.benchmarks.driver.training.layout.layout_preview import memories, preview
from training.benchmarks.driver.workload.usage import UnusableSettingsError


def _case(**settings: Any) -> dict[str, Any]:
    config = config_of("llama", layout="auto", gradient_accumulation_steps=2, **settings)
    shape = {"nnodes": 1, "nproc": 2, "config_file": "vendors/nvidia/llama-pytorch/config/config_A100x1x2.py"}
    return {"model": "llama", "framework": "pytorch", "config": config.model_dump(mode="json"), **shape}


def test_a_plan_shows_the_layout_for_each_capacity_of_the_hardware() -> None:
    rows = layout_rows(_case())
    assert [memory for memory, _ in rows] == ["42.3 GB (A100 of 40 GB)", "84.6 GB (A100 of 80 GB)"]
    assert all(layout.startswith("1 x 16 samples, recomputation none; 0.0 GB estimated") for _, layout in rows)


def test_what_does_not_fit_is_said_in_the_row() -> None:
    ((memory, said),) = preview(_case(device_memory_bytes=1 << 20, num_layers=64) | {"hardware": "A100"})
    assert memory == "0.0 GB (device_memory_bytes)" and "one sample with recomputation 'full'" in said


def test_the_memory_is_the_cases_the_hosts_or_the_datasheets(monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of("llama", layout="auto")
    monkeypatch.setattr(layout_preview, "total_bytes", lambda: 1000)
    assert memories(config, "CPU", 4) == [("this host's, shared by 4", 250)]
    assert [words for words, _ in memories(config, "H100", 8)] == ["H100 of 80 GB", "H100 of 94 GB"]
    with pytest.raises(UnusableSettingsError, match="no datasheet tells the memory of B300"):
        memories(config, "B300", 8)


def test_a_benchmark_without_a_training_is_refused() -> None:
    case = {"model": "base", "framework": "pytorch", "config": BaseConfig().model_dump(mode="json"), "hardware": "A100"}
    with pytest.raises(UnusableSettingsError, match="no training of the shared trainer"):
        preview(case | {"nnodes": 1, "nproc": 1})
