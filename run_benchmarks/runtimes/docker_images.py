"""Ensures that every host has the images of its cases: found, pulled, or built once and distributed."""

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
    UNREADABLE,
    DistributeError,
    ImageIdentity,
    ImageState,
    build,
    identity,
    image_state,
    outdated,
    pull,
)
from container.image import ImageSpec, ImageSpecError
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.plan.plan import Plan

ValueT = TypeVar("ValueT")
SAY_EVERY_SECONDS = 5.0
TRANSFER_SECONDS = 1800  # a build step or an engine that unpacks may be silent for long
MAX_TRANSFERS = 8
BROKEN = (
    docker.errors.DockerException,
    requests.RequestException,
    DistributeError,
    ImageSpecError,
    OSError,
    *UNREADABLE,
)


def spool_folder() -> Path:
    """The folder on the head node for image archives between two hosts (XDG cache folder)."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "clusterdyno" / "images"


def provide_images(
    plan: Plan,
    specs: Mapping[str, ImageSpec],
    hosts: Mapping[str, Host],
    settled: Mapping[str, ImageIdentity],
    check: Callable[[], None],
) -> dict[str, dict[str, ImageIdentity]]:
    """See Runtime.provide_images; an exception from `check` aborts a build or transfer."""
    needed: dict[str, list[str]] = {}
    for case in plan.cases:
        image = case.rounds[0].nodes[0].image
        if image is not None:
            names = needed.setdefault(image, [])
            names += [host for host in case.hosts if host not in names]
    images: dict[str, dict[str, ImageIdentity]] = {}
    for tag, names in needed.items():
        chosen, spec = {name: hosts[name] for name in names}, specs.get(tag)
        states = _each(chosen, functools.partial(image_state, tag=tag, spec=spec))
        builder, there = _usable(tag, spec, states, settled.get(tag))
        there |= _provide(tag, spec, chosen, there, builder or names[0], check)
        images[tag] = {name: image for name, image in there.items() if image is not None}
    return images


def _each(hosts: Mapping[str, Host], ask: Callable[[docker.APIClient], ValueT]) -> dict[str, ValueT]:
    """The answers of the engines of all hosts.

    Raises:
        TaskError: an engine does not answer.
    """
    return for_each(hosts, lambda host: _guard(host.name, lambda: ask(host.docker()))).raise_first()


def _usable(
    tag: str, spec: ImageSpec | None, states: Mapping[str, ImageState], settled: ImageIdentity | None
) -> tuple[str | None, dict[str, ImageIdentity | None]]:
    """The host to build on, None for any; and by host the image it may use: the same on all, or None.

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
    check: Callable[[], None],
) -> dict[str, ImageIdentity]:
    """Bring the image to the hosts that lack it; returns the image of each host."""
    brought = {name: hosts[name] for name, image in there.items() if image is None}
    if not brought:
        return {}
    source = next((name for name, image in there.items() if image is not None), None)
    lacking = list(brought)
    with contextlib.ExitStack() as stack:
        clients = {name: host.open_docker(TRANSFER_SECONDS, check) for name, host in hosts.items()}
        for client in clients.values():
            stack.callback(client.close)
        if source is None:
            source = builder
            LOG.info("Image %s is on no host: %s on %s", tag, "building it" if spec else "pulling it", source)
            _make(clients[source], tag, spec, source, Sayer(f"{source}: image {tag}", check))
            lacking.remove(source)
        if lacking:
            _distribute(tag, source, clients, lacking, Sayer(f"image {tag}", check))
    found = _each(brought, lambda client: identity(client, tag))
    for name, image in found.items():
        if image is None:
            raise TaskError(name, f"image {tag} disappeared")
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
    """A progress callback for several threads: logs every few seconds and aborts if `check` fails."""

    def __init__(self, what: str, check: Callable[[], None]) -> None:
        self._what = what
        self._check = check
        self._lock = threading.Lock()
        self._said = time.monotonic()
        self._last: dict[int, str] = {}  # by thread

    def __call__(self, message: str, fraction: float | None) -> None:
        self._check()
        if self._last.get(threading.get_ident()) != message:  # the message of a transfer arrives with every chunk
            self._last[threading.get_ident()] = message
            LOG.debug("%s: %s", self._what, message)
        with self._lock:
            if time.monotonic() - self._said < SAY_EVERY_SECONDS:
                return
            self._said = time.monotonic()
        share = "" if fraction is None else f" {fraction:.0%}"
        LOG.info("%s%s: %s", self._what, share, message)
