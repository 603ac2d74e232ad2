"""A controller that stood still (Ctrl-Z, a suspended machine) does not take its own absence for the hosts' silence."""

import time

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import WAITS
from tests.cluster.system import frozen

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]
STALL_LIMIT, TIME_LIMIT, LINK_LIMIT = 20.0, 40.0, 6.0


def test_a_round_that_ended_while_its_controller_stood_still(controller: Controller, testbed: TestBed) -> None:
    """All limits pass meanwhile, the tasks end, and the connection to one host breaks."""
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    controller.configure_test({"CASE": {**WAITS, "stall_limit": STALL_LIMIT, "time_limit": TIME_LIMIT}})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    with frozen([process.pid]):
        began = time.monotonic()
        controller.let_go("CASE")
        wait_until("the end of the ranks", lambda: rank_process(0) is None and rank_process(3) is None, 30.0)
        testbed.hosts[1].stop_sshd()
        testbed.hosts[1].start_sshd()
        time.sleep(max(0.0, began + TIME_LIMIT + LINK_LIMIT - time.monotonic()))
    answer = controller.finish(process)
    assert answer.exit_code == 0, answer.output
    record = answer.round_record("CASE")
    assert record["verdict"] == "pass" and [node["exit_code"] for node in record["nodes"]] == [0, 0]
    assert any("the controller itself was suspended for" in warning for warning in record["warnings"]), record[
        "warnings"
    ]
    assert not [each for each in record["integrity"]["remarks"] if each["kind"] == "outage"], "the hosts answered"
    assert controller.containers() == []
