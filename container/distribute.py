"""Copies an image from one engine to others: saved once, loaded in parallel, verified.

The clients belong to the caller and may talk to remote engines. Several threads call `transfer`'s progress.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import tempfile
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import requests
from docker import APIClient
from docker.errors import DockerException

from container.engine_images import (
    CHUNK,
    QUIET_S,
    UNREADABLE,
    DistributeError,
    ImageLoadError,
    Progress,
    Upload,
    identity,
)
from container.image import ImageIdentity

T = TypeVar("T")
# EOFError is what an SSH link raises that ends while a channel is opened: it has no text.
LOST = (DockerException, requests.RequestException, OSError, EOFError, *UNREADABLE)
SAVING = ".saving-"
FILE_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
TAG_DIGITS = 12
SPOOL_BYTES = 50_000_000_000  # two of the largest images of the vendors


def transfer(
    source_client: APIClient,
    targets: Mapping[str, APIClient],
    tag: str,
    spool: Path,
    progress: Progress,
    concurrency: int,
) -> dict[str, DistributeError]:
    """Copy an image from one engine to the targets that lack it, at most `concurrency` of them at a time.

    The image is saved once into the folder `spool`, under its id and name, and reused by a later transfer; of older
    images only the newest SPOOL_BYTES stay there. An interruption ends all transfers before it is raised.

    Returns by name why a target does not have the image; all other targets have exactly this image, verified.

    Raises:
        DistributeError: the source has no such image, or its name or archive is none of an image.
        DockerException: the source does not answer.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency}: at least 1")
    image = identity(source_client, tag)
    if image is None:
        raise DistributeError(f"the source engine has no image {tag}")
    job = _Job(tag, image, spool, progress)
    pool = ThreadPoolExecutor(min(concurrency, max(1, len(targets))), thread_name_prefix="image")
    try:
        there, failed = _collect({name: pool.submit(job.already_there, client) for name, client in targets.items()})
        lacking = [name for name, present in there.items() if not present]
        if lacking:
            with job.saved(source_client):
                failed |= _collect({name: pool.submit(job.load, name, targets[name]) for name in lacking})[1]
            prune(spool)
        return failed
    except BaseException:
        job.cancelled.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _collect(futures: Mapping[str, Future[T]]) -> tuple[dict[str, T], dict[str, DistributeError]]:
    """Results and errors by target, once all have ended."""
    results: dict[str, T] = {}
    errors: dict[str, DistributeError] = {}
    for name, future in futures.items():
        try:
            results[name] = future.result()
        except DistributeError as error:
            errors[name] = error
    return results, errors


@contextlib.contextmanager
def _patient(client: APIClient) -> Iterator[None]:
    """Let the engine be silent for QUIET_S: docker's calls to save and load take no time-out of their own."""
    usual, client.timeout = client.timeout, QUIET_S
    try:
        yield
    finally:
        client.timeout = usual


def prune(spool: Path) -> None:
    """Remove all but the newest SPOOL_BYTES from a spool folder (the newest archive stays in any case).

    Archives that a transfer of this or another process uses stay, too.
    """
    archives: list[tuple[Path, os.stat_result]] = []
    for path in spool.glob("*.tar"):
        with contextlib.suppress(FileNotFoundError):  # another process removes them, too
            archives.append((path, path.stat()))
    left = SPOOL_BYTES
    for index, (path, state) in enumerate(sorted(archives, key=lambda each: each[1].st_mtime, reverse=True)):
        left -= state.st_size
        if left < 0 and index > 0:
            _remove_unused(path)
    for path in spool.glob(f"{SAVING}*"):  # of a process that was killed
        _remove_unused(path)


def _remove_unused(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError, BlockingIOError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


class _Job:
    """The transfer of one image: saved once, loaded many times."""

    def __init__(self, tag: str, image: ImageIdentity, spool: Path, progress: Progress) -> None:
        self.cancelled = threading.Event()
        self._tag = tag
        self._image = image
        name = image.id.removeprefix("sha256:")
        if not FILE_NAME.fullmatch(name):  # an engine's word: as a path it would lead to any file of the head node
            raise DistributeError(f"the source engine names image {tag} {image.id!r:.100}, which is no id of an image")
        self._file = (
            spool / f"{name}-{hashlib.sha256(tag.encode()).hexdigest()[:TAG_DIGITS]}.tar"
        )  # it holds this name alone
        self._progress = progress

    def already_there(self, client: APIClient) -> bool:
        """Whether the target has exactly this image."""
        try:
            there = identity(client, self._tag)
        except LOST as error:
            raise ImageLoadError(f"the engine does not answer: {error or type(error).__name__}") from error
        return there is not None and there.same(self._image)

    @contextlib.contextmanager
    def saved(self, client: APIClient) -> Iterator[None]:
        """Write the spool file atomically unless it exists; no process removes it inside this context."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        held = self._held()
        if held is not None:
            self._progress(f"{self._tag} was saved before", 1.0)
        while held is None:
            self._save(client)
            held = self._held()
        with held:
            os.utime(self._file)
            yield

    def _held(self) -> IO[bytes] | None:
        """The spool file under a lock that keeps other processes from removing it; None if there is no file."""
        try:
            held = self._file.open("rb")
        except FileNotFoundError:
            return None
        fcntl.flock(held, fcntl.LOCK_SH)
        if self._file.exists():
            return held
        held.close()  # it was removed before the lock was acquired
        return None

    def _save(self, client: APIClient) -> None:
        with tempfile.NamedTemporaryFile(dir=self._file.parent, prefix=SAVING, delete=False) as temporary:
            fcntl.flock(temporary, fcntl.LOCK_EX)
            try:
                written = 0
                with _patient(client):
                    for chunk in client.get_image(self._tag, chunk_size=CHUNK):
                        written += temporary.write(chunk)
                        if written > SPOOL_BYTES:
                            raise DistributeError(f"the archive of {self._tag} has more than {SPOOL_BYTES} bytes")
                        fraction = min(1.0, written / self._image.size) if self._image.size else None
                        self._progress(f"saving {self._tag}", fraction)
                temporary.flush()
                Path(temporary.name).replace(self._file)
            except BaseException:
                Path(temporary.name).unlink(missing_ok=True)
                raise

    def load(self, name: str, client: APIClient) -> None:
        """Load the spool file into one engine and check the image that it has then."""
        what = f"loading {self._tag} into {name}"
        try:
            with self._file.open("rb") as stream:
                size = self._file.stat().st_size
                upload = Upload(stream, size, self._progress, what, self.cancelled)
                with _patient(client):
                    for event in cast(Iterator[dict[str, Any]], client.load_image(upload)):  # type: ignore[no-untyped-call]
                        if "error" in event:
                            raise ImageLoadError(f"{what} from {self._file}: {event['error']}")
            there = identity(client, self._tag)
        except LOST as error:
            raise ImageLoadError(f"{what}: {type(error).__name__}: {error}") from error
        if there is None or not there.same(self._image):
            found = "nothing" if there is None else there.id
            raise ImageLoadError(f"{what}: expected {self._image.id}, the engine has {found}")
        self._progress(what, 1.0)
