"""Sees to it that every host has the images of its cases: found, pulled, or built once and distributed."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import docker
import docker.errors
import requests

from container.distribute import transfer
from container.engine_images import BaseState, DistributeError, base_state, build, outdated, pull
from container.image import ImageSpec, ImageSpecError
from run_benchmarks.console import LOG
from run_benchmarks.errors import TaskError
from run_benchmarks.findings import HostReport
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.interruption import Interruption
from run_benchmarks.plan import Plan
from run_benchmarks.resolve import Resolved

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
    settled: Collection[str] = (),
) -> dict[str, str]:
    """Bring every image of the plan to every host that needs it and, by its report, lacks it; the reports then say so.

    Args:
        settled: tags that this run has provided before. They are not built anew, whatever bases the hosts that are
            left have: all rounds of a run use one image.

    Returns:
        image id by tag.

    Raises:
        TaskError: an image cannot be built or pulled, or a host did not get it.
        InterruptedRunError: a signal came; a build or transfer under way is broken off.
    """
    specs = {case.image.tag: case.image for case in resolved.cases if case.image is not None}
    needed: dict[str, list[str]] = {}
    for case in plan.cases:
        image = case.rounds[0].nodes[0].image
        if image is not None:
            names = needed.setdefault(image, [])
            names += [host for host in case.hosts if host not in names]
    ids = {}
    for tag, names in needed.items():
        chosen = {name: hosts[name] for name in names}
        there = {name: reports[name].images.get(tag) for name in names}
        spec = specs.get(tag)
        builder = None if spec is None or tag in settled else _drop_outdated(spec, chosen, there)
        ids[tag] = _provide(tag, spec, chosen, there, builder or names[0], interruption)
        for name in names:
            reports[name].images[tag] = ids[tag]
    return ids


def _drop_outdated(spec: ImageSpec, hosts: dict[str, Host], there: dict[str, str | None]) -> str | None:
    """Count an image as absent that was built on another image than its base's name stands for now.

    Returns the host that has this base; None where nobody has it, so that any image is good.
    """

    def ask(host: Host) -> BaseState:
        return _guard(host.name, lambda: base_state(host.docker(), spec))

    builder, stale = outdated(for_each(hosts, ask).raise_first())
    for name in sorted(stale):
        if there[name] is not None:
            LOG.info("%s: image %s was built on another %s than there is now", name, spec.tag, spec.base_image)
            there[name] = None
    return builder


def _provide(
    tag: str,
    spec: ImageSpec | None,
    hosts: dict[str, Host],
    there: dict[str, str | None],
    builder: str,
    interruption: Interruption,
) -> str:
    lacking = [name for name, image_id in there.items() if image_id is None]
    source = next((name for name, image_id in there.items() if image_id), None)
    image_id = there[source] if source else None
    if not lacking and image_id:
        return image_id
    with contextlib.ExitStack() as stack:
        clients = {name: host.open_docker(TRANSFER_SECONDS, interruption.check) for name, host in hosts.items()}
        for client in clients.values():
            stack.callback(client.close)
        if source is None or image_id is None:
            source = builder
            LOG.info("Image %s is on no host: %s on %s", tag, "building it" if spec else "pulling it", source)
            say = Sayer(f"{source}: image {tag}", interruption)
            image_id = _make(clients[source], tag, spec, source, say)
            lacking.remove(source)
        if lacking:
            _distribute(tag, source, clients, lacking, Sayer(f"image {tag}", interruption))
    return image_id


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
