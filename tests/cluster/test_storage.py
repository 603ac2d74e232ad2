"""Full and read-only disks, an engine that stops, secrets: clear verdicts, whole files, nothing told that is secret."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import LIGHT, LONG, WAITS
from tests.cluster.host import ClusterHost

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
LINES: dict[str, object] = {"overrides": {"sizes": "8..1M x2", "iterations": 20, "check": False}}
# More than 128 KiB of one rank.
MANY_LINES = {"rank": 0, "after": 1, "lines": 10_000}
FREED = "64m"
LOG, FLOOD_LIMIT = "rank{}.out.log", 20 << 20
SECRET = "s3cret-and-nobodys-business"


@contextmanager
def small_disk(host: ClusterHost, folder: Path, options: str) -> Iterator[None]:
    """A file system of its own on a folder of a host."""
    host.exec(["mkdir", "-p", str(folder)])
    host.exec(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)])
    try:
        yield
    finally:
        host.exec(["umount", "-l", str(folder)])


def assert_json_is_whole(answer: Answer) -> None:
    assert answer.folder is not None
    for path in answer.folder.rglob("*.json"):
        json.loads(path.read_text())
    assert "run_benchmarks/session/session.py" not in answer.output, "the controller left a traceback"


@pytest.mark.nightly
def test_a_host_whose_disk_fills_up(controller: Controller, testbed: TestBed) -> None:
    controller.configure_test({"LINES": LINES}, **PROCESS)
    full = testbed.hosts[1]
    with small_disk(full, controller.logs, "size=1200m"):
        process = controller.start()
        wait_until("rank 3", lambda: rank_process(3) is not None)
        full.exec(["mount", "-o", "remount,size=4k", str(controller.logs)], check=False)
        full.exec(["sh", "-c", f"dd if=/dev/zero of={controller.logs}/fill bs=1M count=1300"], check=False)
        answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    record = answer.round_record("LINES")
    assert record["verdict"] == "fail" and full.address in record["reason"], record["reason"]
    assert "No space left" in json.dumps(record), record
    assert "the disk is full: " in record["reason"] and str(controller.logs) in record["reason"], record["reason"]
    assert rank_process(0) is None
    assert_json_is_whole(answer)


def test_the_end_of_a_log_that_is_too_long_is_collected(controller: Controller, testbed: TestBed) -> None:
    """Of one rank on each host: what it logged last is behind what it printed at full speed."""
    controller.configure_test({"FLOOD": WAITS}, MAX_COLLECT_BYTES=FLOOD_LIMIT, **PROCESS)
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    wait_until("work of rank 1", lambda: in_training(1))
    for host, rank in zip(testbed.hosts, (1, 3), strict=True):
        flood = f"yes 'a line of no use' | head -c {3 * FLOOD_LIMIT} >> {LOG.format(rank)}"
        host.exec(["sh", "-c", f"cd {controller.logs}/.hosts/*/FLOOD/round1/*_noderank* && {flood}"])
    controller.let_go("FLOOD")
    answer = controller.finish(process)
    assert answer.exit_code == 0 and answer.folder is not None, answer.output
    record = answer.round_record("FLOOD")
    assert record["verdict"] == "pass" and [node["cut"] for node in record["nodes"]] == [
        [LOG.format(1)],
        [LOG.format(3)],
    ]
    for node, rank in zip(record["nodes"], (1, 3), strict=True):
        folder = answer.folder / "FLOOD/round1" / f"{node['host']}_noderank{node['node_rank']}"
        text = (folder / LOG.format(rank)).read_text()
        assert "SUBMIT_INFO" in text and "FINISHED" in text and "bytes are left out here" in text
        assert sum(path.stat().st_size for path in folder.iterdir()) < FLOOD_LIMIT + (1 << 20)
    assert controller.call("verify", answer.folder.name).exit_code == 0
    assert controller.call("clean", answer.folder.name).exit_code == 0


def test_a_folder_that_cannot_be_written_is_found_before_anything_starts(
    controller: Controller, testbed: TestBed
) -> None:
    controller.configure_test({"LINES": LINES}, **PROCESS)
    with small_disk(testbed.hosts[1], controller.logs, "size=1200m,ro"):
        answer = controller.call()
    assert answer.exit_code == 3, answer.output
    assert f"{testbed.hosts[1].address}: writable path" in answer.output and "Read-only" in answer.output
    assert "FLAGPERF_LOG_PATH_HOST" in answer.output


@pytest.mark.parametrize(
    ("size", "said"),
    [("128k", "not collected"), pytest.param("12k", "cannot be written", marks=pytest.mark.nightly)],
)
def test_a_head_node_whose_disk_is_full(controller: Controller, size: str, said: str) -> None:
    """Too small for what a round brings, or already for the run's own records."""
    controller.configure_test({"LINES": {**LIGHT, "nnodes": 1, "overrides": MANY_LINES}}, **PROCESS)
    controller.logs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(controller.logs)], check=True)
    try:
        answer = controller.call()
        assert answer.exit_code == 1, answer.output
        assert "No space left" in answer.output and said in answer.output and "Traceback" not in answer.output
        assert_json_is_whole(answer)
        assert rank_process(0) is None
        assert answer.folder is not None
        if said == "not collected":
            more = f"remount,size={FREED}"
            subprocess.run(["mount", "-o", more, str(controller.logs)], check=True)
            assert "collection owed" in controller.call("status", answer.folder.name).output
            fetched = controller.call("collect", answer.folder.name)
            assert fetched.exit_code == 0 and fetched.round_record("LINES")["verdict"] == "pass", fetched.output
    finally:
        subprocess.run(["umount", "-l", str(controller.logs)], check=True)


@pytest.mark.nightly
@pytest.mark.parametrize("kill", [False, True], ids=["in order", "crash"])
def test_an_engine_that_stops_and_a_secret_that_stays_one(controller: Controller, testbed: TestBed, kill: bool) -> None:
    """After a crash the engine's containers go on without it."""
    controller.configure_cluster(LINK_LIMIT=5.0)
    controller.configure_test({"LONG": LONG}, ACCE_CONTAINER_OPT=f" -e HUGGING_TOKEN={SECRET} -e GREETING='a b'")
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    stopped = testbed.hosts[1]
    stopped.stop_engine(kill=kill)
    began = time.monotonic()
    try:
        answer = controller.finish(process)
    finally:
        stopped.start_engine()
    assert time.monotonic() - began < 60.0, answer.output
    assert answer.exit_code == 1, answer.output
    record = answer.round_record("LONG")
    assert record["verdict"] == "fail" and stopped.address in record["reason"], record["reason"]
    assert "its runtime does not answer: " in record["reason"] and "Docker engine" in record["reason"]
    assert ("its launcher was ended by SIGTERM, and not by this run" in record["reason"]) is not kill, record["reason"]
    assert record["first_failure"]["lost"] is True and "before its ranks ran" not in record["reason"]
    assert answer.folder is not None
    for node in record["nodes"]:
        assert all(f"rank{rank}.out.log" in node["files"] for rank in node["ranks"]), "ssh still brings files"
    told = [
        str(path)
        for path in answer.folder.rglob("*")
        if path.is_file() and SECRET in path.read_text("utf-8", "replace")
    ]
    assert told == [] and SECRET not in answer.output
    assert "GREETING" in json.dumps(record)
    assert SECRET not in controller.call("plan").output
    for folder in (answer.folder, *(path for path in answer.folder.rglob("*") if path.is_dir())):
        assert folder.stat().st_mode & 0o027 == 0, folder
    assert controller.call("clean", answer.folder.name).exit_code == 0
    assert controller.containers() == []
