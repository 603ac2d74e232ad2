"""Writes and reads files past the page cache: in the folder of the results, and in that of the case's data."""

import contextlib
import errno
import itertools
import mmap
import os
import socket
import uuid
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from training.benchmarks.base.pytorch.config import DATA_TESTS
from training.benchmarks.driver.launch.rank import LOG_FOLDER_ENV
from training.benchmarks.driver.workload.placement import Placement

ITERATIONS = 3
BLOCK, PAGE = 8 << 20, 4096
_WORDS = PAGE // 8
LEAST_BYTES = 16 << 20
"""Of data files, below which reading them says nothing of a disk."""
MOST_FILES = 10_000


class NotHereError(Exception):
    """This host does not have what a test needs; the message says what is missing. No test passes by that."""


class Disk:
    """A file of `size` bytes (rounded up to whole blocks) of one rank, without a name from its first moment on.

    Its pages hold their numbers, so that no storage makes one of equal ones. `is_direct`: the file system takes
    accesses past the page cache; else a write ends with fsync, and pages are dropped before a read.
    """

    unit, scale = "GB/s", 1e9

    def __init__(self, folder: Path, size: int, *, reads: bool) -> None:
        """Make the file; `reads`: fill it, so that `run` reads.

        Raises:
            OSError: the folder cannot be written.
        """
        self._blocks = -(-size // BLOCK)
        self.work = float(self._blocks * BLOCK)
        self._buffer = mmap.mmap(-1, BLOCK)
        self._pages = np.frombuffer(self._buffer, dtype=np.int64).reshape(-1, _WORDS)
        self._pages[:] = np.random.default_rng(0).integers(1 << 62, size=self._pages.shape)
        self._usual = self._pages.copy()
        path = folder / f".disk-{uuid.uuid4().hex}"
        self._file, self.is_direct = _opened(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        path.unlink()
        self._reads, self._digest = reads, 0
        if reads:
            self._write()

    def run(self) -> None:
        """Read the whole file once, or write it and wait for the disk."""
        if self._reads:
            for _ in self._read():
                pass
        else:
            self._write()

    def is_correct(self) -> bool:
        """Whether every page of the file holds what was written there."""
        self._digest = 0
        for block in self._read():
            self._number(self._usual, block)
            self._digest = zlib.crc32(self._buffer, self._digest)
            if not np.array_equal(self._pages, self._usual):
                return False
        return True

    def digests(self) -> dict[str, int]:
        """The checksum of what `is_correct` has read: what was wrong before it was written is wrong there, too."""
        return {"file": self._digest}

    def close(self) -> None:
        """Give the disk its space back."""
        os.close(self._file)

    def _write(self) -> None:
        for block in range(self._blocks):
            self._number(self._pages, block)
            if os.pwritev(self._file, [self._buffer], block * BLOCK) != BLOCK:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(self._file)

    def _read(self) -> Iterator[int]:
        if not self.is_direct:
            os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_DONTNEED)
        for block in range(self._blocks):
            os.preadv(self._file, [self._buffer], block * BLOCK)
            yield block

    @staticmethod
    def _number(pages: NDArray[np.int64], block: int) -> None:
        pages[:, 0] = np.arange(block * len(pages), (block + 1) * len(pages))


class DataFiles:
    """This rank's share of the files below the data folder, up to `size` bytes: each rank begins at another block."""

    unit, scale = "GB/s", 1e9

    def __init__(self, folder: Path, size: int, rank: int) -> None:
        """Find the files.

        Raises:
            NotHereError: there is too little to read.
            OSError: a folder or file cannot be looked at.
        """
        pieces = [
            (path, begin, min(BLOCK, length - begin))
            for path, length in _files(folder)
            for begin in range(0, length, BLOCK)
        ]
        total = sum(length for *_, length in pieces)
        if total < LEAST_BYTES:
            raise NotHereError(f"{folder} holds {total} bytes; reading them says nothing of a disk below {LEAST_BYTES}")
        first = rank * -(-size // BLOCK) % len(pieces)
        self._mine, self.work = [], 0.0
        for piece in itertools.islice(itertools.cycle(pieces), first, first + len(pieces)):
            if self.work < size:
                self._mine.append(piece)
                self.work += piece[2]
        self._buffer = mmap.mmap(-1, BLOCK)
        self.is_direct = True

    def run(self) -> None:
        """Read this rank's share once."""
        for _ in self._read():
            pass

    def is_correct(self) -> bool:
        """Whether what is read twice is the same."""
        return self._checksums() == self._checksums()

    def _checksums(self) -> list[int]:
        return [zlib.crc32(memoryview(self._buffer)[:length]) for length in self._read()]

    def digests(self) -> dict[str, int]:
        """No digests: each rank reads another part of files that may differ between hosts."""
        return {}

    def close(self) -> None:
        """Nothing is held."""

    def _read(self) -> Iterator[int]:
        """Bytes of each piece, which lies in the buffer. Pieces of one file are read through one opened file."""
        for path, pieces in itertools.groupby(self._mine, key=lambda piece: piece[0]):
            file, is_direct = _opened(path, os.O_RDONLY)
            self.is_direct &= is_direct
            try:
                if not is_direct:
                    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                for _, begin, length in pieces:
                    if os.preadv(file, [self._buffer], begin) < length:
                        raise OSError(errno.EIO, f"{path} ends before its {begin + length} bytes")
                    yield length
            finally:
                os.close(file)


def disk_test(test: str, size: int, data_dir: Path | None, placement: Placement) -> Disk | DataFiles:
    """The operation of a disk test on this rank, of `size` bytes.

    Raises:
        NotHereError: the folder is none that this test can use.
        OSError: the disk refuses.
    """
    if test not in DATA_TESTS:
        return Disk(log_folder(), size, reads=test == "disk_read")
    assert data_dir is not None, "data_refusal asks for it"
    if test == "data_read":
        return DataFiles(data_dir, size, placement.rank)
    try:
        return Disk(data_dir, size, reads=False)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise NotHereError(f"{data_dir} cannot be written on {socket.gethostname()}: {error.strerror}") from error
        raise


def log_folder() -> Path:
    """The folder of this rank's log, which is on the file system of the results on its host."""
    return Path(os.environ.get(LOG_FOLDER_ENV, "."))


def file_system_of(folder: Path) -> str:
    """Type and source of the file system that a folder is on, as /proc/self/mountinfo (proc(5)) has them."""
    place, found = str(folder.resolve()), ("", "unknown")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            left, _, right = line.partition(" - ")
            mount = left.split()[4].replace("\\040", " ")
            if (place + "/").startswith(mount.rstrip("/") + "/") and len(mount) >= len(found[0]):
                found = (mount, " ".join(right.split()[:2]))
    return found[1]


def disk_models_of(folder: Path, numbers: Path = Path("/sys/dev/block")) -> str:
    """Models of the disks below the file system of a folder; "" where the kernel names none, as of a network's.

    Sources: Linux, Documentation/ABI, sysfs-block; numbers: its folder of devices by number.
    """
    number = folder.stat().st_dev
    source = file_system_of(folder).rpartition(" ")[2]
    if not (numbers / _pair(number)).exists() and source.startswith("/dev/"):  # btrfs has a number of its own
        with contextlib.suppress(OSError):
            number = Path(source).stat().st_rdev
    return ", ".join(sorted(_models((numbers / _pair(number)).resolve())))


def by_model(of_ranks: Sequence[str]) -> dict[str, JsonValue]:
    """The models of the ranks' disks, and where they differ which is whose: its place among them, by rank."""
    models = sorted({*of_ranks})
    if len(models) == 1:
        return {"disk_models": [*models]}
    return {"disk_models": [*models], "disk_model_of_ranks": [models.index(each) for each in of_ranks]}


def _pair(number: int) -> str:
    return f"{os.major(number)}:{os.minor(number)}"


def _models(device: Path, depth: int = 4) -> set[str]:
    """Of a disk, of that of a partition, or of those that a volume is made of."""
    for place in (device, device.parent):
        parts = [part.resolve() for part in (place / "slaves").glob("*")] if depth else []
        if parts:
            return {model for part in parts for model in _models(part, depth - 1)}
        with contextlib.suppress(OSError):
            return {(place / "device" / "model").read_text(encoding="utf-8", errors="replace").strip()[:80]}
    return set()


def _opened(path: Path, flags: int) -> tuple[int, bool]:
    """The file, and whether accesses go past the page cache: not every file system lets them."""
    with contextlib.suppress(OSError):
        return os.open(path, flags | os.O_DIRECT, 0o600), True
    return os.open(path, flags & ~os.O_EXCL, 0o600), False


def _files(folder: Path) -> Iterator[tuple[Path, int]]:
    """Regular files below a folder and their bytes, in the order of their names; the first MOST_FILES of them."""
    left = MOST_FILES
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for path in (Path(parent) / name for name in sorted(names)[:left]):
            left -= 1
            if path.is_file() and not path.is_symlink() and (length := path.stat().st_size):
                yield path, length
