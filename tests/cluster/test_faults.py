"""What clusters do to a run: a rank hangs, links drop, sshd restarts, a host dies. Each time the verdict says so.

The workload takes its time in iterations, not in sleeps; the limits are short so that the tests are.
"""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller, in_training, rank_process, wait_until
from tests.cluster.faulty_project import CONFIG, LIGHT, LONG, project
from tests.cluster.host import SSHD
from tests.cluster.system import frozen, patience

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
LINK_LIMIT = 5.0
LONG_STEPS = 1_000_000


@pytest.fixture
def controller(controller: Controller) -> Controller:
    controller.configure_cluster(LINK_LIMIT=LINK_LIMIT)
    return controller


def configure(controller: Controller, cases: dict[str, dict[str, object]], **changes: object) -> None:
    """Processes instead of containers: what is tested here is the controller's side."""
    controller.configure_test(cases, **(PROCESS | changes))


def ended(controller: Controller, seconds: float) -> Answer:
    """The answer of a call that has to come within so many seconds."""
    started = time.monotonic()
    answer = controller.call()
    assert time.monotonic() - started < seconds, answer.output
    return answer


@pytest.mark.nightly
@pytest.mark.parametrize("model", ["light", "faulty"])
def test_a_rank_that_hangs_leaves_its_stacks_and_is_retried(model: str, tmp_path: Path, testbed: TestBed) -> None:
    controller = Controller(tmp_path, testbed, project(tmp_path / "project", {}))
    overrides = {"fault": "hang", "rank": 2, "steps": LONG_STEPS}
    hangs: dict[str, object] = {"model": model, "config": CONFIG, "overrides": overrides}
    # Ranks that still import torch when the limit ends have no stacks.
    longer = patience()
    limits = {"stall_limit": 12.0 * longer, "time_limit": 60.0 * longer, "retries": 1}
    configure(controller, {"HANGS": {**hangs, **limits}, "NEXT": LIGHT})
    answer = ended(controller, 180 * longer)
    assert answer.exit_code == 1 and answer.folder is not None, answer.output
    case = answer.folder / "HANGS"
    for attempt, folder in ((1, case / "round1"), (2, case / "round1_try2")):
        stacks = (folder / "stacks.txt").read_text()
        for rank in range(4):
            part = stacks.partition(f"rank {rank} on ")[2].partition("\nrank ")[0]
            assert "most recent call first" in part and f"/training/benchmarks/{model}/" in part, stacks
        record = answer.round_record("HANGS", attempt=attempt)
        assert record["verdict"] == "timeout" and "stall limit" in record["reason"] and record["attempt"] == attempt
        assert f"rank 2 on {testbed.hosts[1].address}: hangs" in record["reason"]
    assert [each["verdict"] for each in answer.run_record()["cases"]] == ["timeout", "pass"]
    assert rank_process(0) is None


@pytest.mark.nightly
def test_a_run_outlives_a_lost_link_and_a_restarted_sshd(controller: Controller, testbed: TestBed) -> None:
    controller.configure_cluster(LINK_LIMIT=60.0)
    configure(controller, {"LONG": {**LONG, "time_limit": 40.0}})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    testbed.hosts[1].drop_head()
    testbed.hosts[0].stop_sshd()
    testbed.hosts[0].start_sshd()
    time.sleep(20.0)
    assert in_training(0) and in_training(3) and process.poll() is None
    testbed.hosts[1].rejoin_head()
    answer = controller.finish(process)
    record = answer.round_record("LONG")
    assert record["verdict"] == "timeout" and "40 s" in record["reason"], answer.output
    assert [node["missing"] for node in record["nodes"]] == [[], []], record
    assert rank_process(0) is None


def test_a_dead_host_is_named_the_rest_is_kept_and_cases_that_fit_go_on(
    controller: Controller, testbed: TestBed
) -> None:
    one: dict[str, object] = {**LIGHT, "nnodes": 1}
    configure(controller, {"LONG": LONG, "TWO": LIGHT, "ONE": one})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    dead = testbed.hosts[0]  # the master: other cases have to do without the first host
    dead.kill()
    began = time.monotonic()
    case = _case_folder(controller)
    wait_until("a verdict", lambda: (case / "round1/round.json").exists(), LINK_LIMIT + 45)
    print(f"verdict after {time.monotonic() - began:.1f} s")
    answer = controller.finish(process)
    assert answer.exit_code == 1, answer.output
    record = answer.round_record("LONG")
    assert record["verdict"] == "fail" and record["reason"].startswith(f"{dead.address}: no exit code"), record
    assert "out of reach" in record["reason"]
    assert any(dead.address in warning and "not collected" in warning for warning in record["warnings"])
    assert record["nodes"][0]["missing"] and "rank2.out.log" in record["nodes"][1]["files"]
    verdicts = {each["name"]: (each["verdict"], each["reason"]) for each in answer.run_record()["cases"]}
    assert verdicts["TWO"][0] == "skipped" and dead.address in verdicts["TWO"][1]
    assert verdicts["ONE"][0] == "pass", verdicts
    assert answer.round_record("ONE")["nodes"][0]["host"] == testbed.hosts[1].address


def _case_folder(controller: Controller) -> Path:
    run = controller.newest_run()
    assert run is not None
    return run / "LONG"


@pytest.mark.nightly
def test_a_host_that_is_out_of_reach_for_too_long_and_lives_on(controller: Controller, testbed: TestBed) -> None:
    one: dict[str, object] = {**LIGHT, "nnodes": 1}
    controller.configure_test({"LONG": LONG, "ONE": one})
    process = controller.start()
    wait_until("work of rank 3", lambda: in_training(3))
    lost, other = testbed.hosts
    lost.drop_head()
    try:
        answer = controller.finish(process)
    finally:
        lost.rejoin_head()
    assert answer.exit_code == 1 and answer.folder is not None, answer.output
    record = answer.round_record("LONG")
    assert record["verdict"] == "fail" and record["reason"].startswith(f"{lost.address}: no exit code"), record
    silence = re.search(r"out of reach for (\d+) s", record["reason"])
    assert silence is not None and float(silence[1]) >= LINK_LIMIT, record["reason"]
    missing = ["rank0.out.log", "rank1.out.log", "node_exit.json", "monitor.jsonl", "sys_info.json"]
    assert [node["missing"] for node in record["nodes"]] == [missing, []]
    said = [warning for warning in record["warnings"] if lost.address in warning and "not collected" in warning]
    assert all(name in said[0] for name in missing), record["warnings"]
    assert answer.round_record("ONE")["nodes"][0]["host"] == other.address
    assert [case["verdict"] for case in answer.run_record()["cases"]] == ["fail", "pass"]
    images = {node["image_id"] for case in ("LONG", "ONE") for node in answer.round_record(case)["nodes"]}
    assert len(images) == 1, "an image of its own for the host that is left"
    left = controller.containers()
    assert len(left) == 2 and all("-n0" in name for name in left), left
    assert f"run.py clean {answer.folder}`" in answer.output
    cleaned = controller.call("clean", answer.folder.name)
    assert cleaned.exit_code == 0 and all(name in cleaned.output for name in left), cleaned.output
    assert controller.containers() == [] and rank_process(0) is None
    assert lost.exec(["find", str(controller.logs), "-type", "f"]).stdout == ""


@pytest.mark.nightly
def test_ctrl_c_is_not_held_up_by_a_host_that_is_frozen(controller: Controller, testbed: TestBed) -> None:
    # Long, so that it is not the loss of the host that ends the wait for it.
    controller.configure_cluster(LINK_LIMIT=120.0)
    configure(controller, {"LONG": LONG})
    process = controller.start()
    # Its ranks begin without each other, and one that has not begun has no log.
    wait_until("work of ranks 0 and 3", lambda: in_training(0) and in_training(3))
    with frozen(testbed.hosts[1].pids(*SSHD)):
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        answer = controller.finish(process)
        print(f"the end {time.monotonic() - began:.1f} s after it")
        assert time.monotonic() - began < 40.0, "the frozen host holds the end up"
    assert answer.exit_code == 130, answer.output
    record = answer.round_record("LONG")
    assert record["verdict"] == "aborted" and any("could not be stopped" in warning for warning in record["warnings"])
    assert "rank0.out.log" in record["nodes"][0]["files"]
    assert answer.folder is not None
    assert controller.call("clean", answer.folder.name).exit_code == 0
    wait_until("the end of the ranks", lambda: rank_process(0) is None and rank_process(3) is None, 10)
