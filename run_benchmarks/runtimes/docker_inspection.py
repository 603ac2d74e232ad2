"""Asks a host's Docker engine for what the check, the looks at neighbours and the cleaning need."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from docker import APIClient

from container.engine_images import UNREADABLE, DistributeError, find
from run_benchmarks.errors import ClusterDynoError, ConnectError, LinkLostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.outages import is_up
from run_benchmarks.plan.plan import LABEL, CasePlan
from run_benchmarks.runtimes.base import HostView, Readiness
from run_benchmarks.runtimes.docker_calls import NO_ANSWER, ask, call

MIN_DOCKER = (20, 10)
CONTAINERD_ROOT = "/var/lib/containerd"


def readiness(host: Host, view: HostView, cases: Sequence[CasePlan]) -> Readiness:
    """Whether the engine answers and is new enough, and which images of these cases it has.

    Raises:
        LinkLostError: the host's link broke meanwhile.
    """
    found = Readiness()
    if host.needs_docker_client and not view.has_docker_client:
        action = "install Docker, or set RUNTIME = 'process'"
        found.fail("docker", "no docker command", "Docker 20.10 or newer", action)
        return found
    try:
        client = host.docker()
        found.engine_version = str(client.version()["Version"])
        tags = {case.rounds[0].nodes[0].image for case in cases}
        found.images = {tag: find(client, tag) for tag in sorted(filter(None, tags))}
        _look_at_images(found, client)
    except (ClusterDynoError, DistributeError, *NO_ANSWER, *UNREADABLE) as error:
        if not is_up(host):
            raise LinkLostError(host.name, f"its link broke while its engine was asked: {error}") from error
        cause = error if isinstance(error, LinkLostError | ConnectError) else f"{type(error).__name__}: {error}"
        action = f"start the engine and let {view.user} use it (docker ps must work without sudo)"
        found.fail("docker", f"no answer from the engine ({str(cause)[:200]})", "a running Docker engine", action)
        return found
    numbers = tuple(map(int, re.findall(r"\d{1,9}", found.engine_version)[:2]))
    if numbers < MIN_DOCKER:
        found.fail("docker", f"version {found.engine_version}", "20.10 or newer", "upgrade Docker")
    return found


def _look_at_images(found: Readiness, client: APIClient) -> None:
    """Read the sizes (bytes) of the existing images; if one is missing, the folder where the engine stores images."""
    for tag, image_id in found.images.items():
        if image_id is not None:
            found.image_sizes[tag] = int(client.inspect_image(tag).get("Size") or 0)  # type: ignore[no-untyped-call]
    if all(found.images.values()):
        return
    info = client.info()
    snapshots = any("containerd.snapshotter" in str(word) for pair in info.get("DriverStatus") or () for word in pair)
    found.image_folder = CONTAINERD_ROOT if snapshots else str(info.get("DockerRootDir") or "/var/lib/docker")


def running_of_others(host: Host, key: str) -> tuple[str, ...]:
    """Running containers of other runs of ClusterDyno, of any user. A silent engine is reported elsewhere.

    Raises:
        TaskError: its answer cannot be read.
    """
    try:
        found = ask(host.docker(), "containers/json", filters=json.dumps({"label": [f"{LABEL}.run"]}))
    except (ClusterDynoError, *NO_ANSWER):
        return ()

    def others() -> tuple[str, ...]:
        runs = {_name(each): each["Labels"][f"{LABEL}.run"] for each in found}
        return tuple(f"container {name} of run {run}" for name, run in runs.items() if run != key)

    return call(host, "listing the containers of other runs", others)


def _name(container: Mapping[str, Any]) -> str:
    """Its name; its id where the engine gives none, as for one that it is removing."""
    return str((container.get("Names") or [container["Id"]])[0]).lstrip("/")


def remove_containers(host: Host, key: str) -> list[str]:
    """Remove every container of a run, running or ended; returns their names.

    Raises:
        TaskError, LinkLostError: from `call`.
    """
    client = host.docker()
    label = f"{LABEL}.run={key}"

    def ours() -> dict[str, str]:
        found = client.containers(all=True, filters={"label": label})
        return {str(container["Id"]): _name(container) for container in found}

    names = call(host, "listing containers", ours)
    for container in names:
        call(host, "removing a container", partial(client.remove_container, container, force=True, v=True))
    return list(names.values())
