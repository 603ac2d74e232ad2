"""Sees to it that every host has the images of its cases: found, pulled, or built once and distributed."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import docker
import docker.errors
import requests

from container.distribute import transfer
from container.engine_images import (
    DistributeError,
    ImageIdentity,
    ImageState,
    build,
    identity,
    image_state,
    outdated,
    pull,
)
from container.image import LABEL_BASE, ImageSpec, ImageSpecError
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import Plan
from run_benchmarks.plan.resolve import Resolved
from run_benchmarks.results.records import ImageRecord
from run_benchmarks.state.interruption import Interruption

ValueT = TypeVar("ValueT")
SAY_EVERY_SECONDS = 5.0
TRANSFER_SECONDS = 1800  # a build step or an engine that unpacks may be silent for long
MAX_TRANSFERS = 8
BROKEN = (docker.errors.DockerException, requests.RequestException, DistributeError, ImageSpecError, OSError)


def spool_folder() -> Path:
    """Where image archives wait on the head node between two hosts (XDG cache folder)."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "clusterdyno" / "images"


def provide_images(
    plan: Plan,
    resolved: Resolved,
    hosts: Mapping[str, Host],
    reports: Mapping[str, HostReport],
    interruption: Interruption,
    settled: Mapping[str, ImageIdentity],
) -> dict[str, ImageIdentity]:
    """Bring every image of the plan to every host that needs it and lacks it; the reports then have each host's id.

    Args:
        settled: images that this run has provided before, by tag. They are not built anew, whatever bases the hosts
            that are left have: all rounds of a run use one image.

    Returns:
        the images by tag.

    Raises:
        TaskError: an image cannot be built or pulled, a host did not get it, or hosts have different ones of a name
            that is not ours to change.
        InterruptedRunError: a signal came; a build or transfer under way is broken off.
    """
    specs = {case.image.tag: case.image for case in resolved.cases if case.image is not None}
    needed: dict[str, list[str]] = {}
    for case in plan.cases:
        image = case.rounds[0].nodes[0].image
        if image is not None:
            names = needed.setdefault(image, [])
            names += [host for host in case.hosts if host not in names]
    images: dict[str, ImageIdentity] = {}
    for tag, names in needed.items():
        chosen, spec = {name: hosts[name] for name in names}, specs.get(tag)
        states = _each(chosen, functools.partial(image_state, tag=tag, spec=spec))
        builder, there = _usable(tag, spec, states, settled.get(tag))
        there |= _provide(tag, spec, chosen, there, builder or names[0], interruption)
        for name, image_there in there.items():
            assert image_there is not None
            reports[name].images[tag] = image_there.id
            images.setdefault(tag, image_there)
    return images


def image_records(
    resolved: Resolved, images: Mapping[str, ImageIdentity], reports: Mapping[str, HostReport]
) -> list[ImageRecord]:
    """What the images of a run were made of, and the id that each host has them under."""
    specs = {case.image.tag: case.image for case in resolved.cases if case.image is not None}
    records = []
    for tag, image in images.items():
        spec = specs.get(tag)
        ids = {name: report.images.get(tag) for name, report in reports.items()}
        records.append(
            ImageRecord(
                tag=tag,
                ids={name: image_id for name, image_id in ids.items() if image_id is not None},
                recipe=None if spec is None else spec.content_hash,
                base_image=None if spec is None else spec.base_image,
                base_id=image.label(LABEL_BASE),
                files={} if spec is None else {file.name: file.sha256 for file in spec.files},
            )
        )
    return records


def _each(hosts: Mapping[str, Host], ask: Callable[[docker.APIClient], ValueT]) -> dict[str, ValueT]:
    """The answers of all hosts' engines.

    Raises:
        TaskError: an engine does not answer.
    """
    return for_each(hosts, lambda host: _guard(host.name, lambda: ask(host.docker()))).raise_first()


def _usable(
    tag: str, spec: ImageSpec | None, states: Mapping[str, ImageState], settled: ImageIdentity | None
) -> tuple[str | None, dict[str, ImageIdentity | None]]:
    """The host to build on, None for any; and by host the image it may use: one and the same on all, or None.

    Raises:
        TaskError: hosts have different images under a name that the user gave.
    """
    there = {name: state.image for name, state in states.items()}
    builder = None
    if spec is not None and settled is None:
        builder, wrong = outdated(states, spec)
        for name, why in wrong.items():
            LOG.warning("%s: image %s: %s; it is replaced", name, tag, why)
            there[name] = None
    source, expected = next(((name, image) for name, image in there.items() if image), ("", None))
    if settled is not None:
        source, expected = "the hosts of earlier rounds", settled
    for name, image in there.items():
        if image is None or expected is None or image.same(expected):
            continue
        differs = f"image {tag} is {image.id} there and {expected.id} on {source}"
        if spec is None:
            raise TaskError(name, f"{differs}: remove the wrong one, or give IMAGE by its digest")
        LOG.warning("%s: %s; it is replaced", name, differs)
        there[name] = None
    return builder, there


def _provide(
    tag: str,
    spec: ImageSpec | None,
    hosts: Mapping[str, Host],
    there: Mapping[str, ImageIdentity | None],
    builder: str,
    interruption: Interruption,
) -> dict[str, ImageIdentity]:
    """Bring the image to those that lack it, and say what they have then."""
    brought = {name: hosts[name] for name, image in there.items() if image is None}
    if not brought:
        return {}
    source = next((name for name, image in there.items() if image is not None), None)
    lacking = list(brought)
    with contextlib.ExitStack() as stack:
        clients = {name: host.open_docker(TRANSFER_SECONDS, interruption.check) for name, host in hosts.items()}
        for client in clients.values():
            stack.callback(client.close)
        if source is None:
            source = builder
            LOG.info("Image %s is on no host: %s on %s", tag, "building it" if spec else "pulling it", source)
            _make(clients[source], tag, spec, source, Sayer(f"{source}: image {tag}", interruption))
            lacking.remove(source)
        if lacking:
            _distribute(tag, source, clients, lacking, Sayer(f"image {tag}", interruption))
    found = _each(brought, lambda client: identity(client, tag))
    for name, image in found.items():
        if image is None:
            raise TaskError(name, f"image {tag} is gone again")
    return {name: image for name, image in found.items() if image is not None}


def _make(client: docker.APIClient, tag: str, spec: ImageSpec | None, host: str, say: Sayer) -> str:
    return _guard(host, lambda: build(client, spec, say) if spec is not None else pull(client, tag, say))


def _distribute(tag: str, source: str, clients: dict[str, docker.APIClient], lacking: list[str], say: Sayer) -> None:
    LOG.info("Bringing image %s from %s to %s", tag, source, ", ".join(lacking))
    targets = {name: clients[name] for name in lacking}
    failed = _guard(source, lambda: transfer(clients[source], targets, tag, spool_folder(), say, MAX_TRANSFERS))
    for name, error in failed.items():
        raise TaskError(name, f"image {tag} did not arrive: {error}")


def _guard(host: str, action: Callable[[], ValueT]) -> ValueT:
    try:
        return action()
    except BROKEN as error:
        raise TaskError(host, f"image: {error}") from error


class Sayer:
    """A progress callback that logs every few seconds and breaks off on a signal; called from several threads."""

    def __init__(self, what: str, interruption: Interruption) -> None:
        self._what = what
        self._interruption = interruption
        self._lock = threading.Lock()
        self._said = time.monotonic()
        self._last: dict[int, str] = {}  # by thread

    def __call__(self, message: str, fraction: float | None) -> None:
        self._interruption.check()
        if self._last.get(threading.get_ident()) != message:  # that of a transfer comes with every chunk
            self._last[threading.get_ident()] = message
            LOG.debug("%s: %s", self._what, message)
        with self._lock:
            if time.monotonic() - self._said < SAY_EVERY_SECONDS:
                return
            self._said = time.monotonic()
        share = "" if fraction is None else f" {fraction:.0%}"
        LOG.info("%s%s: %s", self._what, share, message)
