"""The program that installs packages inside an image build, as far as it needs no image."""

import argparse
import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from container.context import install_packages as program

BASE = {"torch": "2.10.0a0+nv", "numpy": "1.26.4"}


def test_what_the_base_has_is_kept_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text("# why\ntorch==2.13.0\nnumpy\nPy.Dantic[x]>=2 # types\n\npsutil @ https://host/p.whl#sha256=1\n")
    lines = program.requirement_lines(path)
    assert program.missing(lines, BASE) == ["Py.Dantic[x]>=2", "psutil @ https://host/p.whl#sha256=1"]
    assert "torch: keeping the base image's 2.10.0a0+nv (asked for: torch==2.13.0)" in capsys.readouterr().out


def test_building_what_the_base_has_ends_the_build() -> None:
    with pytest.raises(SystemExit, match=r"has flash-attn 2\.7 already: leave the option for it out"):
        program.refuse_present(["flash_attn==2.8"], {"flash-attn": "2.7"})
    program.refuse_present(["flash_attn==2.8", "ninja"], {"ninja": "1.11"})


def sources(**given: object) -> list[str]:
    options = {"find_links": [], "index_url": None, "extra_index_url": None, "trusted_host": None} | given
    return program.sources(argparse.Namespace(**options))


def test_where_pip_looks() -> None:
    assert sources() == []
    assert sources(find_links=[Path("/a"), Path("/b")]) == ["--no-index", "--find-links=/a", "--find-links=/b"]
    assert sources(index_url="https://host/simple") == ["--index-url=https://host/simple"]
    assert sources(index_url="http://me:pw@host:81/simple", trusted_host="host:81") == [
        "--index-url=http://me:pw@host:81/simple",
        "--trusted-host=host:81",
    ]
    assert sources(index_url="http://host/simple") == ["--index-url=http://host/simple"]
    assert sources(extra_index_url="https://more/whl") == ["--extra-index-url=https://more/whl"]


@pytest.mark.parametrize(
    ("name", "protected"),
    [
        ("torch", True),
        ("flash-attn-3", True),
        ("transformer-engine-cu13", True),
        ("torchmetrics", False),
        ("h5py", False),
    ],
)
def test_what_is_built_against_the_bases_torch_is_protected(name: str, protected: bool) -> None:
    assert bool(program.PROTECTED.match(name)) == protected


def test_a_base_without_any_pip_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"neither ensurepip .* nor pip"):
        program.make_environment(tmp_path / "venv")


def test_a_base_without_ensurepip_lends_its_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == "pip" else None)
    program.make_environment(tmp_path / "venv")
    assert (tmp_path / "venv" / "bin" / "python").exists()
    assert not (tmp_path / "venv" / "bin" / "pip").exists()


def test_the_base_is_what_this_python_sees() -> None:
    found = program.base_distributions()
    assert found["pytest"] == importlib.metadata.version("pytest")
    assert all(name == program.normalised(name) for name in found)


def test_nothing_missing_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "w.txt").write_text("pytest==0.1\n")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").touch()
    monkeypatch.setattr(sys, "argv", ["install", f"--venv={venv}", f"--missing={tmp_path / 'w.txt'}"])
    assert program.main() == 0
    assert "nothing to install" in capsys.readouterr().out


def test_pip_may_not_replace_what_is_built_against_the_bases_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that asks for another torch must end the build, not take the base's CUDA build away."""
    (tmp_path / "w.txt").write_text("h5py==3.16.0\n")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    python = venv / "bin" / "python"
    python.write_text(
        '#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in -r|-c) echo "$1"; cat "$2"; shift ;; esac; shift; done'
        f" > {tmp_path}/asked\n"
    )
    python.chmod(0o755)
    monkeypatch.setattr(program, "base_distributions", lambda: {**BASE, "h11": "1", "torchao": "0.14+nv"})
    (tmp_path / "case.txt").write_text("torchao==0.18.0\nh11==2\n")
    given = [f"--venv={venv}", f"--missing={tmp_path / 'w.txt'}", f"--requirements={tmp_path / 'case.txt'}"]
    monkeypatch.setattr(sys, "argv", ["install", *given])
    assert program.main() == 0
    asked = (tmp_path / "asked").read_text()
    assert asked == "-r\nh5py==3.16.0\nh11==2\n-c\ntorch==2.10.0a0+nv\ntorchao==0.14+nv\n"
