"""Libraries of fused kernels are found by importing them elsewhere: what is broken must not break the run."""

from pathlib import Path

import pytest

from training.benchmarks.driver.training import fused


def _library(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(text)


def test_what_is_not_there_is_none() -> None:
    assert fused.detect(fused.LIBRARIES) == dict.fromkeys(("flash_attn", "apex", "transformer_engine"))


def test_working_broken_and_dying_libraries_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _library(tmp_path, "goodlib", "")
    (tmp_path / "goodlib-2.8.dist-info").mkdir()
    (tmp_path / "goodlib-2.8.dist-info" / "METADATA").write_text("Name: goodlib\nVersion: 2.8\n")
    _library(tmp_path, "badlib", "raise ImportError('undefined symbol: _ZN3c10')")
    _library(tmp_path, "dyinglib", "import os\nos.abort()")
    _library(tmp_path, "weblib", "")  # the name is there, its parts are not: as with PyPI's apex
    names = {
        "goodlib": ("goodlib",),
        "badlib": ("badlib",),
        "dyinglib": ("dyinglib",),
        "weblib": ("weblib.optimizers",),
    }
    monkeypatch.setattr(fused, "LIBRARIES", names | {"nolib": ("nolib",)})
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = fused.detect(fused.LIBRARIES)
    assert found["goodlib"] == "2.8"
    assert found["badlib"] == "unusable: ImportError: undefined symbol: _ZN3c10"
    assert str(found["dyinglib"]).startswith("unusable: ")
    assert str(found["weblib"]).startswith("unusable: ModuleNotFoundError")
    assert found["nolib"] is None
