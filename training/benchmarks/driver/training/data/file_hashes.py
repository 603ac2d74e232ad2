"""Computes hashes of data files, and remembers them on the host by each file's size, time of change and inode."""

import contextlib
import fcntl
import hashlib
import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from protocol.arguments import CACHE_ENV

MAX_REMEMBERED = 200_000
_KEPT_SECONDS = 90 * 86400
_CHUNK = 8 << 20
_THREADS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class FileHashes:
    """Hashes of a file in hex; the md5 only where it was asked for."""

    sha256: str
    md5: str | None = None


class _Remembered(BaseModel, extra="forbid"):
    schema_version: int = 1
    sha256: dict[str, str]
    md5: dict[str, str] = {}


class HashCache:
    """The hashes of this host's files since its boot; a file that was changed in place without a new time of change and
    size keeps its old one. Without a folder nothing is remembered.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / f"{_boot_id()}.json"
        self._known = self._read()

    def find(self, path: Path) -> FileHashes | None:
        """The remembered hashes of the file."""
        key = _key(path)
        sha256 = self._known.sha256.get(key)
        return None if sha256 is None else FileHashes(sha256=sha256, md5=self._known.md5.get(key))

    def remember(self, found: dict[Path, FileHashes]) -> None:
        """Keep these hashes, and those that others have kept meanwhile; a folder that cannot be written is no error."""
        if self._path is None or not found:
            return
        with contextlib.suppress(OSError), _locked(self._path.parent):
            known = self._read()
            sha256 = known.sha256 | {_key(path): hashes.sha256 for path, hashes in found.items()}
            md5 = known.md5 | {_key(path): hashes.md5 for path, hashes in found.items() if hashes.md5 is not None}
            text = _Remembered(sha256=_last(sha256), md5=_last(md5)).model_dump_json()
            unfinished = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            unfinished.write_text(text, encoding="utf-8")
            unfinished.replace(self._path)
            self._forget_old()

    def _read(self) -> _Remembered:
        if self._path is None:
            return _Remembered(sha256={})
        try:
            return _Remembered.model_validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return _Remembered(sha256={})

    def _forget_old(self) -> None:
        """Remove the files of earlier boots."""
        assert self._path is not None
        for file in self._path.parent.glob("*.json"):
            if time.time() - file.stat().st_mtime > _KEPT_SECONDS:
                file.unlink(missing_ok=True)


class Hashing:
    """Hashes files in this process's threads, as fast as they are read; `with_md5` get an md5, too."""

    def __init__(self, files: Sequence[Path], cache: HashCache, with_md5: Collection[Path] = ()) -> None:
        self._cache = cache
        self._with_md5 = frozenset(with_md5)
        self._known = {
            file: hashes
            for file in files
            if (hashes := cache.find(file)) is not None and (hashes.md5 is not None or file not in self._with_md5)
        }
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="sha256")
        self._stop = threading.Event()
        self._read = 0
        self._lock = threading.Lock()
        unknown = [file for file in files if file not in self._known]
        self.total_bytes = sum(file.stat().st_size for file in unknown)
        self._running: dict[Path, Future[FileHashes]] = {file: self._pool.submit(self._hash, file) for file in unknown}

    @property
    def read_bytes(self) -> int:
        """Bytes read so far."""
        return self._read

    def is_done(self) -> bool:
        """Whether every file has been read, or cannot be."""
        return all(future.done() for future in self._running.values())

    def result(self) -> tuple[dict[Path, FileHashes], list[str]]:
        """The hashes of each file, and sentences on files that cannot be read; waits for the end."""
        found, problems = {}, []
        for file, future in self._running.items():
            try:
                found[file] = future.result()
            except OSError as error:
                problems.append(f"{file}: cannot be read: {error.strerror or error}")
        self._pool.shutdown()
        self._cache.remember(found)
        return self._known | found, problems

    def stop(self) -> None:
        """End the threads soon."""
        self._stop.set()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _hash(self, path: Path) -> FileHashes:
        digest = hashlib.sha256()
        # It tells which file this is, and protects nothing.
        md5 = hashlib.md5(usedforsecurity=False) if path in self._with_md5 else None
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if md5 is not None:
                    md5.update(chunk)
                with self._lock:
                    self._read += len(chunk)
                if self._stop.is_set():
                    raise OSError("stopped")
        return FileHashes(sha256=digest.hexdigest(), md5=None if md5 is None else md5.hexdigest())


def cache_folder() -> Path | None:
    """The folder in which this host remembers hashes, where the controller gave one."""
    folder = os.environ.get(CACHE_ENV)
    return Path(folder) if folder else None


def combined_sha256(files: dict[str, str]) -> str:
    """One sha256, in hex, over the names and hashes of files, in the form that sha256sum prints."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(lines.encode("utf-8", "surrogateescape")).hexdigest()


def _last(hashes: dict[str, str]) -> dict[str, str]:
    return dict([*hashes.items()][-MAX_REMEMBERED:])


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder alone, so that of two ranks' hashes none is lost; where the file system has no locks, nothing."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _key(path: Path) -> str:
    """A key that distinguishes a file's content from another one's without reading it; "" where there is no file."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return json.dumps([path.name, found.st_size, found.st_mtime_ns, found.st_ino])


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "host"
