"""The folder of checkpoints: what is gone on from, and that another run's are not written over."""

from pathlib import Path

import pytest

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
