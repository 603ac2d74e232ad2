"""What the check learns of a Docker engine that answers, and of hosts where none does."""

from dataclasses import dataclass
from typing import Any, cast

import pytest
from docker import APIClient

from run_benchmarks.errors import ConnectError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.runtimes.base import Readiness
from run_benchmarks.runtimes.docker_inspection import CONTAINERD_ROOT, _look_at_images, readiness

GB = 10**9


@dataclass(frozen=True)
class View:
    """A host as the check's script saw it."""

    user: str = "somebody"
    has_docker_client: bool = False
    python: str | None = None
    no_python: str | None = None
    missing_packages: tuple[str, ...] = ()


class Engine:
    """The edge of a Docker engine: where it keeps images, and how large one is."""

    def __init__(self, root: str, store: str = "extfs") -> None:
        self._root, self._store = root, store

    def info(self) -> dict[str, Any]:
        return {"DockerRootDir": self._root, "DriverStatus": [["driver-type", self._store]]}

    def inspect_image(self, tag: str) -> dict[str, Any]:
        return {"Size": 5 * GB}


class Behind(LocalHost):
    """A host whose engine is reached through the docker command there."""

    needs_docker_client = True


class Silent(LocalHost):
    """A host whose engine does not answer."""

    def docker(self) -> APIClient:
        raise ConnectError(self.name, "no Docker engine answers: nobody there")


@pytest.mark.parametrize(("store", "folder"), [("extfs", "/data"), ("io.containerd.snapshotter.v1", CONTAINERD_ROOT)])
def test_the_engine_says_where_an_image_that_has_to_come_goes(store: str, folder: str) -> None:
    engine = cast(APIClient, Engine("/data", store))
    found = Readiness(images={"there": "sha256:1", "to-come": None})
    _look_at_images(found, engine)
    assert (found.image_sizes, found.image_folder) == ({"there": 5 * GB}, folder)
    complete = Readiness(images={"there": "sha256:1"})
    _look_at_images(complete, engine)
    assert complete.image_folder is None


def test_a_host_without_an_engine_cannot_take_part() -> None:
    (missing,) = readiness(Behind("node1"), View(), []).failures
    assert (missing.subject, missing.found) == ("docker", "no docker command")
    (silent,) = readiness(Silent("node1"), View(), []).failures
    assert "nobody there" in silent.found and "let somebody use it" in silent.action
