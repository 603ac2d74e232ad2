"""Two cases side by side on real hosts, each on its own: a Ctrl-C ends both, a resume takes both over."""

import signal
import subprocess

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, STEP_BEGIN, Controller, rank_processes, wait_until
from tests.cluster.faulty_project import LIGHT, WAITS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
ONE_HOST: dict[str, object] = {"nnodes": 1, "nproc": 1}


@pytest.fixture
def started(controller: Controller, testbed: TestBed) -> subprocess.Popen[str]:
    """A run whose cases ONE and TWO are at work at the same time."""
    cases = {name: {**case, **ONE_HOST} for name, case in {"ONE": WAITS, "TWO": WAITS, "LAST": LIGHT}.items()}
    controller.configure_test(cases, MAX_PARALLEL_CASES=2, **PROCESS)
    process = controller.start()
    wait_until("work of both", lambda: all(at_work(controller, testbed, case) for case in ("ONE", "TWO")))
    return process


def at_work(controller: Controller, bed: TestBed, case: str) -> bool:
    """Whether a rank of that case's first round has begun its work, on any host."""
    pattern = f"{controller.logs}/.hosts/*/{case}/round1/*_noderank0/rank0.out.log".lstrip("/")
    logs = [log for host in bed.hosts for log in host.path("/").glob(pattern)]
    return any(STEP_BEGIN in log.read_text(errors="replace") for log in logs)


@pytest.mark.nightly
def test_both_are_taken_over_after_a_kill_and_each_keeps_its_host(
    controller: Controller, testbed: TestBed, started: subprocess.Popen[str]
) -> None:
    started.kill()
    started.communicate(timeout=200)
    run = controller.newest_run()
    assert run is not None
    shown = controller.call("status", run.name).output
    assert "ONE round 1" in shown and "TWO round 1" in shown
    resumed = controller.start("resume", run.name)
    wait_until("the takeovers", lambda: (run / "run.log").read_text().count("taken over (attempt 1)") == 2)
    for case in ("ONE", "TWO"):
        controller.let_go(case)
    answer = controller.finish(resumed)
    assert answer.exit_code == 0, answer.output
    records = {case: answer.round_record(case) for case in ("ONE", "TWO", "LAST")}
    hosts = {case: record["nodes"][0]["host"] for case, record in records.items()}
    first, second = (host.address for host in testbed.hosts[:2])
    assert hosts == {"ONE": first, "TWO": second, "LAST": first}
    assert all(record["attempt"] == 1 for record in records.values())
    told = [f"{each['kind']}: {each['detail']}" for each in records["ONE"]["integrity"]["remarks"]]
    assert "at the same time: TWO on other hosts" in told
    assert [case["name"] for case in answer.run_record()["cases"]] == ["ONE", "TWO", "LAST"]


def test_a_ctrl_c_ends_and_collects_both(controller: Controller, started: subprocess.Popen[str]) -> None:
    started.send_signal(signal.SIGINT)
    answer = controller.finish(started)
    assert answer.exit_code == 130, answer.output
    for case in ("ONE", "TWO"):
        record = answer.round_record(case)
        assert (record["verdict"], record["reason"]) == ("aborted", "interrupted by SIGINT")
        assert record["nodes"][0]["missing"] == []
    assert rank_processes() == {}
