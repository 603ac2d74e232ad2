"""What clusters do to the parts of a round that are not its workload: the verdict says in words what it was, and where.

Containers are paused, removed and stopped, launchers, supervisors and monitors killed, hosts lost and reset, by others.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import LABEL, PROCESS, Answer, Controller, rank_processes, wait_until
from tests.cluster.faulty_project import LIGHT, LONG, WAITS
from tests.cluster.host import SSHD, ClusterHost
from tests.cluster.system import kill_and_wait

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
STALL_LIMIT = 12.0


class Faults:
    """A run of several cases, each of whose rounds something happens to once all of its ranks are at work."""

    def __init__(self, controller: Controller, bed: TestBed) -> None:
        self._controller, self._bed = controller, bed
        self._process = controller.start()

    def folder(self, case: str, attempt: str = "round1") -> Path:
        run = self._controller.newest_run()
        assert run is not None
        return run / case / attempt

    def at_work(self, case: str, attempt: str = "round1") -> None:
        """Wait until all four ranks of the round are at work."""
        logs = f"{self._controller.logs}/.hosts/*/{case}/{attempt}/*_noderank[0-9]/rank*.out.log"
        count = ["sh", "-c", f"cat {logs} 2>/dev/null | grep -c STEP_BEGIN"]

        def begun() -> bool:
            if self._process.poll() is not None:
                pytest.fail(f"run.py has ended: {self._process.communicate()[0][-4000:]}")
            return all(host.exec(count, check=False).stdout.strip() == "2" for host in self._bed.hosts)

        wait_until(f"the ranks of {case}", begun)

    def judged(self, case: str, attempt: str = "round1", seconds: float = 90.0) -> None:
        wait_until(f"the verdict of {case}", (self.folder(case, attempt) / "round.json").exists, seconds)

    def finish(self) -> Answer:
        return self._controller.finish(self._process)


def workload(host: ClusterHost) -> Any:
    """The running container of a round's workload on a host."""
    (found,) = [c for c in host.connect_docker().containers.list(filters={"label": LABEL}) if "monitor" not in c.name]
    return found


def launcher_of(rank: int) -> psutil.Process:
    parent = rank_processes()[rank].parent()
    assert parent is not None
    return parent


def said(answer: Answer, case: str, host: ClusterHost, words: str, verdict: str = "fail") -> dict[str, Any]:
    """The record of a first attempt that failed because of `host`; its reason says these words."""
    record = answer.round_record(case)
    failure = record["first_failure"]
    assert (record["verdict"], failure["host"], failure["rank"]) == (verdict, host.address, None), record["reason"]
    assert words in record["reason"] and f"{host.address}: " in record["reason"], record["reason"]
    assert "before its ranks ran" not in record["reason"]
    assert failure["lost"] is True
    return record


def test_what_is_done_to_containers_is_named_and_such_rounds_run_again(
    controller: Controller, testbed: TestBed
) -> None:
    """Each fault is on the second host, whose container is not the first that is asked for."""
    host = testbed.hosts[1]
    faults: dict[str, tuple[Callable[[], object], str]] = {
        "PAUSED": (lambda: workload(host).pause(), "its container is paused (docker pause)"),
        "REMOVED": (lambda: workload(host).remove(force=True), "its container was removed, and not by this run"),
        "STOPPED": (lambda: workload(host).stop(timeout=5), "its container was stopped, and not by this run"),
        "KILLED": (lambda: launcher_of(3).kill(), "its launcher was killed by SIGKILL"),
    }
    controller.configure_test(dict.fromkeys(faults, WAITS), STALL_LIMIT=STALL_LIMIT, RETRY_LOST=1)
    run = Faults(controller, testbed)
    for case, (fault, _) in faults.items():
        run.at_work(case)
        fault()
        run.judged(case)
        run.at_work(case, "round1_try2")
        controller.let_go(case, attempt=2)
        run.judged(case, "round1_try2")
    answer = run.finish()
    assert answer.exit_code == 0, answer.output
    for case, (_, words) in faults.items():
        record = said(answer, case, host, words, "timeout" if case == "PAUSED" else "fail")
        assert record["metrics"] == {} and record["nodes"][1]["files"]
    for case in answer.run_record()["cases"]:
        assert (case["rounds"], case["attempts"]) == (["pass"], [2])
        (before,) = case["earlier_attempts"]
        assert before["lost"] is True and f"attempt 1: lost: {before['reason']}" in case["reason"]
    assert controller.containers() == []
