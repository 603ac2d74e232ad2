"""Compiled code of the flow level that is kept: what is damaged or cannot be read is not loaded."""

import os
from pathlib import Path

import pytest

from simulation.network.flow_level import compiled

CODE = bytes(range(256))


def test_code_that_is_kept_is_read_again_and_nothing_else_is_left(tmp_path: Path) -> None:
    file = tmp_path / "folder" / "code.o"
    compiled.keep(CODE, file)
    assert compiled.kept(file) == CODE
    assert [*file.parent.iterdir()] == [file]


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "changed"])
def test_damaged_code_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "code.o"
    compiled.keep(CODE, file)
    whole = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": whole[:-1], "text": b"text\n" * 30, "changed": whole[:-1] + b"\0"}[damage])
    assert compiled.kept(file) is None


def test_code_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    compiled.keep(CODE, tmp_path / "code.o")
    assert [*tmp_path.iterdir()] == []


def test_a_user_without_a_home_or_a_readable_folder_has_no_kept_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_path: Path) -> bytes:
        raise PermissionError

    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    with monkeypatch.context() as here:
        for name in ("read_bytes", "exists"):
            here.setattr(Path, name, refuse)
        assert compiled.kept(Path("code.o")) is None
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    compiled._file.cache_clear()
    try:
        assert not compiled.is_compiled()
    finally:
        compiled._file.cache_clear()
