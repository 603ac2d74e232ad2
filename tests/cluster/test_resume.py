"""A controller killed with SIGKILL: what ended stays, what runs is taken over, what is left is ours to remove."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from run_benchmarks.runtimes.base import Bound
from run_benchmarks.runtimes.docker import DockerRuntime
from run_benchmarks.session.run_folder import OWNER_FILE
from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, rank_process, ssh_host, wait_until
from tests.cluster.faulty_project import LIGHT, LONG, WAITS
from tests.run_benchmarks.results.rounds import node_plan
from tests.run_benchmarks.rounds.test_collecting import KILLED_AT

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def journal(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def kill_in(controller: Controller, case: str) -> Path:
    """Start, kill the controller once that case is at work, and return the run's folder."""
    process = controller.start()
    wait_until("its round", lambda: _begun(controller, case))
    wait_until("work of ranks 0 and 3", lambda: in_training(0) and in_training(3))
    process.kill()
    process.communicate(timeout=200)
    run = controller.newest_run()
    assert run is not None
    return run


def resume(controller: Controller, run: Path, case: str) -> Answer:
    """Of the run, once that case's round, which waits for it, was taken over."""
    process = controller.start("resume", run.name)
    wait_until("the takeover", lambda: "taken over (attempt 1)" in (run / "run.log").read_text())
    controller.let_go(case)
    return controller.finish(process)


@contextmanager
def another_head_node(controller: Controller, run: Path) -> Iterator[None]:
    """run.py as on a head node whose runs and folders have the same names as ours, and which has none of our files."""
    owner, hidden = controller.logs / OWNER_FILE, controller.logs / ".ours"
    ours = owner.read_text()
    owner.write_text("0" * len(ours))
    run.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(run)
        owner.write_text(ours)


def _begun(controller: Controller, case: str) -> bool:
    run = controller.newest_run()
    return (
        run is not None
        and (run / "journal.jsonl").exists()
        and f'"case":"{case}"' in (run / "journal.jsonl").read_text()
    )


def test_a_running_round_is_taken_over_and_finished_ones_are_not_repeated(controller: Controller) -> None:
    controller.configure_test({"FIRST": LIGHT, "SECOND": WAITS, "THIRD": LIGHT})
    run = kill_in(controller, "SECOND")
    assert len(controller.containers()) == 4
    with another_head_node(controller, run):
        assert controller.call("clean", run.name).exit_code == 0
    assert len(controller.containers()) == 4, "another owner's run of the same name was taken for ours"
    first = (run / "FIRST/round1/round.json").read_bytes()
    state = controller.call("status", run.name).output
    assert "killed" in state and "1/3" in state and "SECOND round 1" in state
    rank = rank_process(3)
    assert rank is not None
    answer = resume(controller, run, "SECOND")
    assert answer.exit_code == 0, answer.output
    assert "taken over (attempt 1)" in answer.output and "as recorded" in answer.output
    assert "it is run again" not in answer.output
    assert (run / "FIRST/round1/round.json").read_bytes() == first
    second = answer.round_record("SECOND")
    assert second["attempt"] == 1 and "attach" in second["phase_seconds"] and "launch" not in second["phase_seconds"]
    assert [node["missing"] for node in second["nodes"]] == [[], []]
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["pass"] * 3
    assert controller.containers() == []
    assert sum(event["event"] == "round_started" for event in journal(run)) == 3
    again = controller.call("resume", run.name)
    assert again.exit_code == 0 and "as recorded" in again.output


@pytest.mark.nightly
def test_a_round_whose_containers_had_ended_is_collected_and_not_run_again(controller: Controller) -> None:
    """Killed when one node is about to be collected; containers stay until what they wrote is recorded."""
    controller.configure_test({"ONLY": LIGHT})
    argv = [sys.executable, "-c", KILLED_AT, "collect_node", "before", *controller.argv()[2:]]
    killed = subprocess.run(argv, cwd=controller.root, capture_output=True, text=True, timeout=300)
    assert killed.returncode == -signal.SIGKILL, killed.stdout + killed.stderr
    run = controller.newest_run()
    assert run is not None and len(controller.containers()) == 4
    assert "collecting" in controller.call("status", run.name).output
    answer = controller.call("resume", run.name)
    assert answer.exit_code == 0, answer.output
    record = answer.round_record("ONLY")
    assert (record["verdict"], record["attempt"]) == ("pass", 1) and "launch" in record["phase_seconds"]
    assert [(node["exit_code"], node["missing"]) for node in record["nodes"]] == [(0, []), (0, [])]
    assert [event["event"] for event in journal(run)].count("round_started") == 1
    assert controller.containers() == []


@pytest.mark.nightly
def test_a_running_round_of_processes_is_taken_over(controller: Controller) -> None:
    controller.configure_test({"SECOND": WAITS, "THIRD": {**LIGHT, "nnodes": 1}}, **PROCESS)
    run = kill_in(controller, "SECOND")
    ranks = [rank_process(rank) for rank in range(4)]
    answer = resume(controller, run, "SECOND")
    assert answer.exit_code == 0, answer.output
    assert "taken over (attempt 1)" in answer.output and None not in ranks
    assert "it is run again" not in answer.output
    second = answer.round_record("SECOND")
    assert second["verdict"] == "pass" and second["attempt"] == 1
    assert "attach" in second["phase_seconds"] and "launch" not in second["phase_seconds"]
    assert [node["missing"] for node in second["nodes"]] == [[], []]
    assert [node["monitor"]["complete"] for node in second["nodes"]] == [True, True]
    assert not (run / "SECOND/round1_try2").exists()
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["pass", "pass"]
    assert all(rank is not None and not rank.is_running() for rank in ranks)


def test_a_container_that_was_never_started_counts_as_gone_and_is_removed(testbed: TestBed) -> None:
    """A controller killed between the two leaves such a one."""
    host = ssh_host(testbed, testbed.hosts[0])
    host.connect()
    try:
        node = node_plan(host.name, 0, (0,)).model_copy(update={"image": images.BASE_IMAGE, "workdir": "/"})
        task = node.workload.model_copy(update={"name": "clusterdyno-never-started", "argv": ("sleep", "86400")})
        runtime = DockerRuntime(pytest.fail)
        for _ in range(2):  # again, where the answer of the first call was lost
            runtime.create(host, node, task, Bound(master_port=29500))
        found = runtime.attach(host, node, task)
        assert not found.exists()
        assert found.finish(0.0) == "" and host.docker().containers(all=True) == []
        assert not found.exists() and found.finish(0.0) == ""
        runtime.create(host, node, task, Bound(master_port=29500)).start()
        assert found.exists()
        found.finish(0.0)
        assert host.docker().containers(all=True) == []
    finally:
        host.close()
        testbed.hosts[0].remove_containers()


@pytest.mark.nightly
def test_a_round_whose_tasks_are_gone_is_run_again(controller: Controller) -> None:
    controller.configure_test({"ONLY": {**LIGHT, "overrides": {"pause": 2.0}}}, **PROCESS)
    run = kill_in(controller, "ONLY")
    assert controller.call("clean", run.name).exit_code == 0
    assert rank_process(0) is None and rank_process(3) is None
    answer = controller.call("resume", run.name)
    assert answer.exit_code == 0, answer.output
    assert (run / "ONLY/round1_try2/round.json").exists()
    ends = [(e["attempt"], e["verdict"]) for e in journal(run) if e["event"] == "round_ended"]
    assert ends == [(1, "aborted"), (2, "pass")]
    controller.configure_test({"ONLY": {**LIGHT, "time_limit": 200.0}}, **PROCESS)
    answer = controller.call("resume", run.name)
    assert answer.exit_code == 2 and "the plan changed since the run started" in answer.output
    answer = controller.call("resume", "run19990101000000")
    assert answer.exit_code == 2 and "expected the name of a run in" in answer.output


@pytest.mark.nightly
def test_a_run_in_the_background(controller: Controller, request: pytest.FixtureRequest) -> None:
    controller.configure_test({"SOME": LONG}, **PROCESS)
    answer = controller.call("run", "--detach")
    assert answer.exit_code == 0 and "runs in the background" in answer.output
    run = answer.folder
    assert run is not None
    wait_until("the journal", lambda: (run / "journal.jsonl").exists(), 10)
    pid = next(event["pid"] for event in journal(run) if event["event"] == "run_started")
    controlling = psutil.Process(pid)
    request.addfinalizer(lambda: controlling.terminate() if controlling.is_running() else None)
    wait_until("work of rank 3", lambda: in_training(3))
    state = controller.call("status", run.name).output
    assert "running (process" in state
    assert psutil.Process(pid).terminal() is None
    for words in (("clean", run.name), ("resume", run.name)):
        refused = controller.call(*words)
        assert refused.exit_code == 2 and "a controller works on this run" in refused.output
    follower = controller.start("attach", run.name)
    psutil.Process(pid).send_signal(signal.SIGTERM)
    ended = controller.finish(follower)
    assert ended.exit_code == 130 and "Testcase SOME" in ended.output, ended.output
    assert rank_process(3) is None
    assert "ended: aborted" in controller.call("status").output
