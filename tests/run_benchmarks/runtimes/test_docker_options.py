"""What a container is created with, as far as no engine is needed to say it."""

import http.server
import json
import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import docker
import pytest

from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import _host_config
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.container_options import ContainerOptions, parse_container_options
from tests.run_benchmarks.conftest import Load


@pytest.fixture
def client() -> Iterator[docker.APIClient]:
    """Of an engine that nobody asks: the version is given."""
    made = docker.APIClient(base_url="tcp://127.0.0.1:1", version="1.43")
    yield made
    made.close()


@pytest.fixture
def node(load: Load) -> NodePlan:
    return prepare(load(), "run20261121191924").plan.cases[0].rounds[0].nodes[0]


class Recording(http.server.BaseHTTPRequestHandler):
    """An engine that keeps what it is asked to create."""

    asked: ClassVar[list[dict[str, Any]]] = []

    def _answer(self, content: bytes) -> None:
        self.send_response(201 if self.command == "POST" else 200)
        self.send_header("API-Version", "1.48")
        self.send_header("OSType", "linux")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_GET(self) -> None:
        self._answer(b"{}")

    do_HEAD = do_GET  # noqa: N815

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._answer(b'{"Id": "1", "Warnings": []}')

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def asked_by_docker() -> Iterator[Callable[[str], dict[str, Any]]]:
    """What Docker's own program asks an engine for with these options."""
    if shutil.which("docker") is None:
        pytest.skip("needs Docker's program")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recording) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()

        version = subprocess.run(["docker", "--version"], check=True, capture_output=True, text=True).stdout
        knows_names = int(version.split()[2].partition(".")[0]) >= 25

        def ask(options: str) -> dict[str, Any]:
            if "com/" in options and not knows_names:
                pytest.skip(f"knows no names of the Container Device Interface: {version}")
            argv = ["docker", "-H", f"tcp://127.0.0.1:{server.server_port}", "create", *shlex.split(options), "image"]
            environment = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER")}
            subprocess.run(argv, check=True, capture_output=True, timeout=200, env=environment)
            found: dict[str, Any] = Recording.asked.pop()["HostConfig"]
            return found

        yield ask
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "written",
    [
        "--gpus all",
        "--gpus 2",
        "--gpus '\"device=1,3\"'",
        "--device nvidia.com/gpu=all",
        "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1:0 --device /dev/null",
        "--gpus all --device amd.com/gpu=all",
        "--device /dev/null --device /dev/zero:/dev/mine:rw",
    ],
)
def test_devices_are_asked_for_as_docker_s_own_program_does(
    written: str,
    client: docker.APIClient,
    node: NodePlan,
    asked_by_docker: Callable[[str], dict[str, Any]],
) -> None:
    config = _host_config(client, node, parse_container_options(written), Bound(master_port=1))
    theirs = asked_by_docker(written)

    def requests(host_config: dict[str, Any]) -> list[dict[str, Any]]:
        """Without the empty values, which are null or a list or an object."""
        listed = host_config.get("DeviceRequests") or []
        return sorted(({key: value for key, value in each.items() if value} for each in listed), key=str)

    assert requests(config) == requests(theirs)
    assert (config.get("Devices") or []) == (theirs["Devices"] or [])


def test_a_pattern_stands_for_the_device_nodes_that_the_host_has(client: docker.APIClient, node: NodePlan) -> None:
    there = ("/dev/abacus0", "/dev/abacus11", "/dev/other")
    options = parse_container_options("--device /dev/abacus[0-9]* --device /dev/abacus_manager")

    def given(host: tuple[str, ...]) -> list[str]:
        config = _host_config(client, node, options, Bound(master_port=1, device_files=host, devices=("/dev/links",)))
        return [each["PathOnHost"] for each in config["Devices"]]

    assert given(there) == ["/dev/abacus0", "/dev/abacus11", "/dev/abacus_manager", "/dev/links"]
    assert given(()) == ["/dev/abacus[0-9]*", "/dev/abacus_manager", "/dev/links"], "which the engine refuses"


def test_a_memory_limit_leaves_no_swap_beside_it(client: docker.APIClient, node: NodePlan) -> None:
    """A container that may swap is slowed where it should be ended: the limit would bound nothing."""
    config = _host_config(client, node, ContainerOptions(memory=1 << 30), Bound(master_port=1))
    assert config["Memory"] == config["MemorySwap"] == 1 << 30
    config = _host_config(client, node, ContainerOptions(), Bound(master_port=1))
    assert config.get("Memory") is None and config.get("MemorySwap") is None


def test_processes_and_the_engine_s_log_are_bounded(client: docker.APIClient, node: NodePlan) -> None:
    config = _host_config(client, node, ContainerOptions(pids_limit=500), Bound(master_port=1))
    assert config["PidsLimit"] == 500
    rotated = {"max-size": "32m", "max-file": "2"}  # what docs/explanation/security.md promises
    assert (config["LogConfig"]["Type"], config["LogConfig"]["Config"]) == ("json-file", rotated)
