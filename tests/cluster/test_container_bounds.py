"""What a container may take of its host and of the head node: processes, and output that is kept. On a real engine."""

from pathlib import Path

import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.plan.plan import NodePlan
from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import DockerRuntime
from run_benchmarks.session.preparation import connected, prepare
from run_benchmarks.settings.settings import load_settings
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
FLOOD = "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo end"
FORKS = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 5 & done; wait; echo all ran"
PIDS = 8


def output_of(host: Host, node: NodePlan, script: str, *, keep: int = 1 << 20) -> str:
    """What a container that runs this script leaves."""
    task = node.workload.model_copy(update={"argv": ("sh", "-c", script), "environment": {}})
    plan = node.model_copy(update={"mounts": (), "workdir": "/"})
    container = DockerRuntime(pytest.fail, keep).create(host, plan, task, Bound(master_port=4711))
    container.start()
    try:
        assert container.wait(60) is not None
    finally:
        output = container.finish(1.0)
    return output


def test_output_and_processes_are_bounded(tmp_path: Path, testbed: TestBed) -> None:
    controller = Controller(tmp_path, testbed)
    own = {"IMAGE": images.BASE_IMAGE, "BASE_IMAGE": None, "WHEELHOUSE": None, "PIDS_LIMIT": PIDS}
    controller.configure_test({"ONE": {"nnodes": 1}}, **own)
    loaded = load_settings(controller.cluster_conf, controller.test_conf)
    node = prepare(loaded, "run20261121191924").plan.cases[0].rounds[0].nodes[0]
    with connected(loaded.cluster) as hosts:
        host = hosts[node.host]
        host.connect()
        whole = output_of(host, node, FLOOD, keep=8 << 20)
        assert len(whole) == 3_000_000 + len("begin\n\nend\n")
        kept = output_of(host, node, FLOOD, keep=1 << 20)
        assert kept.startswith("begin\nxxx") and "end" in kept[-8:] and len(kept) < (1 << 20) + 100
        assert f"[... {len(whole) - (1 << 20)} bytes are left out here ...]" in kept
        forks = output_of(host, node, FORKS)
        assert "all ran" not in forks and "fork" in forks.lower()
        more = node.options.model_copy(update={"pids_limit": 100})
        assert "all ran" in output_of(host, node.model_copy(update={"options": more}), FORKS)
