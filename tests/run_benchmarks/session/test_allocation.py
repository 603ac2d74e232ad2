"""The end of an allocation ends the run, unless it is a verdict on a node."""

from __future__ import annotations

import pytest

from run_benchmarks.hosts.slurm.jobs import Job
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
        ("OUT_OF_MEMORY", False),
    ],
)
def test_an_end_of_the_job_ends_the_run_unless_it_is_a_verdict_on_a_host(state: str, ends_the_run: bool) -> None:
    interruption = Interruption("clean")
    _ender(interruption)(Job(id="12", state=state))
    assert interruption.is_set() is ends_the_run
    assert ("job 12" in interruption.reason and state in interruption.reason) is ends_the_run
