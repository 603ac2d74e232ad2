"""What runs on a host that cannot be reached ends there by the host's own clock."""

import threading
import time
from collections.abc import Iterator

import pytest

from run_benchmarks.errors import HostError
from run_benchmarks.hosts.login_shell import OWN_CLOCK_SECONDS
from run_benchmarks.plan.planner import WORKLOAD_SLACK_SECONDS
from tests.cluster import host as bed_host
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Controller, in_training, rank_process, ssh_host, wait_until
from tests.cluster.faulty_project import LONG

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(300)]
LINK_LIMIT, TIME_LIMIT, SLACK = 5.0, 45.0, 15.0


@pytest.fixture
def far(testbed: TestBed) -> Iterator[bed_host.ClusterHost]:
    """The second host, reachable again in the end."""
    far = testbed.hosts[1]
    yield far
    far.link_up()


def test_a_command_on_a_host_that_was_unplugged(testbed: TestBed, far: bed_host.ClusterHost) -> None:
    host = ssh_host(testbed, far)
    host.connect()
    mark = ["pgrep", "-xf", "sleep 86399.75"]

    def run() -> None:
        with pytest.raises(HostError):
            host.run(["sleep", "86399.75"], deadline=3.0)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until("the command", lambda: far.exec(mark, check=False).returncode == 0, 10)
    far.link_down()
    thread.join(3.0 + 2.0)
    assert not thread.is_alive()
    wait_until("its end", lambda: far.exec(mark, check=False).returncode == 1, OWN_CLOCK_SECONDS + SLACK)
    host.close()


def test_the_workload_of_a_host_that_was_lost(controller: Controller, far: bed_host.ClusterHost) -> None:
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    case = {
        **LONG,
        "nproc": 1,
        "nnodes": 1,
        "time_limit": TIME_LIMIT,
        "hosts": [far.address],
    }
    controller.configure_test({"ONE": case}, **PROCESS)
    process = controller.start()
    wait_until("work of rank 0", lambda: in_training(0))
    began = time.monotonic()
    far.drop_head()
    try:
        answer = controller.finish(process)
        record = answer.round_record("ONE")
        assert record["verdict"] == "fail" and "out of reach" in record["reason"], answer.output
        assert [node["host"] for node in record["nodes"]] == [far.address]
        assert rank_process(0) is not None, "it ended before anybody could have told it to"
        left = TIME_LIMIT + LINK_LIMIT + WORKLOAD_SLACK_SECONDS - (time.monotonic() - began)
        wait_until("the end of the rank", lambda: rank_process(0) is None, left + SLACK)
    finally:
        far.rejoin_head()
    assert answer.folder is not None and controller.call("clean", answer.folder.name).exit_code == 0
