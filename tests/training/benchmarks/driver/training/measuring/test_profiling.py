"""Profiles of chosen steps and ranks: what they measure, where they stand, and what is refused."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType  # type: ignore[attr-defined]

from protocol.perflog import Event, parse_line
from tests.training.benchmarks.driver.launch.launching import ALONE, plain_processes, run
from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.launch.rank import LOG_FOLDER_ENV
from training.benchmarks.driver.training.measuring.profiling import Profiling, exposed_seconds
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.schedule import ScheduleError, TrainingSchedule
from training.benchmarks.driver.training.settings.settings import PHASES, numbers_of
from training.benchmarks.llama.pytorch.config import Config

CPU = torch.device("cpu")


def _event(name: str, begin: float, end: float, device: Any = DeviceType.CPU, is_annotation: bool = False) -> Any:
    """An event of torch.profiler, its times in microseconds."""
    times = SimpleNamespace(start=begin, end=end)
    return SimpleNamespace(name=name, time_range=times, device_type=device, is_user_annotation=is_annotation)


def test_communication_is_exposed_where_nothing_is_computed() -> None:
    events = [
        _event("gloo:all_reduce", 10, 30, is_annotation=True),
        _event("gloo:all_reduce", 20, 50, is_annotation=True),  # overlaps: counted once
        _event("aten::addmm", 0, 15),
        _event("aten::mm", 22, 24),
        _event("aten::mul", 23, 28),  # 15..22 and 28..50 are left of 10..50
        _event("c10d::allreduce_", 28, 50),
        _event("backward", 0, 60, is_annotation=True),
        _event("aten::add", 60, 70),
    ]
    assert exposed_seconds(events, ("nccl",)) == pytest.approx(29e-6)
    assert exposed_seconds(reversed(events), ("nccl",)) == pytest.approx(29e-6)
    assert exposed_seconds(events[2:], ("nccl",)) == 0


def test_on_a_device_kernels_count_and_copies_hide_nothing() -> None:
    cuda = DeviceType.CUDA
    events = [
        _event("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 30, cuda),
        _event("ampere_bf16_gemm", 0, 18, cuda),
        _event("Memcpy HtoD (Pinned -> Device)", 20, 25, cuda),
        _event("nccl:all_reduce", 0, 90, cuda, is_annotation=True),
        _event("aten::mm", 0, 90),
    ]
    assert exposed_seconds(events, ("nccl",)) == pytest.approx(12e-6)


def test_phases_are_the_mean_of_the_profiled_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(Profiling, "_now", lambda *_: now[0])
    config = config_of("llama", profile="phases", profile_steps="2..3")
    profiling = Profiling(config, rank=0, device=CPU)
    for step in range(1, 6):
        if step in profiling.steps:
            profiling.begin(step)
        with profiling.phase("forward"):
            now[0] += step
        if step in profiling.steps:
            profiling.end(step)
    found = profiling.phases()
    assert set(found) == {f"phase_{name}" for name in PHASES}
    assert found["phase_forward"] == 2.5, "steps 2 and 3, without 4 and 5"
    assert found["phase_backward"] == 0
    other = Profiling(config, rank=1, device=CPU)
    other.begin(2)
    other.end(2)
    assert other.phases() == dict.fromkeys(found), "rank 1 is not chosen"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"profile_steps": "3"}, "profile_steps = '3' has no effect without profile"),
        ({"profile": "phases", "profile_steps": "3.."}, "profile_steps = '3..': '3..' is no number; allowed"),
        ({"profile": "trace", "profile_steps": 0}, "profile_steps = 0: '0'; allowed: from 1 on"),
        ({"profile": "trace", "profile_ranks": "1 5..2"}, "profile_ranks = '1 5..2': '5..2'; allowed: from 0 on"),
        ({"profile": "trace", "profile_ranks": ""}, "is no number"),
        ({"profile": "trace", "profile_steps": "1..99999999999"}, "up to 1000 numbers"),
    ],
)
def test_a_choice_that_cannot_be_read_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        config_of("llama", **settings)
    assert message in str(error.value)


def test_steps_beyond_the_run_are_refused_at_its_start() -> None:
    config = config_of("llama", profile="phases")
    with pytest.raises(ScheduleError, match="profile_steps is up to 25, the run has 20 steps"):
        TrainingSchedule.of(config, dp_size=2, train_samples=128)


def test_ranks_beyond_the_run_are_refused_by_the_plan_and_by_the_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = config_of("llama", profile="phases", profile_ranks="0 3")
    assert config.refusal(nnodes=2, nproc=2) is None
    assert config.refusal(nnodes=1, nproc=3) == "profile_ranks = '0 3'; allowed: 0 to 2, the ranks of the run"
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "config.py"
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in config.model_dump().items()))
    with pytest.raises(SystemExit) as end:
        run_training(benchmark_of("llama"), type(config), ["--config_file", str(path), "--vendor", "cpu"])
    assert end.value.code == 2
    assert "profile_ranks = '0 3'; allowed: 0 to 0, the ranks of the run" in capsys.readouterr().err


def test_numbers_are_in_order_and_each_stands_once() -> None:
    assert numbers_of("20 5..7 6", least=1) == (5, 6, 7, 20)
    assert numbers_of(0, least=0) == (0,)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """Folder and FINISHED of both ranks of a run whose steps 3, 4 and 6 are traced on rank 1."""
    folder = tmp_path_factory.mktemp("traced")
    settings = config_of("llama").model_dump() | {
        "max_steps": 8, "profile": "trace", "profile_steps": "3..4 6", "profile_ranks": 1, "warmup_steps": 1,
    }  # fmt: skip
    config = folder / "config.py"
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    module = "training.benchmarks.llama.pytorch.run_pretraining"
    workload = [module, "--config_file", str(config), "--vendor", "cpu"]
    code, _ = run(folder, plain_processes(2), workload, OMP_NUM_THREADS="1")
    assert code == 0
    values = []
    for rank in range(2):
        lines = (folder / f"rank{rank}.out.log").read_text(encoding="utf-8").splitlines()
        records = [record for record in map(parse_line, lines) if record is not None]
        assert records[-1].event is Event.FINISHED
        assert isinstance(records[-1].value, dict)
        values.append(records[-1].value)
    yield folder, values


@pytest.mark.nightly
def test_traces_of_the_chosen_steps_and_ranks_lie_beside_the_logs(
    finished: tuple[Path, list[dict[str, Any]]],
) -> None:
    folder, (first, second) = finished
    assert first["profile_files"] == []
    assert second["profile_files"] == ["trace.rank1.steps3-4.json.gz", "trace.rank1.steps6-6.json.gz"]
    assert sorted(path.name for path in folder.glob("trace.*")) == second["profile_files"]
    with gzip.open(folder / second["profile_files"][0], "rt") as file:
        names = [event.get("name") for event in json.load(file)["traceEvents"]]
    for phase in ("data", "forward", "backward", "optimizer"):
        assert names.count(phase) == 2, "one of each step"
    assert "gloo:all_reduce" in names


@pytest.mark.nightly  # by day a rank alone is profiled
def test_profiled_steps_are_not_part_of_the_steady_state(finished: tuple[Path, list[dict[str, Any]]]) -> None:
    for value in finished[1]:
        assert (value["warmup_steps"], value["steady_steps"]) == (1, 4), "eight steps but the first and three"


def test_phases_of_a_run_stand_in_its_result(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, value in (ALONE | {LOG_FOLDER_ENV: str(tmp_path)}).items():
        monkeypatch.setenv(name, value)
    settings = config_of("llama").model_dump() | {"max_steps": 4, "profile": "phases", "profile_steps": "2..3"}
    path = tmp_path / "config.py"
    path.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    run_training(benchmark_of("llama"), Config, ["--config_file", str(path), "--vendor", "cpu"])
    records = [record for record in map(parse_line, capsys.readouterr().out.splitlines()) if record is not None]
    found = records[-1].value
    assert isinstance(found, dict)
    seconds: list[Any] = [found[f"phase_{name}"] for name in PHASES]
    assert all(value is not None for value in seconds)
    assert found["phase_exposed_communication"] == 0, "one rank communicates with nobody"
    assert all(found[f"phase_{name}"] > 0 for name in ("data", "forward", "backward", "optimizer"))  # type: ignore[operator]
    assert list(tmp_path.glob("trace*")) == []
