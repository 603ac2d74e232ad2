"""Writes a host's archive into a folder: regular files and folders only, by folder handles, never through a link."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.incoming.names import UnfitNameError, named, parts_of

FOLDER_MODE, FILE_MODE, OWNER_MODE = 0o750, 0o750, 0o600
AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
AS_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
# Errors of one name, not of the disk.
OF_THE_NAME = {
    errno.EEXIST: "another of its name came before it",
    errno.ENOTDIR: "a file came before it where it needs a folder",
    errno.ELOOP: "a link is in its way",
    errno.EISDIR: "a folder came before it",
    errno.ENAMETOOLONG: "its name is too long for the head node's file system",
    errno.EINVAL: "the head node's file system does not take its name",
    errno.EILSEQ: "the head node's file system does not take its name",
}


class Staging:
    """A Sink that writes below a fresh folder of `parent`; `close` removes what was not moved out of it.

    `reserved`: names in that folder that no member gets, neither as a file nor as a folder.

    Attributes:
        digests: sha256 by name of the complete files.
        cut: the file of which a limit left only the beginning, if any.
        left_out: the reason, by name, why members were not taken.
    """

    def __init__(self, parent: Path, limits: CollectLimits, reserved: Collection[str] = ()) -> None:
        self.digests: dict[str, str] = {}
        self.cut: set[str] = set()
        self.left_out: dict[str, str] = {}
        self._limits, self._reserved = limits, frozenset(reserved)
        self._bytes = self._members = 0
        self._path = tempfile.mkdtemp(dir=parent, prefix=".incoming-")
        self._root = os.open(self._path, AS_FOLDER)
        self._name = ""
        self._file: int | None = None
        self._digest = hashlib.sha256()

    def begin_file(self, name: str, mode: int) -> None:
        """Begin a file; one that cannot be made under its name is skipped together with its bytes."""
        self._count()
        self._name = named(name)
        try:
            parts = parts_of(name)
            if not parts:
                raise UnfitNameError("it has no name")
            if parts[0] in self._reserved:
                raise UnfitNameError("the head node itself writes a file of its name")
            self._name = "/".join(parts)
            with self._folder(parts[:-1]) as folder:
                self._file = os.open(parts[-1], AS_NEW_FILE, 0o600, dir_fd=folder)
        except UnfitNameError as error:
            self.left_out.setdefault(self._name, str(error))
        except OSError as error:
            if error.errno not in OF_THE_NAME:
                raise
            self.left_out.setdefault(self._name, OF_THE_NAME[error.errno])
        else:
            os.fchmod(self._file, _for_us(mode))
            self._digest = hashlib.sha256()

    def write(self, data: memoryview) -> None:
        """Write the next bytes of the file.

        Raises:
            EnoughError: the limit is reached; what fits was written.
        """
        if self._file is None:
            return
        fits = data[: self._limits.max_bytes - self._bytes]
        self._bytes += len(fits)
        self._digest.update(fits)
        rest = fits
        while len(rest):
            rest = rest[os.write(self._file, rest) :]
        if len(fits) < len(data):
            self.cut.add(self._name)
            self._finish_file()
            raise self._limits.too_many_bytes()

    def end_file(self) -> None:
        """Close the file and keep its digest."""
        if self._file is not None:
            self._finish_file()

    def _finish_file(self) -> None:
        file, self._file = self._file, None
        assert file is not None
        os.close(file)
        self.digests[self._name] = self._digest.hexdigest()

    def folder(self, name: str) -> None:
        """Count a folder; one without files is not kept."""
        self._count()
        try:
            parts_of(name)
        except UnfitNameError as error:
            self.left_out.setdefault(named(name), str(error))

    def leave_out(self, name: str, why: str) -> None:
        """Note a member that is not taken, and why."""
        self._count()
        self.left_out.setdefault(named(name), why)

    def _count(self) -> None:
        """Count a member, or a folder that one needs, towards the limit."""
        self._members += 1
        if self._members > self._limits.max_files:
            raise self._limits.too_many_files()

    @contextlib.contextmanager
    def _folder(self, parts: tuple[str, ...]) -> Iterator[int]:
        """A handle of this folder inside the staging folder, which is made if missing."""
        with _opened(self._root, parts, self._make) as folder:
            yield folder

    def _make(self, part: str, parent: int) -> None:
        self._count()
        os.mkdir(part, FOLDER_MODE, dir_fd=parent)

    def move(self, names: Iterable[str], destination: Path) -> None:
        """Move these files into `destination`; they replace anything with their names or those of their folders."""
        with contextlib.ExitStack() as stack:
            target = os.open(destination, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, target)
            for name in names:
                *folders, last = name.split("/")
                with self._folder(tuple(folders)) as ours, _opened(target, tuple(folders), _make_way) as theirs:
                    try:
                        os.rename(last, last, src_dir_fd=ours, dst_dir_fd=theirs)
                    except IsADirectoryError:
                        shutil.rmtree(last, dir_fd=theirs)
                        os.rename(last, last, src_dir_fd=ours, dst_dir_fd=theirs)

    def close(self) -> None:
        """Close the handles and remove what is left."""
        if self._file is not None:
            os.close(self._file)
        os.close(self._root)
        shutil.rmtree(self._path)


@contextlib.contextmanager
def _opened(root: int, parts: tuple[str, ...], make: Callable[[str, int], None]) -> Iterator[int]:
    """A handle of the folder `parts` below `root`, each opened from its parent; `make` replaces anything that is no
    folder.

    Raises:
        OSError: the folder cannot be opened; NotADirectoryError where a file or a link is in the way and `make` did not
            remove it.
    """
    handle = os.dup(root)
    try:
        for part in parts:
            try:
                below = os.open(part, AS_FOLDER, dir_fd=handle)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                    raise
                if error.errno == errno.ENOENT or make is _make_way:
                    make(part, handle)
                below = os.open(part, AS_FOLDER, dir_fd=handle)
            os.close(handle)
            handle = below
        yield handle
    finally:
        os.close(handle)


def _make_way(part: str, parent: int) -> None:
    """Make a folder in place of a file or a link, wherever that leads."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part, dir_fd=parent)
    os.mkdir(part, FOLDER_MODE, dir_fd=parent)


def _for_us(mode: int) -> int:
    """A host's file mode reduced to owner and group: 0640 or 0750 as a rule."""
    kept = mode & FILE_MODE | OWNER_MODE
    return kept if mode & 0o100 else kept & ~0o111
