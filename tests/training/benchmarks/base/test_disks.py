"""The disk tests: what they write is on the disk, what they read comes from it, and a wrong block is noticed."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.base.pytorch.disks import (
    BLOCK,
    DataFiles,
    Disk,
    NotHereError,
    by_model,
    disk_models_of,
    disk_test,
    file_system_of,
)
from training.benchmarks.driver.workload.placement import Placement

ALONE = Placement(rank=0, world_size=1, local_rank=0, local_world_size=1, nnodes=1)


def counted(name: str) -> int:
    """Bytes that this process has had a storage device write or read, as the kernel counts them (proc(5), io)."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.partition(": ")[2] for line in lines if line.startswith(f"{name}: ")))


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not in memory, as pytest's own may be."""
    if not file_system_of(tmp_path).startswith("tmpfs"):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        yield Path(folder)


def test_what_is_written_goes_to_the_disk_and_what_is_read_comes_from_it(on_disk: Path) -> None:
    before = counted("write_bytes")
    disk = Disk(on_disk, 2 * BLOCK, reads=False)
    disk.run()
    assert disk.work == 2 * BLOCK and counted("write_bytes") - before >= 2 * BLOCK
    assert disk.is_correct()
    disk.close()
    reader = Disk(on_disk, 2 * BLOCK, reads=True)
    for _ in range(2):
        before = counted("read_bytes")
        reader.run()
        assert counted("read_bytes") - before >= 2 * BLOCK, "not from memory, the second time either"
    assert reader.is_correct()
    reader.close()
    assert list(on_disk.iterdir()) == []


def test_a_block_that_comes_back_otherwise_is_noticed(tmp_path: Path) -> None:
    disk = Disk(tmp_path, 2 * BLOCK, reads=True)
    page = os.pread(os.open(f"/proc/self/fd/{disk._file}", os.O_RDONLY), 4096, BLOCK + 4096)
    plain = os.open(f"/proc/self/fd/{disk._file}", os.O_WRONLY)
    os.pwrite(plain, page[:100] + bytes([page[100] ^ 1]), BLOCK + 4096)
    os.fsync(plain)
    os.close(plain)
    assert not disk.is_correct()
    disk.close()


def test_ranks_read_different_parts_of_the_data_and_twice_from_the_disk(on_disk: Path) -> None:
    for name, size in (("a", 2 * BLOCK + 4097), ("sub/b", BLOCK)):
        (on_disk / name).parent.mkdir(exist_ok=True)
        (on_disk / name).write_bytes(os.urandom(size))
    os.sync()
    first, second = (DataFiles(on_disk, BLOCK, rank) for rank in range(2))
    assert first._mine != second._mine and first.work == second.work == BLOCK
    everything = DataFiles(on_disk, 1 << 30, 0)
    assert everything.work == 3 * BLOCK + 4097, "not more than there is"
    for _ in range(2):
        before = counted("read_bytes")
        everything.run()
        assert counted("read_bytes") - before >= everything.work
    assert everything.is_correct() and everything.is_direct


def test_a_folder_without_data_and_one_that_is_read_only_are_no_test(tmp_path: Path) -> None:
    with pytest.raises(NotHereError, match="holds 0 bytes"):
        disk_test("data_read", BLOCK, tmp_path, ALONE)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)], check=True)
    try:
        with pytest.raises(NotHereError, match=r"cannot be written on .*: Read-only file system"):
            disk_test("data_write", BLOCK, tmp_path, ALONE)
        assert file_system_of(tmp_path / "sub") == "tmpfs tmpfs"
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_disk_that_is_full_is_an_error_of_its_rank(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tmp_path)], check=True)
    try:
        with pytest.raises(OSError, match="No space left"):
            Disk(tmp_path, BLOCK, reads=True)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_the_models_of_the_disks_below_a_folder_are_named(tmp_path: Path) -> None:
    """A partition of a disk, a volume of two of them, and a file system that no disk is below."""
    block, place = tmp_path / "sys/block", tmp_path / "numbers"
    place.mkdir()
    for disk, model in (("nvme0n1", "SAMSUNG MZQL2  \n"), ("nvme1n1", "INTEL SSDPE2\n")):
        (block / disk / f"{disk}p1").mkdir(parents=True)
        (block / disk / "device").mkdir()
        (block / disk / "device/model").write_text(model)
    (block / "dm-0/slaves").mkdir(parents=True)
    for disk in ("nvme0n1", "nvme1n1"):
        (block / "dm-0/slaves" / f"{disk}p1").symlink_to(block / disk / f"{disk}p1")
    device = tmp_path.stat().st_dev
    number = place / f"{os.major(device)}:{os.minor(device)}"
    assert disk_models_of(tmp_path, place) == ""
    for target, models in (("nvme0n1/nvme0n1p1", "SAMSUNG MZQL2"), ("dm-0", "INTEL SSDPE2, SAMSUNG MZQL2")):
        number.symlink_to(block / target)
        assert disk_models_of(tmp_path, place) == models
        number.unlink()


def test_ranks_are_told_apart_by_the_model_of_their_disk() -> None:
    assert by_model(["a", "a"]) == {"disk_models": ["a"]}
    assert by_model(["b", "", "b"]) == {"disk_models": ["", "b"], "disk_model_of_ranks": [1, 0, 1]}


def test_data_tests_need_a_folder_and_a_folder_needs_them() -> None:
    assert "needs a folder" in str(Config(tests=["data_read"]).data_refusal(has_folder=False))
    assert "no effect" in str(Config(tests=["disk_read"]).data_refusal(has_folder=True))
    assert Config(tests=["data_write"]).data_refusal(has_folder=True) is None
