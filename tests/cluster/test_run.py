"""The whole path on real hosts: run.py over SSH, containers on two Docker engines, four gloo ranks, all collected."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.results.rank_logs import read_rank_log
from tests.cluster import seed
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import LIGHT, LONG

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
SHORT: dict[str, object] = {"overrides": {"sizes": "8..1M x8", "iterations": 5}}


@pytest.fixture
def forgotten(testbed: TestBed) -> Iterator[str]:
    """The tag of the cases' image, which no host has any more."""
    with seed.forgotten(testbed.hosts) as tag:
        yield tag


def test_two_hosts_two_cases_two_rounds(controller: Controller, testbed: TestBed, forgotten: str) -> None:
    controller.configure_test({"ALL_REDUCE": SHORT, "LIGHT": {**LIGHT, "repeat": 2}}, MONITOR_INTERVAL=0.5)
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    builder, other = (host.address for host in testbed.hosts)
    assert f"Image {forgotten} is on no host: building it on {builder}" in answer.output
    assert f"Bringing image {forgotten} from {builder} to {other}" in answer.output
    assert (
        "Step 1: Check" in answer.output and "Step 2: Prepare" in answer.output and "Step 3: Collect" in answer.output
    )
    record = answer.run_record()
    assert record["verdict"] == "pass"
    assert [case["rounds"] for case in record["cases"]] == [["pass"], ["pass", "pass"]]
    assert record["cases"][0]["metrics"]["max_busbw_GBps"] > 0
    assert [host["hostname"] for host in record["hosts"]] == ["node1", "node2"]
    _assert_round_is_whole(answer.folder / "ALL_REDUCE/round1", testbed)  # type: ignore[operator]
    for index in (1, 2):
        assert [node["missing"] for node in answer.round_record("LIGHT", index)["nodes"]] == [[], []]
    assert controller.containers() == []
    for host in testbed.hosts:
        left = host.exec(["find", str(controller.logs), "-type", "f"]).stdout
        assert left == "", f"{host.name}: {left}"
    report = (answer.folder / "report.html").read_text()  # type: ignore[operator]
    assert "ALL_REDUCE" in report and "pass" in report


def _assert_round_is_whole(folder: Path, testbed: TestBed) -> None:
    record = json.loads((folder / "round.json").read_text())
    assert record["world_size"] == 4 and len(record["steps"]) == 6
    assert all(step["correct"] == "pass" for step in record["steps"])
    for node_rank, (host, node) in enumerate(zip(testbed.hosts, record["nodes"], strict=True)):
        directory = folder / f"{host.address}_noderank{node_rank}"
        assert node["missing"] == [] and node["exit_code"] == 0 and node["image_id"].startswith("sha256:")
        for name, file in node["files"].items():
            data = (directory / name).read_bytes()
            assert {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} == file
        for rank in (2 * node_rank, 2 * node_rank + 1):
            log = read_rank_log(directory, rank)
            assert log.problems == () and log.counts.total() > 10
        assert len((directory / "cpu_monitor.log").read_text().splitlines()) > 3
        assert node["monitor"]["complete"] and node["monitor"]["samples"] > 3
        information = json.loads((directory / "sys_info.json").read_text())
        assert information["hostname"] == host.name
        assert node["image_id"] in json.dumps(information)
        assert (directory / "start_pytorch_task.log").read_text().startswith(f"host: {host.address}\n")


def test_process_runtime_over_ssh(controller: Controller) -> None:
    controller.configure_test({"LIGHT": LIGHT}, **PROCESS)
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    assert answer.round_record("LIGHT")["nodes"][1]["image"] is None
    assert rank_process(0) is None


@pytest.mark.nightly
def test_time_limit(controller: Controller) -> None:
    controller.configure_test({"LONG": {**LONG, "time_limit": 12.0}})
    answer = controller.call()
    assert answer.exit_code == 1, answer.output
    record = answer.round_record("LONG")
    assert record["verdict"] == "timeout" and "12 s" in record["reason"]
    assert controller.containers() == []


def test_clean_removes_what_a_killed_controller_left(controller: Controller) -> None:
    controller.configure_test({"LONG": LONG})
    process = controller.start()
    wait_until("work of rank 0", lambda: in_training(0))
    process.kill()
    process.communicate(timeout=200)
    assert len(controller.containers()) == 4
    run = controller.newest_run()
    assert run is not None
    other = "run19990101000000"
    assert controller.call("clean", other).exit_code == 0
    assert len(controller.containers()) == 4, "another run's clean-up touched ours"
    answer = controller.call("clean", run.name)
    assert answer.exit_code == 0, answer.output
    assert controller.containers() == [] and rank_process(0) is None


@pytest.mark.nightly
def test_monitor_ends_by_itself_when_the_workload_is_killed(controller: Controller, testbed: TestBed) -> None:
    """Nothing of a round stays when workload and controller are both gone."""
    controller.configure_test({"LONG": LONG})
    process = controller.start()
    wait_until("work of rank 0", lambda: in_training(0))
    process.kill()
    process.communicate(timeout=200)
    clients = [host.connect_docker() for host in testbed.hosts]
    try:
        for client in clients:
            for container in client.containers.list(
                filters={"label": "org.clusterdyno.task=workload"}, ignore_removed=True
            ):
                container.kill()
        wait_until(
            "the end of the monitors",
            lambda: not any(client.containers.list(ignore_removed=True) for client in clients),
            30,
        )
    finally:
        for client in clients:
            client.close()
        run = controller.newest_run()
        assert run is not None
        controller.call("clean", run.name)
