"""Brings an image to the hosts that need it: build or pull it once, save it once, load it everywhere at once.

The clients are the caller's and may speak to remote engines. A progress callback gets a message and, where the whole is
known, the fraction done (0 to 1); `transfer` calls it from several threads.
"""

import contextlib
import json
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, cast

import requests
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound

from container.image import ImageSpec, ImageSpecError

Progress = Callable[[str, float | None], None]
T = TypeVar("T")

CHUNK = 1 << 20
LOG_LINES = 30

# An engine says nothing while it prepares a save or unpacks a load of many gigabytes; longer than this, it is dead.
QUIET_S = 900


class DistributeError(Exception):
    """An image could not be brought where it is needed."""


class ImageBuildError(DistributeError):
    """A build failed; `log` holds the last lines of what it said."""

    def __init__(self, tag: str, reason: str, log: list[str]) -> None:
        super().__init__("\n".join([f"building {tag} failed: {reason}", *(f"  | {line}" for line in log)]))
        self.tag = tag
        self.reason = reason
        self.log = log


class ImagePullError(DistributeError):
    """A registry did not give the image."""


class ImageLoadError(DistributeError):
    """A target did not take the image, or took something else."""


class Cancelled(DistributeError):  # noqa: N818
    """The transfer was interrupted before this target had the image."""


def find(client: APIClient, tag: str) -> str | None:
    """The id of the image that the engine has under this tag; None if it has none. Raises DockerException."""
    try:
        return str(_inspect(client, tag)["Id"])
    except NotFound:
        return None


def build(client: APIClient, spec: ImageSpec, progress: Progress) -> str:
    """Builds the image and returns its id. Raises ImageBuildError or DockerException."""
    with tempfile.TemporaryFile() as context:
        progress(f"packing {spec.context_size / 1e6:.0f} MB for {spec.tag}", None)
        try:
            spec.write_context(context)
        except (ImageSpecError, OSError) as error:
            raise ImageBuildError(spec.tag, str(error), []) from error
        size = context.tell()
        context.seek(0)
        upload = _Upload(context, size, progress, f"sending the build context of {spec.tag}")
        stream = client.build(
            fileobj=cast(IO[bytes], upload),  # requests sends whatever iterates
            custom_context=True,
            tag=spec.tag,
            labels=spec.labels,
            rm=True,
            forcerm=True,
            decode=True,
            timeout=QUIET_S,
        )
        _follow_build(stream, spec.tag, progress)
    image = find(client, spec.tag)
    if image is None:
        raise ImageBuildError(spec.tag, "the engine reported success but has no such image", [])
    return image


def _follow_build(stream: Iterator[dict[str, Any]], tag: str, progress: Progress) -> None:
    log: deque[str] = deque(maxlen=LOG_LINES)
    for event in stream:
        if "error" in event:
            raise ImageBuildError(tag, str(event["error"]).strip(), list(log))
        for line in str(event.get("stream", "")).splitlines():
            if line.strip():
                log.append(line)
                progress(line, _step_fraction(line))


def _step_fraction(line: str) -> float | None:
    """From the builder's own "Step 3/7 : RUN ..."."""
    words = line.split()
    if len(words) < 2 or words[0] != "Step":
        return None
    step, _, steps = words[1].partition("/")
    return (int(step) - 1) / int(steps) if step.isdigit() and steps.isdigit() and int(steps) else None


def pull(client: APIClient, ref: str, progress: Progress) -> str:
    """Pulls an image by its reference and returns its id. Raises ImagePullError or DockerException."""
    layers: dict[str, tuple[int, int]] = {}
    try:
        for event in client.pull(ref, stream=True, decode=True):
            if "error" in event:
                raise ImagePullError(f"pulling {ref}: {event['error']}")
            detail = event.get("progressDetail") or {}
            if event.get("status") == "Downloading" and detail.get("total"):
                layers[event["id"]] = (detail["current"], detail["total"])
            done, total = (sum(numbers) for numbers in zip(*layers.values(), strict=True)) if layers else (0, 0)
            progress(f"pulling {ref}: {event.get('status', '')}", done / total if total else None)
    except APIError as error:
        raise ImagePullError(f"pulling {ref}: {error.explanation or error}") from error
    image = find(client, ref)
    if image is None:
        raise ImagePullError(f"pulling {ref}: the engine reported success but has no such image")
    return image


def transfer(
    source_client: APIClient,
    targets: Mapping[str, APIClient],
    tag: str,
    spool: Path,
    progress: Progress,
    concurrency: int,
) -> dict[str, DistributeError]:
    """Copies an image from one engine to the targets that lack it, at most `concurrency` of them at a time.

    The image is saved once into the folder `spool`, under its id, and used again by a later transfer. An interruption
    ends all of them before it is raised.

    Returns why a target has not got it, by name; the others have this very image, verified.
    Raises DistributeError where the source has no such image, DockerException where it does not answer.
    """
    if concurrency < 1:
        raise ValueError(f"concurrency {concurrency}: at least 1")
    image = _identity(source_client, tag)
    if image is None:
        raise DistributeError(f"the source engine has no image {tag}")
    job = _Job(tag, image, spool, progress)
    pool = ThreadPoolExecutor(min(concurrency, max(1, len(targets))), thread_name_prefix="image")
    try:
        there, failed = _collect({name: pool.submit(job.already_there, client) for name, client in targets.items()})
        lacking = [name for name, present in there.items() if not present]
        if lacking:
            job.save(source_client)
            failed |= _collect({name: pool.submit(job.load, name, targets[name]) for name in lacking})[1]
        return failed
    except BaseException:
        job.cancelled.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _collect(futures: Mapping[str, Future[T]]) -> tuple[dict[str, T], dict[str, DistributeError]]:
    """Results and errors by target, once all are there."""
    results: dict[str, T] = {}
    errors: dict[str, DistributeError] = {}
    for name, future in futures.items():
        try:
            results[name] = future.result()
        except DistributeError as error:
            errors[name] = error
    return results, errors


@dataclass(frozen=True, slots=True)
class _Identity:
    """An image as every engine can compare it: its id, and its layers for engines that count ids another way."""

    id: str
    layers: tuple[str, ...]
    labels: tuple[tuple[str, str], ...]
    size: int

    def same(self, other: "_Identity") -> bool:
        return self.id == other.id or (self.layers, self.labels) == (other.layers, other.labels)


def _identity(client: APIClient, tag: str) -> _Identity | None:
    try:
        image = _inspect(client, tag)
    except NotFound:
        return None
    labels = (image.get("Config") or {}).get("Labels") or {}
    layers = tuple((image.get("RootFS") or {}).get("Layers") or ())
    return _Identity(str(image["Id"]), layers, tuple(sorted(labels.items())), int(image.get("Size", 0)))


def _inspect(client: APIClient, tag: str) -> dict[str, Any]:
    return cast(dict[str, Any], client.inspect_image(tag))  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _patient(client: APIClient) -> Iterator[None]:
    """Lets the engine be silent for QUIET_S: docker's calls to save and load take no timeout of their own."""
    usual, client.timeout = client.timeout, QUIET_S
    try:
        yield
    finally:
        client.timeout = usual


class _Job:
    """One image on its way: saved once, loaded many times."""

    def __init__(self, tag: str, image: _Identity, spool: Path, progress: Progress) -> None:
        self.cancelled = threading.Event()
        self._tag = tag
        self._image = image
        self._file = spool / f"{image.id.removeprefix('sha256:')}.tar"
        self._progress = progress

    def already_there(self, client: APIClient) -> bool:
        """Whether the target has this very image. Raises ImageLoadError where it does not answer."""
        try:
            there = _identity(client, self._tag)
        except (DockerException, requests.RequestException) as error:
            raise ImageLoadError(f"the engine does not answer: {error}") from error
        return there is not None and there.same(self._image)

    def save(self, client: APIClient) -> None:
        """Writes the spool file, whole or not at all, unless it is there."""
        if self._file.is_file():
            self._progress(f"{self._tag} was saved before", 1.0)
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._file.parent, prefix=".saving-", delete=False) as temporary:
            try:
                written = 0
                with _patient(client):
                    for chunk in client.get_image(self._tag, chunk_size=CHUNK):
                        written += temporary.write(chunk)
                        fraction = min(1.0, written / self._image.size) if self._image.size else None
                        self._progress(f"saving {self._tag}", fraction)
                temporary.flush()
                Path(temporary.name).replace(self._file)
            except BaseException:
                Path(temporary.name).unlink(missing_ok=True)
                raise

    def load(self, name: str, client: APIClient) -> None:
        """Loads the spool file into one engine and looks at what it has then. Raises ImageLoadError, Cancelled."""
        what = f"loading {self._tag} into {name}"
        try:
            with self._file.open("rb") as stream:
                size = self._file.stat().st_size
                upload = _Upload(stream, size, self._progress, what, self.cancelled)
                with _patient(client):
                    for event in cast(Iterator[dict[str, Any]], client.load_image(upload)):  # type: ignore[no-untyped-call]
                        if "error" in event:
                            raise ImageLoadError(f"{what} from {self._file}: {event['error']}")
            there = _identity(client, self._tag)
        except (DockerException, requests.RequestException, OSError, json.JSONDecodeError) as error:
            raise ImageLoadError(f"{what}: {error}") from error
        if there is None or not there.same(self._image):
            found = "nothing" if there is None else there.id
            raise ImageLoadError(f"{what}: expected {self._image.id}, the engine has {found}")
        self._progress(what, 1.0)


class _Upload:
    """A file's bytes for an HTTP request, in chunks, with progress; raises Cancelled in the middle when told to."""

    def __init__(
        self,
        stream: IO[bytes],
        size: int,
        progress: Progress,
        message: str,
        cancelled: threading.Event | None = None,
    ) -> None:
        self._stream = stream
        self._size = size
        self._progress = progress
        self._message = message
        self._cancelled = cancelled

    def __iter__(self) -> Iterator[bytes]:
        sent = 0
        while chunk := self._stream.read(CHUNK):
            if self._cancelled is not None and self._cancelled.is_set():
                raise Cancelled(f"{self._message}: interrupted")
            yield chunk
            sent += len(chunk)
            self._progress(self._message, sent / self._size)
