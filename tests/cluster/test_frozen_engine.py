"""A Docker engine that stands still is no sign of life: neither of a task that has ended nor of one that runs."""

import re
import time

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller, in_training, wait_until
from tests.cluster.faulty_project import LIGHT, LONG
from tests.cluster.system import frozen

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]
ENDS: dict[str, object] = {**LIGHT, "overrides": {"pause": 1.0}}
STALL_LIMIT = 30.0
FIRST_RECORD = "CASE/round1/round.json"
SECONDS = 200.0  # far below the stall limit, by which such a round ended once


def answer_of(controller: Controller, testbed: TestBed, case: dict[str, object], link_limit: float) -> Answer:
    """Of a run in whose round the second host's engine is frozen until the verdict is there."""
    controller.configure_cluster(LINK_LIMIT=link_limit)
    controller.configure_test({"CASE": case})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    run = controller.newest_run()
    assert run is not None
    with frozen(testbed.hosts[1].pids("dockerd")):
        began = time.monotonic()
        wait_until("the verdict", (run / "CASE/round1/round.json").exists, SECONDS)
        print(f"judged {time.monotonic() - began:.1f} s after the freeze")
    return controller.finish(process)


def test_the_launch_s_own_record_counts_where_the_engine_is_silent(controller: Controller, testbed: TestBed) -> None:
    answer = answer_of(controller, testbed, ENDS, 60.0)
    assert answer.exit_code == 0 and answer.folder is not None, answer.output
    record = answer.round_record("CASE")
    assert record["verdict"] == "pass" and [node["exit_code"] for node in record["nodes"]] == [0, 0]
    (remark,) = [warning for warning in record["warnings"] if "node_exit.json" in warning]
    assert remark.startswith(f"{testbed.hosts[1].address}: ")
    assert "the Docker engine did not answer" in remark and "ended with 0" in remark
    assert controller.call("clean", answer.folder.name).exit_code == 0
    assert controller.containers() == []


def test_an_engine_that_is_silent_for_the_link_limit_is_a_failure_of_its_host(
    controller: Controller, testbed: TestBed
) -> None:
    answer = answer_of(controller, testbed, LONG, 5.0)
    assert answer.exit_code == 1 and answer.folder is not None, answer.output
    record, host = answer.round_record("CASE"), testbed.hosts[1].address
    assert record["verdict"] == "fail" and record["reason"].startswith(f"{host}: no exit code"), record["reason"]
    silence = re.search(r"does not answer for (\d+) s", record["reason"])
    assert silence is not None and float(silence[1]) >= 5.0 and "the Docker engine did not answer" in record["reason"]
    assert record["first_failure"]["host"] == host
    assert controller.call("clean", answer.folder.name).exit_code == 0
    assert controller.containers() == []


def test_an_engine_that_is_frozen_between_two_rounds_is_named(controller: Controller, testbed: TestBed) -> None:
    """It is asked before anything is made there, and nothing more once it did not answer."""
    controller.configure_test({"CASE": {**LIGHT, "repeat": 2, "stall_limit": STALL_LIMIT}})
    process = controller.start()
    wait_until("the first round", lambda: (run := controller.newest_run()) and (run / FIRST_RECORD).exists())
    run = controller.newest_run()
    assert run is not None
    wait_until("the second round", lambda: "Round 2 starts" in (run / "run.log").read_text())
    with frozen(testbed.hosts[1].pids("dockerd")):
        began = time.monotonic()
        wait_until("the verdict", (run / "CASE/round2/round.json").exists, 2 * STALL_LIMIT)
        print(f"judged {time.monotonic() - began:.1f} s after the freeze")
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    record, host = answer.round_record("CASE", 2), testbed.hosts[1].address
    assert record["verdict"] == "fail" and record["reason"].startswith(f"{host}: no exit code"), record["reason"]
    assert "the Docker engine did not answer" in record["reason"] and record["first_failure"]["host"] == host
    assert answer.round_record("CASE", 1)["verdict"] == "pass"
    assert controller.call("clean", run.name).exit_code == 0
    assert controller.containers() == []
