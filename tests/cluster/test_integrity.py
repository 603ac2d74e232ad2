"""What disturbs a round on real hosts stands in its record: an outage, a hog, another run; the verdict stays."""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, wait_until
from tests.cluster.faulty_project import LIGHT, LONG

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
HOG = "for n in 1 2 3; do timeout 60 sh -c 'while :; do :; done' >/dev/null 2>&1 & echo $!; done >/tmp/hogs"


@pytest.mark.nightly
def test_a_survived_outage_and_a_hog_are_remarks(controller: Controller, testbed: TestBed) -> None:
    first, second = testbed.hosts
    controller.configure_cluster(LINK_LIMIT=40.0)
    controller.configure_test({"LONG": {**LONG, "time_limit": 70.0}}, **PROCESS)
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    first.exec(["sh", "-c", HOG])
    try:
        second.drop_head()
        time.sleep(28.0)  # on a busy machine, too, longer than a wait of its exit code and the question, 10 s each
        second.rejoin_head()
        answer = controller.finish(process)
    finally:
        first.exec(["sh", "-c", "kill $(cat /tmp/hogs)"], check=False)
    record = answer.round_record("LONG")
    assert record["verdict"] == "timeout", answer.output
    remarks = record["integrity"]["remarks"]
    (outage,) = [each for each in remarks if each["kind"] == "outage"]
    assert outage["host"] == second.address
    assert 10_000 < outage["to_ms"] - outage["from_ms"] < 60_000
    loads = [each for each in remarks if each["kind"] == "foreign load" and each["host"] == first.address]
    assert loads and "cores on average while the workload ran" in loads[0]["detail"], remarks
    # The hosts of the bed are namespaces of one machine.
    assert any(each["kind"] == "shared kernel" for each in remarks)


def beside_another_run(tmp_path: Path, testbed: TestBed, root: Path, **runtime: object) -> tuple[str, Answer]:
    """A short run while another one is at work on the same hosts: the other's name, and how the short one ended."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (Controller(folder, testbed, root) for folder in folders)
    first.configure_test({"LONG": LONG}, **runtime)
    second.configure_test({"SHORT": LIGHT}, **runtime)
    try:
        process = first.start()
        wait_until("work of rank 0", lambda: in_training(0))
        run = first.newest_run()
        assert run is not None
        answer = second.call()
        process.send_signal(signal.SIGINT)
        first.finish(process)
    finally:
        first.end()
        second.end()
    assert answer.exit_code == 0, answer.output
    return run.name, answer


def others(answer: Answer) -> list[dict[str, Any]]:
    """The remarks on other runs."""
    return [each for each in answer.round_record("SHORT")["integrity"]["remarks"] if each["kind"] == "another run"]


def test_a_pass_beside_another_run_says_so(tmp_path: Path, testbed: TestBed, root: Path) -> None:
    _, answer = beside_another_run(tmp_path, testbed, root, **PROCESS)
    remarks = others(answer)
    assert {each["host"] for each in remarks} == {host.address for host in testbed.hosts}
    assert any(each["detail"].startswith("root: ") and "benchmarks.driver.launch" in each["detail"] for each in remarks)
    assert "--" not in "".join(each["detail"] for each in remarks), "arguments may hold secrets"
    assert "│ pass, with " in answer.output
    assert answer.output.count(f"{testbed.hosts[0].address}: another run: root: ") >= 1


@pytest.mark.nightly
def test_containers_of_another_run_are_named_with_it(tmp_path: Path, testbed: TestBed, root: Path) -> None:
    run, answer = beside_another_run(tmp_path, testbed, root)
    assert any(
        each["detail"].startswith("container ") and f"of run {run}-" in each["detail"] for each in others(answer)
    )
