"""Sizes count as fitting only if all that is held at the same time fits."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring import memory
from training.benchmarks.network.pytorch.measuring.congestion import traffic_of
from training.benchmarks.network.pytorch.operations.reductions import AllReduce
from training.benchmarks.network.pytorch.operations.variants import created

TEAM = Team(ranks=(0, 1, 2, 3), rank=0, device=torch.device("cpu"))


def run_with(free: int, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> WorkloadContext[Config]:
    """A run of all_reduce of 1 and 2 GiB on ranks that have `free` bytes."""
    monkeypatch.setattr(memory, "smallest_available_bytes", lambda group: free)
    config = Config.model_validate({"sizes": "1G..2G x2", **settings})
    return cast("WorkloadContext[Config]", SimpleNamespace(config=config, group=None))


def all_reduce(config: Config) -> AllReduce:
    made = created(config, TEAM)
    assert isinstance(made, AllReduce)
    return made


def test_the_timing_of_nccl_tests_needs_room_for_its_copies_beside_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    need = int(1.1 * all_reduce(Config()).memory_bytes(2 << 30))
    for timing, free, fitting in (
        ("each", need, (1 << 30, 2 << 30)),
        ("nccl-tests", need, (1 << 30,)),
        ("nccl-tests", 2 * need, (1 << 30, 2 << 30)),
    ):
        run = run_with(free, monkeypatch, timing=timing)
        sizes, skipped = memory.fitting_sizes(run, all_reduce(run.config))
        assert sizes == fitting and list(skipped) == ["2G"] * (len(fitting) == 1)
    with pytest.raises(UnusableSettingsError, match="1G, 2G does not fit"):
        memory.fitting_sizes(run_with(need // 4, monkeypatch, timing="nccl-tests"), all_reduce(Config()))


def test_the_aggressors_traffic_has_to_fit_as_well_as_what_the_victims_run(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with(all_reduce(Config()).memory_bytes(2 << 30), monkeypatch, tool="congestion")
    victims, traffic = all_reduce(run.config), traffic_of(run.config, TEAM)
    assert victims.memory_bytes(2 << 30) < traffic.memory_bytes(2 << 30)
    assert memory.fitting_sizes(run, victims)[0] == (1 << 30, 2 << 30)
    assert memory.fitting_sizes(run, victims, traffic)[0] == (1 << 30,)
