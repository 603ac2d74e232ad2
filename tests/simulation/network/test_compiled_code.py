"""Compiled code that is kept: it runs without what compiled it; what is damaged or cannot be read is not loaded."""

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulation.network import machine_code, packet_code
from simulation.network.flow_level import compiled
from simulation.network.packets import network_of, prepared
from tests.simulation.network.recordings import request

CODE = bytes(range(256))
ROOT = Path(__file__).resolve().parents[3]


def test_code_that_is_kept_is_read_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "code.o"
    machine_code.keep(CODE, file)
    assert machine_code.kept(file) == CODE
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "changed"])
def test_damaged_code_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "code.o"
    machine_code.keep(CODE, file)
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[:-1], "text": b"text\n" * 30, "changed": whole[:-1] + b"\0"}[damage])
    assert machine_code.kept(file) is None


def test_code_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    machine_code.keep(CODE, tmp_path / "code.o")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_of_several_that_need_code_one_makes_it_and_where_none_can_be_kept_each(tmp_path: Path, is_kept: bool) -> None:
    made: list[bytes] = []
    both_ask = threading.Barrier(2)

    def make() -> bytes:
        time.sleep(0.2)
        made.append(CODE)
        return CODE

    def need(_: int) -> bytes:
        both_ask.wait()
        return machine_code.kept_or_made(tmp_path / "folder" / "code.o" if is_kept else None, make)

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(need, range(2))] == [CODE, CODE]
    assert len(made) == (1 if is_kept else 2)


def test_a_user_without_a_home_or_a_readable_folder_has_no_kept_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> bytes:
        raise PermissionError

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as here:
        for name in ("read_bytes", "exists"):
            here.setattr(Path, name, refuse)
        assert machine_code.kept(Path("code.o")) is None
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    machine_code.file_of.cache_clear()
    try:
        assert not compiled.is_compiled()
    finally:
        machine_code.file_of.cache_clear()


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """An AllReduce of four GPUs at a switch."""
    links = "".join(f"{gpu} 4 100Gbps 0.0005ms 0\n" for gpu in range(4))
    (tmp_path / "fabric").write_text(f"5 1 0 1 4 H100\n4\n{links}", encoding="utf-8")
    return ["-n", f"{tmp_path}/fabric", "--op", "AllReduce", "--size", "1M", "-r", f"{tmp_path}/x-"]


def network_without(module: str, words: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """`network` where a module is not installed."""
    run = f"from simulation.cli import main; sys.exit(main({['network', *words]}))"
    command = [sys.executable, "-c", f"import sys; sys.modules[{module!r}] = None; {run}"]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


def test_packets_move_without_numba_once_their_code_is_kept(words: list[str]) -> None:
    packet_code.code()
    done = network_without("numba", words)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["numba", "llvmlite"])
def test_what_is_missing_to_compile_is_told(module: str, words: list[str], tmp_path: Path) -> None:
    done = network_without(module, words, NUMBA_CACHE_DIR=f"{tmp_path}/empty")
    assert done.returncode == 1 and "needs numba: pip install" in done.stderr and "Traceback" not in done.stderr


def test_columns_of_another_kind_never_reach_compiled_code(words: list[str]) -> None:
    asked = request(words)
    sim = prepared(network_of(asked.fabric, asked.wishes.conf), asked.job, asked.wishes)
    others: list[NDArray[Any]] = [sim.children.astype(np.int32), np.repeat(sim.children, 2)[::2], sim.children[None]]
    for other in others:
        with pytest.raises(AssertionError, match="takes children as int64"):
            packet_code.begin_ranks(sim._replace(children=other))


class _Editable:
    """What an editable installation adds to `sys.meta_path`: it finds numba in a checkout."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "numba" / "__init__.py"
        self.file.parent.mkdir(parents=True)
        self.file.touch()

    def find_spec(self, name: str, *_more: object) -> ModuleSpec | None:
        return spec_from_file_location(name, self.file) if name == "numba" else None


def test_an_editable_numba_is_in_the_name_of_the_code_and_of_a_checkout_of_unknown_version_none_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file_of = machine_code.file_of.__wrapped__
    editable = _Editable(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [editable, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    found = []
    for version in ("1.0", "1.1", "1.0"):
        editable.file.with_name("_version.py").write_text(f'version_json = {{"version": "{version}"}}')
        found.append(file_of(tmp_path, (), "entry"))
    assert found[0] == found[2] != found[1] and None not in found
    editable.file.with_name("_version.py").write_text('git_refnames = "$Format:%d$"')  # until git says it
    assert file_of(tmp_path, (), "entry") is None
