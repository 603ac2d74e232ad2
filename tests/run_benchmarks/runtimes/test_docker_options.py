"""What a container is created with, as far as no engine is needed to say it."""

from __future__ import annotations

from collections.abc import Iterator

import docker
import pytest

from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import _host_config
from run_benchmarks.session.preparation import prepare
from run_benchmarks.settings.container_options import ContainerOptions
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
