"""The folder of checkpoints: what is gone on from, that another run's are not written over, that none runs code."""

import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from training.benchmarks.driver.training.model.checkpoint import Checkpoints
from training.benchmarks.driver.workload.usage import UnusableSettingsError


def test_the_highest_whole_checkpoint_is_the_one_to_go_on_from(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "checkpoints"
    assert Checkpoints(folder, {}).open(resume=True) is None
    assert folder.is_dir()
    for name in ("step-00000008", "step-00000016", "step-00000024.partial", "step-9", "other"):
        (folder / name).mkdir()
    (folder / "step-00000032").write_text("no folder")
    assert Checkpoints(folder, {}).open(resume=True) == folder / "step-00000016"


def test_a_new_run_refuses_the_checkpoints_of_another(tmp_path: Path) -> None:
    (tmp_path / "step-00000008").mkdir()
    with pytest.raises(UnusableSettingsError, match="holds step-00000008 of another run; go on with resume = True"):
        Checkpoints(tmp_path, {}).open(resume=False)


def test_what_a_killed_run_left_half_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "step-00000008.partial").mkdir()
    assert Checkpoints(tmp_path, {}).open(resume=False) is None


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableSettingsError, match=r"checkpoint_dir: .*/file/checkpoints: cannot be made"):
        Checkpoints(tmp_path / "file" / "checkpoints", {}).open(resume=False)


class Evil:
    """What a stranger's checkpoint may hold: whoever unpickles it executes it."""

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._mark,)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(scaler: dict[str, Any]) -> tuple[Any, torch.optim.Optimizer, Any]:
    """A model, its optimizer with state and a precision whose scaler has this state."""
    module = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW(module.parameters(), betas=(0.9, 0.95))
    module(torch.ones(2, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    state = SimpleNamespace(state_dict=lambda: scaler, load_state_dict=scaler.update)
    return SimpleNamespace(module=module, pipeline=None), optimizer, SimpleNamespace(scaler=state)


@pytest.mark.usefixtures("group")
def test_a_checkpoint_is_restored_as_it_was_saved(tmp_path: Path) -> None:
    saved, restored = (trained({"scale": scale, "pair": (1, 2.5)}) for scale in (8.0, 1.0))
    checkpoints = Checkpoints(tmp_path / "checkpoints", {})
    path = checkpoints.save(3, *saved)
    assert checkpoints.load(path, *restored) == 3
    assert torch.equal(saved[0].module.weight, restored[0].module.weight)
    assert str(saved[1].state_dict()) == str(restored[1].state_dict())
    assert restored[2].scaler.state_dict() == {"scale": 8.0, "pair": (1, 2.5)}


@pytest.mark.usefixtures("group")
def test_a_checkpoint_from_before_a_setting_has_its_default(tmp_path: Path) -> None:
    state = trained({"scale": 1.0})
    path = Checkpoints(tmp_path / "checkpoints", {"seed": 1}).save(3, *state)

    def load(**identity: Any) -> int:
        return Checkpoints(tmp_path, identity, {"seed": 5, "ranks": 1}).load(path, *state)

    assert load(seed=1, ranks=1) == 3
    for changed, said in (({"seed": 5}, "seed was 1, is 5"), ({"ranks": 2}, "ranks was 1, is 2")):
        with pytest.raises(UnusableSettingsError, match=f"is of other settings: {said}$"):
            load(**({"seed": 1, "ranks": 1} | changed))


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("place", ["metadata", "value"])
def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path, place: str) -> None:
    mark = tmp_path / "executed"
    checkpoints = Checkpoints(tmp_path / "checkpoints", {})
    path = checkpoints.save(3, *trained({"scale": Evil(mark) if place == "value" else 1.0}))
    if place == "metadata":
        (path / ".metadata").write_bytes(pickle.dumps(Evil(mark)))
    with pytest.raises(UnusableSettingsError, match=r"broken checkpoint: rank 0: .*(getattr|touch)"):
        checkpoints.load(path, *trained({"scale": 1.0}))
    assert not mark.exists()


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("place", ["/etc/hostname", "../../run.json", "nothing", ""])
def test_a_checkpoint_leads_to_its_own_files_alone(tmp_path: Path, place: str) -> None:
    checkpoints = Checkpoints(tmp_path / "checkpoints", {})
    path = checkpoints.save(3, *trained({"scale": 1.0}))
    metadata = pickle.loads((path / ".metadata").read_bytes())
    for info in metadata.storage_data.values():
        info.relative_path = place
    data = b"\x80\x04junk" if place == "nothing" else pickle.dumps(metadata)
    (path / ".metadata").write_bytes(data)
    why = "leads out of its folder" if place != "nothing" else "pickle data was truncated"
    with pytest.raises(UnusableSettingsError, match=f"broken checkpoint: .*({why})"):
        checkpoints.load(path, *trained({"scale": 1.0}))


@pytest.mark.parametrize(("content", "size"), [
        ("[" * 100_000, None), ("{}", 1 << 40), ("{}", None),
        ('{"schema_version": 2, "step": 3, "identity": {}}', None),
    ],
)  # fmt: skip
def test_the_facts_of_a_checkpoint_are_read_within_bounds(tmp_path: Path, content: str, size: int | None) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)
    os.truncate(file, len(content) if size is None else size)
    with pytest.raises(UnusableSettingsError, match=f"resume: {file}: broken checkpoint"):
        Checkpoints(tmp_path, {}).load(tmp_path, *trained({}))
