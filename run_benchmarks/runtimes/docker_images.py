"""Ensures that every host has the images of its cases: found, pulled, or built once and distributed."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import docker
import docker.errors
import requests

from container import engine_images
from container.distribute import transfer
from container.image import ImageIdentity, ImageSpec, ImageSpecError
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import ConnectError, LinkLostError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.outages import OutOfReachError, Patience, across_outages, is_up
from run_benchmarks.plan.cache import cache_folder
from run_benchmarks.plan.plan import Plan

ValueT = TypeVar("ValueT")
SAY_EVERY_SECONDS = 5.0
TRANSFER_SECONDS = 1800  # a build step or an engine that unpacks may be silent for long
MAX_TRANSFERS = 8
ASK_SECONDS = 20.0  # a silent engine may be at work; whether its host is there is asked so often
BROKEN = (
    docker.errors.DockerException,
    requests.RequestException,
    engine_images.DistributeError,
    ImageSpecError,
    OSError,
    *engine_images.UNREADABLE,
    EOFError,  # of paramiko, where the link ends while a channel is opened
)


def spool_folder() -> Path:
    """The folder on the head node for image archives between two hosts (in the cache folder)."""
    return cache_folder() / "images"


def provide_images(
    plan: Plan,
    specs: Mapping[str, ImageSpec],
    hosts: Mapping[str, Host],
    settled: Mapping[str, ImageIdentity],
    patience: Patience,
) -> dict[str, dict[str, ImageIdentity]]:
    """Bring each case's image to its hosts, built if need be; an exception from `patience.check` aborts that."""
    needed: dict[str, list[str]] = {}
    for case in plan.cases:
        image = case.rounds[0].nodes[0].image
        if image is not None:
            names = needed.setdefault(image, [])
            names += [host for host in case.hosts if host not in names]
    images: dict[str, dict[str, ImageIdentity]] = {}
    for tag, names in needed.items():
        chosen, spec = {name: hosts[name] for name in names}, specs.get(tag)
        states = _each(chosen, functools.partial(engine_images.image_state, tag=tag, spec=spec), tag, patience)
        builder, there = _usable(tag, spec, states, settled.get(tag))
        there |= _provide(tag, spec, chosen, there, builder or names[0], patience)
        images[tag] = {name: image for name, image in there.items() if image is not None}
    return images


def _each(
    hosts: Mapping[str, Host], ask: Callable[[docker.APIClient], ValueT], tag: str, patience: Patience
) -> dict[str, ValueT]:
    """The answers of the engines of all hosts."""
    return for_each(hosts, lambda host: _guard(host, tag, patience, lambda: ask(host.docker()))).raise_first()


def _usable(
    tag: str, spec: ImageSpec | None, states: Mapping[str, engine_images.ImageState], settled: ImageIdentity | None
) -> tuple[str | None, dict[str, ImageIdentity | None]]:
    """The host to build on, None for any; and by host the image it may use: the same on all, or None."""
    there = {name: state.image for name, state in states.items()}
    builder = None
    if spec is not None and settled is None:
        builder, wrong = engine_images.outdated(states, spec)
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
    patience: Patience,
) -> dict[str, ImageIdentity]:
    """Bring the image to the hosts that lack it; returns the image of each host."""
    brought = {name: hosts[name] for name, image in there.items() if image is None}
    if not brought:
        return {}
    source = next((name for name, image in there.items() if image is not None), None)
    with contextlib.ExitStack() as stack:

        def opened(host: Host) -> docker.APIClient:
            check = _WhileThere(host, patience)
            return _guard(host, tag, patience, lambda: host.open_docker(TRANSFER_SECONDS, check))

        made = for_each(brought if source is None else {source: hosts[source], **brought}, opened)
        for client in made.succeeded.values():
            stack.callback(client.close)
        clients = made.raise_first()
        lacking = list(brought)
        if source is None:
            source = builder
            LOG.info("Image %s is on no host: %s on %s", tag, "building it" if spec else "pulling it", source)
            say = Sayer(f"{source}: image {tag}", patience.check)
            _guard(hosts[source], tag, patience, lambda: _make(clients[builder], tag, spec, say))
            lacking.remove(source)
        if lacking:
            _distribute(tag, hosts[source], [hosts[name] for name in lacking], clients, patience)
    provided: dict[str, ImageIdentity] = {}
    for name, image in _each(brought, lambda client: engine_images.identity(client, tag), tag, patience).items():
        if image is None:
            raise TaskError(name, f"image {tag} disappeared")
        provided[name] = image
    return provided


def _make(client: docker.APIClient, tag: str, spec: ImageSpec | None, say: Sayer) -> str:
    return engine_images.build(client, spec, say) if spec is not None else engine_images.pull(client, tag, say)


def _distribute(
    tag: str, source: Host, targets: Collection[Host], clients: Mapping[str, docker.APIClient], patience: Patience
) -> None:
    """Copy the image from one host to others; again to each whose link broke meanwhile."""
    LOG.info("Bringing image %s from %s to %s", tag, source.name, ", ".join(target.name for target in targets))
    say = Sayer(f"image {tag}", patience.check)

    def copied(names: Collection[str]) -> Mapping[str, engine_images.DistributeError | None]:
        """By name why a host lacks it; None if the lost link of another one ended its transfer."""
        chosen = {name: clients[name] for name in names}
        try:
            return transfer(clients[source.name], chosen, tag, spool_folder(), say, MAX_TRANSFERS)
        except LinkLostError as error:
            if isinstance(error, OutOfReachError) or error.host not in names:
                raise
            return {name: engine_images.DistributeError(str(error)) if name == error.host else None for name in names}

    def bring(*names: str) -> Mapping[str, engine_images.DistributeError | None]:
        return _guard(source, tag, patience, lambda: copied(names))

    failed = bring(*(target.name for target in targets))

    def again(target: Host) -> None:
        first = failed[target.name]
        known = [] if first is None else [first]

        def arrive() -> None:
            error = known.pop() if known else bring(target.name).get(target.name)
            if error is not None:
                raise error

        _guard(target, tag, patience, arrive)

    lacking = {target.name: target for target in targets if target.name in failed}
    for_each(lacking, again, concurrency=MAX_TRANSFERS).raise_first()


def _guard(host: Host, tag: str, patience: Patience, action: Callable[[], ValueT]) -> ValueT:
    """Run an action of one host's engine, again after each outage of the host's link."""

    def guarded() -> ValueT:
        try:
            return action()
        except OutOfReachError:
            raise
        except (*BROKEN, LinkLostError, ConnectError) as error:
            kind = TaskError if is_up(host) else LinkLostError
            raise kind(host.name, f"image {tag}: {error}") from error

    return across_outages(host, guarded, patience)


class _WhileThere:
    """The `check` of a client of a host's engine: ends a call once the run has to end, or the host is out of reach."""

    def __init__(self, host: Host, patience: Patience) -> None:
        self._host, self._patience = host, patience
        self._heard = self._asked = patience.now()

    def __call__(self) -> None:
        self._patience.check()
        if self._patience.now() < self._asked + ASK_SECONDS:
            return
        if is_up(self._host):
            self._heard = self._patience.now()
        self._asked = self._patience.now()
        silence = self._asked - self._heard
        if silence > max(self._patience.limit, ASK_SECONDS):
            raise OutOfReachError(self._host.name, f"out of reach for {silence:.0f} s while its engine was asked")


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
