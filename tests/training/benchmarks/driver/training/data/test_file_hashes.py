"""Hashes of data files: each file is read once on a host, and again when its size or time of change differs."""

import fcntl
import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from training.benchmarks.driver.training.data import data_identity
from training.benchmarks.driver.training.data.file_hashes import FileHashes, HashCache, Hashing


def _found(
    files: list[Path], folder: Path | None, with_md5: tuple[Path, ...] = ()
) -> tuple[dict[Path, FileHashes], int]:
    """The hashes, and how many bytes were read for them."""
    hashing = Hashing(files, HashCache(folder), with_md5)
    digests, problems = hashing.result()
    assert problems == [] and hashing.is_done()
    return digests, hashing.read_bytes


def _sha256(content: bytes) -> FileHashes:
    return FileHashes(sha256=hashlib.sha256(content).hexdigest())


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    file, cache = tmp_path / "train.npy", tmp_path / "cache"
    cache.mkdir()
    file.write_bytes(b"x" * 1000)
    os.utime(file, ns=(10**18, 10**18))
    assert _found([file], cache) == ({file: _sha256(b"x" * 1000)}, 1000)
    assert _found([file], cache) == ({file: _sha256(b"x" * 1000)}, 0)
    assert _found([file], None)[1] == 1000, "without a folder nothing is remembered"
    file.write_bytes(b"y" * 1000)
    os.utime(file, ns=(10**18, 10**18 + 1))
    assert _found([file], cache) == ({file: _sha256(b"y" * 1000)}, 1000)
    other = tmp_path / "other"
    other.write_bytes(b"z")
    assert _found([file, other], cache)[1] == 1


def test_an_md5_is_computed_where_it_is_asked_for_and_remembered(tmp_path: Path) -> None:
    file, other = tmp_path / "train.txt", tmp_path / "other"
    for each in (file, other):
        each.write_bytes(b"abc")
    assert _found([file], tmp_path) == ({file: _sha256(b"abc")}, 3)
    both = FileHashes(sha256=_sha256(b"abc").sha256, md5="900150983cd24fb0d6963f7d28e17f72")  # RFC 1321
    assert _found([file, other], tmp_path, (file,)) == ({file: both, other: _sha256(b"abc")}, 6)
    assert _found([file, other], tmp_path, (file,))[1] == 0


def test_a_broken_or_unwritable_cache_costs_the_reading_alone(tmp_path: Path) -> None:
    file, cache = tmp_path / "train.npy", tmp_path / "cache"
    cache.mkdir()
    file.write_bytes(b"x")
    _found([file], cache)
    (kept,) = cache.iterdir()
    kept.write_text("{")
    assert _found([file], cache)[1] == 1
    assert _found([file], cache)[1] == 0, "it is written anew"
    assert _found([file], tmp_path / "none")[1] == 1


def test_what_two_runs_learn_at_the_same_time_is_kept(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    for file in (first, second):
        file.write_bytes(b"x")
    caches = HashCache(tmp_path), HashCache(tmp_path)
    caches[0].remember({first: FileHashes(sha256="1", md5="3")})
    caches[1].remember({second: FileHashes(sha256="2")})
    both = HashCache(tmp_path)
    assert both.find(first) == FileHashes(sha256="1", md5="3")
    assert both.find(second) == FileHashes(sha256="2")


def test_what_another_process_is_writing_is_not_lost(tmp_path: Path) -> None:
    mine, other = tmp_path / "a", tmp_path / "b"
    for file in (mine, other):
        file.write_bytes(b"x")
    (tmp_path / "elsewhere").mkdir()
    HashCache(tmp_path / "elsewhere").remember({other: FileHashes(sha256="2", md5="3")})
    (written,) = (tmp_path / "elsewhere").iterdir()
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with ThreadPoolExecutor(1) as pool:
        remembering = pool.submit(HashCache(tmp_path).remember, {mine: FileHashes(sha256="1")})
        with pytest.raises(TimeoutError):
            remembering.result(timeout=0.2)
        written.rename(tmp_path / written.name)
        os.close(handle)
        remembering.result()
    both = HashCache(tmp_path)
    assert both.find(mine) == FileHashes(sha256="1")
    assert both.find(other) == FileHashes(sha256="2", md5="3")


def test_files_of_earlier_boots_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "1b4e28ba.json"
    old.write_text("{}")
    os.utime(old, (1, 1))
    file = tmp_path / "a"
    file.write_bytes(b"x")
    HashCache(tmp_path).remember({file: FileHashes(sha256="1")})
    assert not old.exists() and len(list(tmp_path.glob("*.json"))) == 1


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    hashing = Hashing([tmp_path / "folder"], HashCache(None))
    assert hashing.result() == ({}, [f"{tmp_path}/folder: cannot be read: Is a directory"])


@pytest.mark.parametrize(("kind", "remote"), [("nfs4", True), ("lustre", True), ("ext4", False), ("overlay", False)])
def test_a_file_system_is_known_by_its_mount(
    kind: str, remote: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    mounts = f"36 35 {os.major(device)}:{os.minor(device)} / /data rw - {kind} server:/data rw\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: mounts)
    assert data_identity._is_remote(tmp_path) == remote
