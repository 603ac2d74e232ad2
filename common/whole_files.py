"""Writes a large file at the speed of the disk, completely or not at all."""

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

PREALLOCATE_FROM = 4 << 20
Row = TypeVar("Row")


def encode_once(to_line: Callable[[Row], str]) -> Callable[[Row], bytes]:
    """`to_line` as bytes with a line end, computed once per row object.

    By object, not by equality: 1 and 1.0 are equal and print differently. The caller keeps the rows alive.
    """
    known: dict[int, bytes] = {}

    def encode(row: Row) -> bytes:
        line = known.get(id(row))
        if line is None:
            line = known[id(row)] = f"{to_line(row)}\n".encode()
        return line

    return encode


def write_whole(path: Path, size: int, chunks: Iterator[bytes]) -> None:
    """Write `chunks` (`size` bytes in all) to a temporary file beside `path`, then rename it.

    On any error or Ctrl-C nothing is left and an older file is unchanged. The space is reserved first, so that a full
    disk is noticed before anything is written. A path that is no regular file (a pipe) is written directly.
    """
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with path.open("wb", buffering=0) as special:
                for chunk in chunks:
                    _write(special.fileno(), chunk)
        else:
            target = path.resolve()
            target.parent.mkdir(parents=True, exist_ok=True)
            _write_and_rename(target, size, chunks)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _write_and_rename(path: Path, size: int, chunks: Iterator[bytes]) -> None:
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name[:40]}.", dir=path.parent)
    try:
        os.fchmod(handle, 0o666 & ~_umask())
        if size >= PREALLOCATE_FROM:
            _reserve(handle, size)
        for chunk in chunks:
            _write(handle, chunk)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _write(handle: int, chunk: bytes) -> None:
    view = memoryview(chunk)
    while view:
        view = view[os.write(handle, view) :]


def _reserve(handle: int, size: int) -> None:
    """Reserve `size` bytes; does nothing on file systems that cannot.

    Raises:
        OSError: the disk is full.
    """
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is not None:
        try:
            reserve(handle, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
