"""Libraries of fused kernels are found by importing them elsewhere: what is broken must not break the run."""

import json
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from monitors import sysinfo
from protocol.node_record import NODE_EXIT_FILE, NodeExit
from tests.monitors.running import Monitor
from tests.training.benchmarks.driver.launch.launching import run
from training.benchmarks.driver.launch import fused


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


def test_the_records_of_a_node_tell_which_fused_kernels_import(tmp_path: Path) -> None:
    libraries, logs = tmp_path / "libraries", tmp_path / "logs"
    (libraries / "transformer_engine").mkdir(parents=True)
    logs.mkdir()
    _library(libraries, "flash_attn", "__version__ = '2.8'\n")
    _library(libraries, "apex", "raise ImportError('undefined symbol: _ZN3c10')\n")
    started = libraries / "started"
    endless = f"""
import os, pathlib, time
group = pathlib.Path("/proc/self/autogroup")
shares = group.read_text() if group.exists() else "nice 19"
whole = pathlib.Path({str(started)!r})
whole.with_suffix(".part").write_text(f"{{os.nice(0)}}, its session {{shares.strip()}}")
whole.with_suffix(".part").rename(whole)
time.sleep(1000)
"""
    (libraries / "transformer_engine" / "__init__.py").write_text(endless)
    rank = f"import pathlib, time\nwhile not pathlib.Path({str(started)!r}).exists():\n    time.sleep(0.02)\n"
    _library(libraries, "waiting_rank", rank)
    path = os.pathsep.join([str(libraries), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    with Monitor(logs, "--max_seconds=100", environment=environment) as monitor:
        monitor.wait_for("cpu")
        code, output = run(logs, ["--launcher", "processes"], ["waiting_rank"], PYTHONPATH=path)
        assert code == 0, output
        assert monitor.end(by=signal.SIGTERM)[0] == 0
    expected = {
        "flash_attn": "2.8",
        "apex": "unusable: ImportError: undefined symbol: _ZN3c10",
        "transformer_engine": "unknown: the round ended while it was imported",
    }
    assert NodeExit.read(logs).fused == expected
    assert re.fullmatch(r"19, its session .*nice 19", started.read_text()), "beside the ranks at the lowest priority"
    assert json.loads((logs / sysinfo.FILE).read_text())["fused"] == expected
    assert not [each for each in psutil.process_iter(["cmdline"]) if fused.__name__ in (each.info["cmdline"] or [])]


@pytest.mark.parametrize("text", [None, "", "[]", '{"fused": 3}', "{", '{"exit_code": 0}', "[" * 100_000])
def test_a_record_that_does_not_tell_leaves_fused_empty(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / NODE_EXIT_FILE).write_text(text)
    assert sysinfo.launched(tmp_path).fused == {}
