"""What clusters do to the parts of a round that are not its workload: the verdict says in words what it was, and where.

Containers are paused, removed and stopped, launchers, supervisors and monitors killed, hosts lost and reset, by others.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import LABEL, PROCESS, Answer, Controller, rank_processes, wait_until
from tests.cluster.faulty_project import WAITS
from tests.cluster.host import SSHD, ClusterHost
from tests.cluster.system import frozen

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
STALL_LIMIT, LINK_LIMIT = 40.0, 8.0  # on a busy machine a container takes seconds before its ranks begin
SUPERVISE = "training.benchmarks.driver.launch.supervise"
KEY_FILE = "/etc/ssh/ssh_host_ed25519_key"


class Faults:
    """A run of several cases, each of whose rounds something happens to once all of its ranks are at work."""

    def __init__(self, controller: Controller, bed: TestBed) -> None:
        self._controller, self._bed = controller, bed
        self._process = controller.start()

    def folder(self, case: str, attempt: str = "round1") -> Path:
        run = self._controller.newest_run()
        assert run is not None
        return run / case / attempt

    def at_work(self, case: str, attempt: str = "round1", *hosts: ClusterHost) -> None:
        """Wait until both ranks of the round on each of these hosts, all by default, are at work."""
        logs = f"{self._controller.logs}/.hosts/*/{case}/{attempt}/*_noderank[0-9]/rank*.out.log"
        count = ["sh", "-c", f"cat {logs} 2>/dev/null | grep -c STEP_BEGIN"]

        def begun() -> bool:
            if self._process.poll() is not None:
                pytest.fail(f"run.py has ended: {self._process.communicate()[0][-4000:]}")
            return all(host.exec(count, check=False).stdout.strip() == "2" for host in hosts or self._bed.hosts)

        wait_until(f"the ranks of {case}", begun)

    def judged(self, case: str, attempt: str = "round1", seconds: float = 200.0) -> None:
        wait_until(f"the verdict of {case}", (self.folder(case, attempt) / "round.json").exists, seconds)

    def finish(self) -> Answer:
        return self._controller.finish(self._process)


def workload(host: ClusterHost) -> Any:
    """The running container of a round's workload on a host."""
    found = host.connect_docker().containers.list(filters={"label": LABEL})
    return next(each for each in found if "monitor" not in str(each.name))


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


def supervisor_of(process: psutil.Process) -> psutil.Process:
    """What supervises a process of a host, where there are no containers."""
    (found,) = [each for each in process.parents() if SUPERVISE in each.cmdline()]
    return found


def monitors(host: ClusterHost) -> list[psutil.Process]:
    """The monitors that run on a host; one is the supervised one, with its supervisor."""
    found = [psutil.Process(pid) for pid in host.pids("python", "python3", "python3.11")]
    return [each for each in found if "monitors" in each.cmdline() and SUPERVISE not in each.cmdline()]


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_an_engine_that_was_restarted_is_named(controller: Controller, testbed: TestBed) -> None:
    host = testbed.hosts[1]
    controller.configure_test({"RESTARTED": WAITS})
    run = Faults(controller, testbed)
    run.at_work("RESTARTED")
    with frozen(host.pids(*SSHD)):  # nobody asks until it is there again
        host.stop_engine()
        host.start_engine()
    run.judged("RESTARTED", seconds=150.0)
    answer = run.finish()
    said(answer, "RESTARTED", host, "its Docker engine was stopped and started again")
    assert answer.folder is not None and controller.call("clean", answer.folder.name).exit_code == 0


def restart_sshd(host: ClusterHost) -> None:
    """All connections break, and new ones meet what was changed."""
    host.stop_sshd()
    host.start_sshd()


@pytest.mark.nightly
def test_what_is_done_to_hosts_and_processes_is_named(controller: Controller, testbed: TestBed) -> None:
    """Of both hosts lost, it is the first in the order of HOSTS that is lost later."""
    first, second = testbed.hosts
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    cases: dict[str, dict[str, object]] = dict.fromkeys(("MONITOR", "RESET", "SUPERVISOR"), WAITS)
    for case, host in (("KEY", first), ("LOGIN", second), ("GAP", first)):
        cases[case] = {**WAITS, "nnodes": 1, "hosts": [host.address]}
    controller.configure_test(cases | {"BOTH": WAITS}, STALL_LIMIT=60.0, **PROCESS)
    run = Faults(controller, testbed)

    run.at_work("MONITOR")
    for monitor in monitors(second):
        monitor.kill()
    controller.let_go("MONITOR")
    run.at_work("RESET")
    second.reboot()
    run.at_work("SUPERVISOR")
    orphans = [rank_processes()[3], launcher_of(3)]
    supervisor_of(orphans[0]).kill()
    run.judged("SUPERVISOR")
    assert not any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in orphans)
    run.at_work("KEY", "round1", first)
    first.exec(["cp", "-p", KEY_FILE, f"{KEY_FILE}.own"])
    first.exec(["sh", "-c", f"rm {KEY_FILE}; ssh-keygen -q -t ed25519 -N '' -f {KEY_FILE}"])
    restart_sshd(first)
    run.at_work("LOGIN", "round1", second)
    first.exec(["mv", f"{KEY_FILE}.own", KEY_FILE])
    restart_sshd(first)
    second.exec(["mv", "/root/.ssh/authorized_keys", "/root/.ssh/away"])
    restart_sshd(second)
    run.at_work("GAP", "round1", first)
    second.exec(["mv", "/root/.ssh/away", "/root/.ssh/authorized_keys"])
    controller.let_go("GAP")
    run.at_work("BOTH")
    lost_at = {}
    for host in (second, first):
        host.drop_head()
        lost_at[host.address] = time.time()
        time.sleep(LINK_LIMIT / 2)
    run.judged("BOTH")
    for host in testbed.hosts:
        host.rejoin_head()
    answer = run.finish()
    assert answer.exit_code == 1, answer.output
    assert_named(answer, first, second, lost_at)
    assert answer.folder is not None and controller.call("clean", answer.folder.name).exit_code == 0
    assert rank_processes() == {}


def assert_named(answer: Answer, first: ClusterHost, second: ClusterHost, lost_at: dict[str, float]) -> None:
    record = answer.round_record("MONITOR")
    (remark,) = [each for each in record["integrity"]["remarks"] if each["kind"] == "monitor"]
    assert record["verdict"] == "pass" and remark["host"] == second.address
    assert record["started_ms"] < remark["from_ms"] < record["finished_ms"]
    record = said(answer, "SUPERVISOR", second, "its supervisor (process ")
    assert "rebooted" not in record["reason"], "that was before this round"
    ended = f"{second.address}: supervise: ended 3 processes that outlived their supervisor"
    assert any(warning.startswith(ended) for warning in record["warnings"]), record["warnings"]
    record = said(answer, "KEY", first, "host key CHANGED")
    assert "out of reach" not in record["reason"], "at once"
    said(answer, "LOGIN", second, "login as root on port 22 with key")
    said(answer, "RESET", second, "the host was rebooted during the round")
    record = said(answer, "BOTH", second, "out of reach for ")
    assert f"later {first.address}: out of reach for " in record["reason"]
    for host, moment in lost_at.items():
        (line,) = [
            each for each in record["first_failure"]["evidence"] if each.startswith(f"{host}: out of reach for ")
        ]
        heard, silent = map(float, re.findall(r"(?:last heard|silent) at ([0-9.]+)", line))
        assert heard <= moment + 1.0 and moment <= silent, f"lost at {moment}: {line}"
