"""Writes a file completely or not at all."""

import errno
import os
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from common.errors import input_problem

STDOUT = Path("-")
STDOUT_NAMES = (STDOUT, Path("/dev/stdout"), Path("/dev/fd/1"), Path("/proc/self/fd/1"))
NAME_BYTES = "surrogateescape"  # a file's name whose bytes the locale cannot read keeps them
_COMPARED = 1 << 20  # bytes at a time


def target(output: Path | None, name: str) -> Path:
    """Where to write: `name` as it is, in the folder that was given, or the path that was given."""
    if output is None:
        return Path(name)
    return output / name if output != STDOUT and output.is_dir() else output


def is_special(path: Path) -> bool:
    """Whether it is stdout, a pipe, or a device, which no other file can stand beside."""
    return path == STDOUT or (path.exists() and not stat.S_ISREG(path.stat().st_mode))


def write_whole(path: Path, chunks: Iterable[bytes], *, keep_other: bool = False) -> None:
    """Write `chunks` as `whole_file` does.

    Raises:
        InputProblems: `keep_other` is set and the file is there with other content.
        OSError: the file cannot be written.
    """
    with whole_file(path, keep_other=keep_other) as file:
        for chunk in chunks:
            file.write(chunk)


@contextmanager
def whole_file(path: Path, *, keep_other: bool = False) -> Generator[BinaryIO, None, None]:
    """A temporary file beside `path`, which takes its place at the end of the block.

    On any error or Ctrl-C in the block it is removed and an older file is unchanged. Folders are made. `-` is stdout;
    it and anything else that is no regular file (a pipe, a device) is written directly.

    Raises:
        InputProblems: `keep_other` is set and the file is there with other content.
        OSError: the file cannot be written; its filename is `path`.
    """
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        if is_special(path):
            with path.open("wb") as special:
                yield special
            return
        target = path.resolve()
        made = _make_folders(target.parent)
        temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
        try:
            with temporary.open("xb") as file:
                yield file
            if keep_other and target.exists() and not _same(temporary, target):
                raise input_problem(
                    str(path), None, "is there with other content; give --force to overwrite it, or another --output"
                )
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            for folder in made:
                folder.rmdir()
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder with those above it; returns the new ones, the innermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    if not (missing[-1].parent if missing else folder).is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _same(one: Path, other: Path) -> bool:
    if one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as first, other.open("rb") as second:
        while block := first.read(_COMPARED):
            if block != second.read(_COMPARED):
                return False
    return True
