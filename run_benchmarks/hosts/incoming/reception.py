"""Receives one archive of a host: the command's output goes through the reader into a staging folder as it arrives."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType

from common.units import readable_bytes
from run_benchmarks.errors import DeadlineError, HostError, LinkLostError, TooSlowError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.limits import CollectLimits, EnoughError
from run_benchmarks.hosts.incoming.names import UnfitNameError, named, parts_of
from run_benchmarks.hosts.incoming.tar_stream import ArchiveError, TarStream

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


SLOWEST_BYTES = 1 << 20  # in a second: a link that brings as much is waited for
LOOKS = 20  # in the time of a deadline


class Reception:
    """Use once, as a context: files of the staging folder that were not kept are removed at the end.

    Attributes:
        refused: why the data is no complete archive.
        enough: a limit was reached; the host's command was ended then.
    """

    def __init__(self, destination: Path, limits: CollectLimits, reserved: Collection[str] = ()) -> None:
        self._destination, self._limits = destination, limits
        self._staging = Staging(destination.parent, limits, reserved)
        self._stream = TarStream(self._staging)
        self._bytes = 0
        self._stop = threading.Event()
        self._unkept: OSError | None = None
        self._slow = ""
        self.refused: ArchiveError | None = None
        self.enough: EnoughError | None = None

    def __enter__(self) -> Reception:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._staging.close()

    def receive(self, host: Host, argv: Sequence[str], deadline: float) -> tuple[str, int, HostError | None]:
        """Run the command and keep its output; returns its stderr, its exit code and the error of a broken transfer.

        The command is ended if nothing comes in the first `deadline` seconds, in which the host reads all its files;
        if less than SLOWEST_BYTES a second comes in as many later ones; or if it goes on so long after the run.

        Raises:
            OSError: the head node cannot keep the files.
        """
        broken: HostError | None = None
        longest = 2 * deadline + self._limits.max_stream_bytes / SLOWEST_BYTES
        is_over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(deadline, is_over), name="pace", daemon=True)
        watch.start()
        try:
            done = host.run(argv, on_stdout=self.feed, deadline=longest, check=False, cancel=self._stop)
            listing, exit_code = done.stderr, 0 if self._stop.is_set() else done.exit_code
        except (DeadlineError, LinkLostError) as error:
            listing, exit_code, broken = error.output, 1, error
            if self._stop.is_set():
                broken = None
        finally:
            is_over.set()
            watch.join()
        if self._slow:
            broken = TooSlowError(host.name, argv, deadline, self._slow)
        if self._unkept is not None:
            raise self._unkept
        if broken is None and not self._stop.is_set() and not self._stream.at_rest:
            self.refused = ArchiveError("it ends in the middle of a member")
        return listing, exit_code, broken

    def _watch(self, seconds: float, is_over: threading.Event) -> None:
        """End the transfer once it brings too little in so many seconds, or goes on so long after the run is to end."""
        before = urgent = 0
        for look in itertools.count(1):
            if is_over.wait(seconds / LOOKS) or self._stop.is_set():
                return
            urgent += self._limits.is_urgent()
            if urgent >= LOOKS:
                self._slow = f"the run is to end, and it goes on after {seconds:g} s"
            elif look % LOOKS == 0:
                came = self._bytes
                if came - before < (SLOWEST_BYTES * seconds if before else 1):
                    self._slow = f"it brought less than {readable_bytes(SLOWEST_BYTES)} a second for {seconds:g} s"
                before = came
            if self._slow:
                self._stop.set()
                return

    def feed(self, chunk: bytes) -> None:
        """Take a piece. After the first error the command is ended and the remaining data is ignored.

        Nothing fails here: the host's list of its files, on its other stream, is needed in any case.
        """
        if self._stop.is_set():
            return
        self._bytes += len(chunk)
        try:
            if self._bytes > self._limits.max_stream_bytes:
                raise self._limits.too_many_bytes()
            self._stream.feed(chunk)
        except EnoughError as error:
            self.enough = error
        except ArchiveError as error:
            self.refused = error
        except OSError as error:
            self._unkept = error
        else:
            return
        self._stop.set()

    @property
    def digests(self) -> dict[str, str]:
        """sha256 by name of the received files; for a file that was cut, of its beginning."""
        return self._staging.digests

    @property
    def cut(self) -> set[str]:
        """The file of which a limit left only the beginning, if any."""
        return self._staging.cut

    @property
    def left_out(self) -> dict[str, str]:
        """The reason, by name, why members were not taken."""
        return self._staging.left_out

    def keep(self, names: Iterable[str]) -> None:
        """Move these files into the destination.

        Raises:
            OSError: a file cannot be moved.
        """
        self._staging.move(names, self._destination)
