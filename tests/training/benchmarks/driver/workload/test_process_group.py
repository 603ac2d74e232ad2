import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from pydantic import JsonValue

from common.garbage import load_modules
from protocol.case_config import CaseConfig
from protocol.perflog import Event, parse_line
from tests.training.benchmarks.driver.launch.launching import ALONE
from training.benchmarks.driver.workload.placement import Placement, ProcessGroupError
from training.benchmarks.driver.workload.process_group import device_for, init
from training.benchmarks.driver.workload.run_context import open_run
from training.benchmarks.driver.workload.usage import UnusableSettingsError


class Config(CaseConfig):
    steps: int = 3


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A world of one rank in this process."""
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    yield
    assert not dist.is_initialized(), "the group must be left"


@pytest.mark.usefixtures("alone")
def test_the_group_is_open_inside_and_left_after() -> None:
    with init("gloo", timeout_s=10) as group:
        assert dist.is_initialized()
        assert (group.backend, group.device, group.placement.world_size) == ("gloo", torch.device("cpu"), 1)
        dist.barrier()


@pytest.mark.usefixtures("alone")
def test_what_a_rank_has_loaded_is_not_searched_for_garbage_again() -> None:
    usual = gc.get_threshold()
    gc.unfreeze()
    load_modules()
    assert gc.get_threshold() != usual
    with init("gloo", timeout_s=10):
        assert gc.get_threshold() == usual
        assert gc.get_freeze_count() > 100_000, "torch's modules alone have more objects"


@pytest.mark.usefixtures("alone")
def test_the_group_is_left_when_the_workload_raises() -> None:
    with pytest.raises(ValueError, match="boom"), init("gloo", timeout_s=10):
        raise ValueError("boom")


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"])
@pytest.mark.usefixtures("alone")
def test_a_missing_variable_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(ProcessGroupError, match=f"{name} is not set: start the workload with torchrun"):
        Placement.from_environment()
    monkeypatch.setenv(name, "x")
    with pytest.raises(ProcessGroupError, match=f"{name}='x' is not a number"):
        Placement.from_environment()


def test_nccl_without_cuda_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_backend_available", lambda name: name != "nccl")
    with pytest.raises(ProcessGroupError, match=r"backend 'nccl': torch .* is built without it"):
        device_for("nccl", 0)
    monkeypatch.setattr(dist, "is_backend_available", lambda name: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ProcessGroupError, match=r"backend 'nccl' needs a device of type cuda, .* finds none here"):
        device_for("nccl", 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert device_for("nccl", 1) == torch.device("cuda", 1)
    with pytest.raises(ProcessGroupError, match="local rank 2 has no cuda device, this node shows 2"):
        device_for("nccl", 2)


def submitted(output: str) -> dict[str, JsonValue]:
    record = parse_line(output.splitlines()[0])
    assert record is not None and record.event is Event.SUBMIT_INFO and isinstance(record.value, dict)
    return record.value


@pytest.mark.usefixtures("alone")
def test_a_run_announces_itself_with_its_whole_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "config.py"
    file.write_text("steps = 5\nseed = 7\n")
    argv = ["--", "--config_file", str(file), "--vendor", "cpu", "--case", "a", "--data_dir", "/d", "--set", "seed=9"]
    with open_run("network", "pytorch", Config, argv) as run:
        assert (run.config.steps, run.config.seed, run.config.backend) == (5, 9, "gloo")
        assert run.data_dir == Path("/d")
        run.logger.log(Event.INIT_END)
    lines = capsys.readouterr().out
    value = submitted(lines)
    assert value["config"] == {"steps": 5, "seed": 9, "backend": "gloo", "timeout_s": 600.0}
    assert (value["vendor"], value["model"], value["framework"], value["case"]) == ("cpu", "network", "pytorch", "a")
    assert (value["world_size"], value["nnodes"], value["backend"]) == (1, 1, "gloo")
    assert value["torch"] == str(torch.__version__)
    events = [record.event for record in map(parse_line, lines.splitlines()) if record is not None]
    assert events == [Event.SUBMIT_INFO, Event.INIT_START, Event.INIT_END]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["--set", "stepz=3"], "network: override: stepz = 3: unknown setting; did you mean 'steps'?"),
        (["--set", "steps"], "--set 'steps' is not of the form key=value"),
        (["--vendor", "cqu"], "network: unknown vendor 'cqu'"),
        (["--config_file", "/no/such/file.py"], "network: /no/such/file.py: cannot be read"),
        (["--what"], "unrecognized arguments: --what"),
    ],
)
@pytest.mark.usefixtures("alone")
def test_wrong_arguments_leave_with_2_and_no_traceback(
    argv: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught, open_run("network", "pytorch", Config, argv):
        pytest.fail("the block must not run")
    assert caught.value.code == 2
    assert expected in capsys.readouterr().err


@pytest.mark.usefixtures("alone")
def test_settings_that_cannot_run_here_leave_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught, open_run("network", "pytorch", Config, []):
        raise UnusableSettingsError("steps = 3: too many for this host")
    assert caught.value.code == 2
    assert "network: steps = 3: too many for this host" in capsys.readouterr().err
