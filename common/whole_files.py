"""Writes a file completely or not at all: a reader sees the old file or the complete new one."""

import errno
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from common.errors import MistakeList, input_problem

STDOUT = Path("-")
STDOUT_NAMES = (STDOUT, Path("/dev/stdout"), Path("/dev/fd/1"), Path("/proc/self/fd/1"))
NAME_BYTES = "surrogateescape"  # a file's name whose bytes the locale cannot read keeps them
RESERVE_FROM = 4 << 20  # bytes
PRESENT = "is there; give --force to overwrite it"
_OTHER = "is there with other content; give --force to overwrite it, or name another file"
_COMPARED = 1 << 20  # bytes at a time
Row = TypeVar("Row")
# Whether files with other content are kept: what --force switches off; None: nobody said, and they are not.
_KEEPS_OTHERS = ContextVar[bool | None]("_KEEPS_OTHERS", default=None)


class _Written(NamedTuple):
    """A temporary file; `path` is the name to say of the file whose place it takes."""

    temporary: Path
    path: Path
    target: Path
    keep_other: bool

    def is_other(self) -> bool:
        """Whether a file stands there that is kept and has other content."""
        return self.keep_other and self.target.exists() and not _same(self.temporary, self.target)


class _Set(NamedTuple):
    """The files of a set that wait for their places; undo: removes what is left of them, and folders that are empty."""

    files: list[_Written]
    undo: ExitStack


_SET: ContextVar[_Set | None] = ContextVar("_SET", default=None)


def target(output: Path | None, name: str) -> Path:
    """Where to write: `name` as it is, in the folder that was given, or the path that was given."""
    if output is None:
        return Path(name)
    return output / name if output != STDOUT and output.is_dir() else output


@contextmanager
def others_kept(*, keep: bool) -> Generator[None, None, None]:
    """In the block no file that is there with other content is overwritten, if `keep` is set."""
    before = _KEEPS_OTHERS.set(keep)
    try:
        yield
    finally:
        _KEEPS_OTHERS.reset(before)


def is_forced() -> bool:
    """Whether a block or --force says that files with other content go."""
    return _KEEPS_OTHERS.get() is False


def refuse_present(paths: Iterable[Path], otherwise: str = "name another file") -> None:
    """Before work of minutes: files that are there are refused where others are kept, as its result would be.

    otherwise: what the user can do in place of --force.

    Raises:
        InputProblems: some are there; it names all of them.
    """
    mistakes = MistakeList()
    for path in paths if _KEEPS_OTHERS.get() else ():
        if path != STDOUT and path.is_file():
            mistakes.add(str(path), None, f"{PRESENT}, or {otherwise}")
    mistakes.check()


def refuse_terminal(path: Path, what: str) -> None:
    """Before the work: `what`, which is no text, does not go to a terminal.

    Raises:
        InputProblems: `path` is stdout, and that is a terminal.
    """
    if path == STDOUT and sys.stdout.isatty():
        raise input_problem("--output", path, f"is a terminal, and {what} is no text: expected a file or a pipe")


def refuse_stdout(path: Path | None, why: str, mistakes: MistakeList) -> None:
    """Before the work: stdout, a pipe or a device cannot hold what goes to several files."""
    if path is not None and is_special(path):
        mistakes.add("--output", path, f"needs a file's name: {why}")


def is_special(path: Path) -> bool:
    """Whether it is stdout, a pipe or a device: it is written directly, where a file is replaced when it is whole."""
    return path == STDOUT or (path.exists() and not stat.S_ISREG(path.stat().st_mode))


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


def write_whole(path: Path, chunks: Iterable[bytes], *, size: int = 0) -> None:
    """Write `chunks`, `size` bytes in all if that is known, as `whole_file` does.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written.
    """
    with whole_file(path, size=size) as file:
        for chunk in chunks:
            file.write(chunk)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to a file in a folder that is there. What had that name, a link or a pipe too, is gone.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written; nothing is left of it.
    """
    with _named_after(path), _replacing(path, path) as file:
        file.write(text.encode())


def write_durably(path: Path, pieces: Iterable[bytes], *, mode: int = 0o640) -> None:
    """Write a file with this mode in a folder that is there: after a power loss it is the old one or the new one.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written; nothing is left of it.
    """
    with _named_after(path), _replacing(path, path, mode=mode) as file:
        file.writelines(pieces)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def whole_file(path: Path, *, size: int = 0) -> Generator[BinaryIO, None, None]:
    """A temporary file beside `path`, which takes its place at the end of the block.

    On any error or Ctrl-C in the block it is removed and an older file is unchanged. Folders are made. `-` is stdout;
    it and anything else that is no regular file (a pipe, a device) is written directly. Where `size`, the number of
    bytes, is known to be large it is reserved first, so that a full disk is noticed before anything is written.

    Raises:
        InputProblems: other files are kept, and it is there with other content.
        OSError: the file cannot be written; its filename is `path`.
    """
    if path == STDOUT:
        if sys.__stdout__ is None:  # closed from the start
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), "stdout")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with _named_after(path):
        if is_special(path):
            with path.open("wb") as special:
                yield special
            return
        target = path.resolve()
        with _waiting() as waiting:
            for folder in reversed(_make_folders(target.parent)):
                waiting.undo.callback(_remove_empty, folder)
            with _replacing(path, target, size=size) as file:
                yield file


@contextmanager
def whole_files(paths: Sequence[Path]) -> Generator[list[BinaryIO], None, None]:
    """Several files, as `whole_file` writes one: all take their places at the end of the block, or none does.

    Standard output is written at once; if a file cannot take its place, those that took theirs before it stay.

    Raises:
        InputProblems: other files are kept, and some are there with other content; it names all of them.
        OSError: a file cannot be written.
    """
    with whole_set(), ExitStack() as places:
        yield [places.enter_context(whole_file(path)) for path in paths]


@contextmanager
def whole_set() -> Generator[None, None, None]:
    """In the block each file that is written waits: all take their places at the end of it, or none does.

    A set in a set is part of it.

    Raises:
        InputProblems: some that are kept are there with other content; it names all of them.
        OSError: a file cannot be written.
    """
    with _waiting() as waiting:
        before = _SET.set(waiting)
        try:
            yield
        finally:
            _SET.reset(before)


@contextmanager
def _waiting() -> Generator[_Set, None, None]:
    """The set that is open, else one of its own."""
    if (outer := _SET.get()) is not None:
        yield outer
        return
    with ExitStack() as undo:
        own = _Set([], undo)
        yield own
        _take_places(own.files)


def _take_places(files: Sequence[_Written]) -> None:
    mistakes = MistakeList()
    for each in files:
        if each.is_other():
            mistakes.add(str(each.path), None, _OTHER)
    for target, count in Counter(each.target for each in files).items():
        if count > 1:
            mistakes.add(str(target), None, f"is the name of {count} outputs; name another file")
    mistakes.check()
    for each in files:
        with _named_after(each.path):
            each.temporary.replace(each.target)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):  # another process may have put a file there
        folder.rmdir()


def write_all(files: Sequence[tuple[Path, str]]) -> None:
    """Write texts as UTF-8, all of them or none, as `whole_files` does.

    Raises:
        InputProblems: other files are kept, and some are there with other content, or two have one name; it names all.
        OSError: a file cannot be written.
    """
    with whole_files([path for path, _ in files]) as places:
        for place, (_, text) in zip(places, files, strict=True):
            place.write(text.encode())


@contextmanager
def _named_after(path: Path) -> Generator[None, None, None]:
    """An OSError in the block names `path`, not the temporary file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


@contextmanager
def _replacing(path: Path, target: Path, *, size: int = 0, mode: int | None = None) -> Generator[BinaryIO, None, None]:
    """A temporary file beside `target`, renamed to it in the end; removed on any error.

    path: the name to say. mode: of the file, whatever the umask; None: as the umask says.
    """
    temporary = target.with_name(f".{target.name[:100]}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    with _waiting() as waiting:
        waiting.undo.callback(temporary.unlink, missing_ok=True)
        waiting.files.append(_Written(temporary, path, target, bool(_KEEPS_OTHERS.get())))
        with temporary.open("xb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            if size >= RESERVE_FROM:
                _reserve(file.fileno(), size)
            yield file


def _reserve(handle: int, size: int) -> None:
    """Reserve `size` bytes of the open file `handle`; does nothing on file systems that cannot.

    Raises:
        OSError: the disk or the quota has no room for them, or no file may be so large.
    """
    reserve = getattr(os, "posix_fallocate", None)
    if reserve is not None:
        try:
            reserve(handle, 0, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise


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
