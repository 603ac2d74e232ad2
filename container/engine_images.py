"""Finds, builds and pulls images of one engine. An error carries the engine's own message.

The clients belong to the caller and may talk to remote engines. A progress callback receives a message and, if the
total is known, the completed fraction (0 to 1).
"""

import json
import re
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

from docker import APIClient
from docker.errors import APIError, NotFound

from container.image import LABEL_BASE, LABEL_HASH, ImageIdentity, ImageSpec, ImageSpecError

Progress = Callable[[str, float | None], None]

# Exceptions of the SDK, and of ours, for a malformed answer of an engine, or for JSON that is too deep.
UNREADABLE = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
STARTED_WITH = ("Env", "User", "WorkingDir", "Entrypoint", "Cmd")
CHUNK = 1 << 20
LOG_LINES = 30
MAX_LINE = 1 << 16  # characters of a line without an end

# An engine is silent while it prepares a save or unpacks a load of many gigabytes; after this time it counts as dead.
QUIET_S = 900


class DistributeError(Exception):
    """An image could not be transferred to where it is needed."""


class ImageBuildError(DistributeError):
    """A build failed; `log` holds the last lines of its output."""

    def __init__(self, tag: str, reason: str, log: list[str]) -> None:
        super().__init__("\n".join([f"building {tag} failed: {reason}", *(f"  | {line}" for line in log)]))
        self.tag = tag
        self.reason = reason
        self.log = log


class ImagePullError(DistributeError):
    """A registry did not deliver the image."""


class ImageLoadError(DistributeError):
    """A target did not accept the image, or has another image afterwards."""


class Cancelled(DistributeError):  # noqa: N818
    """The transfer was interrupted before this target had the image."""


def find(client: APIClient, tag: str) -> str | None:
    """The id of the image that the engine has under this tag; None if it has none.

    Raises:
        DistributeError: its answer cannot be read.
        DockerException: the engine does not answer.
    """
    try:
        return str(inspect(client, tag)["Id"])
    except NotFound:
        return None
    except UNREADABLE as error:
        raise _unreadable(tag, error) from error


def _unreadable(ref: str, error: Exception) -> DistributeError:
    return DistributeError(f"the engine's description of image {ref} cannot be read: {type(error).__name__}")


def identity(client: APIClient, ref: str) -> ImageIdentity | None:
    """The image that the engine has under this tag, id or digest; None if it has none.

    Raises:
        DistributeError: its answer cannot be read.
        DockerException: the engine does not answer.
    """
    try:
        image = inspect(client, ref)
        config = image.get("Config") or {}
        labels = config.get("Labels") or {}
        started_with = json.dumps([config.get(name) or None for name in STARTED_WITH])
        layers = tuple(str(layer) for layer in (image.get("RootFS") or {}).get("Layers") or ())
        named = tuple(sorted((str(name), str(value)) for name, value in labels.items()))
        return ImageIdentity(str(image["Id"]), layers, named, int(image.get("Size", 0)), started_with)
    except NotFound:
        return None
    except UNREADABLE as error:
        raise _unreadable(ref, error) from error


@dataclass(frozen=True, slots=True)
class ImageState:
    """The image that one engine has under a tag, and the id of the image under the name of its base."""

    image: ImageIdentity | None
    base: str | None = None


def image_state(client: APIClient, tag: str, spec: ImageSpec | None) -> ImageState:
    """The state of one engine; `spec` is given for an image that is built.

    Raises:
        DockerException: the engine does not answer.
    """
    return ImageState(identity(client, tag), None if spec is None else find(client, spec.base_image))


def outdated(states: Mapping[str, ImageState], spec: ImageSpec) -> tuple[str | None, dict[str, str]]:
    """The engine whose base image is valid (the first that has any), and the reason for each engine whose image is not.

    A valid image states in its labels that it was made by this recipe, and on that base.
    """
    source = next((name for name, state in states.items() if state.base is not None), None)
    base = states[source].base if source is not None else None
    wrong = {}
    for name, state in states.items():
        if state.image is None:
            continue
        if state.image.label(LABEL_HASH) != spec.content_hash:
            wrong[name] = f"{state.image.id} bears the tag and was not made by its recipe"
        elif base is not None and state.image.label(LABEL_BASE) != base:
            wrong[name] = f"{state.image.id} was built on another {spec.base_image} than there is now"
    return source, wrong


def build(client: APIClient, spec: ImageSpec, progress: Progress) -> str:
    """Build the image and return its id; its base is pulled if the engine lacks it.

    Raises:
        ImageBuildError: the build fails.
        ImagePullError: the base image cannot be pulled.
        DockerException: the engine does not answer.
    """
    base = find(client, spec.base_image) or pull(client, spec.base_image, progress)
    with tempfile.TemporaryFile() as context:
        progress(f"packing {spec.context_size / 1e6:.0f} MB for {spec.tag}", None)
        try:
            spec.write_context(context)
        except (ImageSpecError, OSError) as error:
            raise ImageBuildError(spec.tag, str(error), []) from error
        size = context.tell()
        context.seek(0)
        upload = Upload(context, size, progress, f"sending the build context of {spec.tag}")
        stream = client.build(
            fileobj=cast(IO[bytes], upload),  # requests sends whatever iterates
            custom_context=True,
            tag=spec.tag,
            labels={**spec.labels, LABEL_BASE: base},
            rm=True,
            forcerm=True,
            decode=True,
            timeout=QUIET_S,
        )
        _follow_build(stream, spec.tag, progress)
    image, on = identity(client, spec.tag), identity(client, base)
    if image is None:
        raise ImageBuildError(spec.tag, "the engine reported success but has no such image", [])
    if on is None or image.layers[: len(on.layers)] != on.layers:
        raise ImageBuildError(spec.tag, f"the name {spec.base_image} came to stand for another image meanwhile", [])
    return image.id


def _follow_build(stream: Iterable[dict[str, Any]], tag: str, progress: Progress) -> None:
    """Forward the builder's log line by line; the output of a command arrives in pieces that end anywhere."""
    log: deque[str] = deque(maxlen=LOG_LINES)
    unended = ""
    for event in stream:
        if "error" in event:
            log.extend([unended] if unended.strip() else [])
            raise ImageBuildError(tag, str(event["error"]).strip(), list(log))
        *lines, unended = re.split(r"[\r\n]", unended + str(event.get("stream", "")))
        unended = unended[-MAX_LINE:]
        for line in lines:
            if line.strip():
                log.append(line)
                progress(line, _step_fraction(line))


def _step_fraction(line: str) -> float | None:
    """The completed fraction (0 to 1) from the builder's own "Step 3/7 : RUN ..."."""
    words = line.split()
    if len(words) < 2 or words[0] != "Step":
        return None
    step, _, steps = words[1].partition("/")
    return (int(step) - 1) / int(steps) if step.isdigit() and steps.isdigit() and int(steps) else None


def pull(client: APIClient, ref: str, progress: Progress) -> str:
    """Pull an image by its reference and return its id.

    Raises:
        ImagePullError: the engine cannot pull the image.
        DockerException: the engine does not answer.
    """
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


def inspect(client: APIClient, tag: str) -> dict[str, Any]:
    """The engine's description of an image.

    Raises:
        docker.errors.NotFound: the engine has no such image.
        DockerException: the engine does not answer.
    """
    return cast(dict[str, Any], client.inspect_image(tag))  # type: ignore[no-untyped-call]


class Upload:
    """A file's bytes for an HTTP request, in chunks, with progress.

    Raises:
        Cancelled: the event is set while the file is read.
    """

    def __init__(
        self, stream: IO[bytes], size: int, progress: Progress, message: str, cancelled: threading.Event | None = None
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
