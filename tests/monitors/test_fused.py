"""Libraries of fused kernels are found by importing them elsewhere: what is broken must not break the run."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from monitors import fused
from tests.cluster.system import wait_until
from tests.monitors.running import Monitor


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


def test_sys_info_tells_which_fused_kernels_import(tmp_path: Path) -> None:
    libraries, logs = tmp_path / "libraries", tmp_path / "logs"
    (libraries / "transformer_engine").mkdir(parents=True)
    logs.mkdir()
    (libraries / "flash_attn.py").write_text("__version__ = '2.8'\n")
    (libraries / "apex.py").write_text("raise ImportError('undefined symbol: _ZN3c10')\n")
    started = libraries / "started"
    endless = f"import pathlib, time\npathlib.Path({str(started)!r}).touch()\ntime.sleep(1000)\n"
    (libraries / "transformer_engine" / "__init__.py").write_text(endless)
    path = os.pathsep.join([str(libraries), os.environ.get("PYTHONPATH", "")])
    with Monitor(logs, "--max_seconds=100", environment=os.environ | {"PYTHONPATH": path}) as monitor:
        wait_until(started.exists, timeout=100, what="the import of transformer_engine")
        monitor.end(by=signal.SIGTERM)
    assert json.loads((logs / "sys_info.json").read_text())["fused"] == {
        "flash_attn": "2.8",
        "apex": "unusable: ImportError: undefined symbol: _ZN3c10",
        "transformer_engine": "unknown: the round ended while it was imported",
    }
    assert not [each for each in psutil.process_iter(["cmdline"]) if "monitors.fused" in (each.info["cmdline"] or [])]
