"""The end of an allocation ends the run, unless it is a verdict on a node."""

from __future__ import annotations

import pytest

from run_benchmarks.hosts.slurm.jobs import WAITING, Job
from run_benchmarks.session.allocation import _ender
from run_benchmarks.state.interruption import Interruption


@pytest.mark.parametrize(
    ("state", "ends_the_run"),
    [
        ("CANCELLED", True),
        ("PREEMPTED", True),
        ("TIMEOUT", True),
        ("PENDING", True),
        ("NODE_FAIL", False),
        ("BOOT_FAIL", False),
        ("LAUNCH_FAILED", False),
        ("REQUEUED", True),
        ("REQUEUE_HOLD", True),
        ("DEADLINE", True),
        ("FAILED", True),
        ("OUT_OF_MEMORY", False),
    ],
)
def test_an_end_of_the_job_ends_the_run_unless_it_is_a_verdict_on_a_host(state: str, ends_the_run: bool) -> None:
    interruption = Interruption("clean")
    _ender(interruption)(Job(id="12", state=state, hosts=("n1", "n2")))
    assert interruption.is_set() is ends_the_run
    assert ("job 12" in interruption.reason and state in interruption.reason) is ends_the_run
    assert (interruption.reason.endswith("on n[1-2]")) is (ends_the_run and state not in WAITING)
