"""Hashes of files that are kept between runs."""

import hashlib
import os
from pathlib import Path

import pytest

from run_benchmarks.plan.cache import cache_folder, hashes_of


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file; the cache is no user's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "unwanted-1.0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_a_file_is_read_once_while_size_and_time_are_the_same(wheel: Path) -> None:
    status = wheel.stat()
    first = hashes_of([wheel])[wheel]
    assert first == hashlib.sha256(wheel.read_bytes()).hexdigest()
    wheel.write_bytes(b"x" * status.st_size)
    os.utime(wheel, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert hashes_of([wheel])[wheel] == first
    os.utime(wheel, ns=(1, 1))
    assert hashes_of([wheel])[wheel] == hashlib.sha256(wheel.read_bytes()).hexdigest()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": 1}'])
def test_a_damaged_cache_is_no_error(wheel: Path, content: str) -> None:
    cache_folder().mkdir(parents=True)
    (cache_folder() / "file-hashes.json").write_text(content)
    assert hashes_of([wheel])[wheel] == hashlib.sha256(wheel.read_bytes()).hexdigest()
