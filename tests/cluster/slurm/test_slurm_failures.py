"""What Slurm does to a running round, on a real cluster: each has a verdict, Slurm's word, and its host."""

import contextlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests import conftest
from tests.cluster.controller import wait_until
from tests.cluster.faulty_project import WAITS
from tests.cluster.slurm.cluster import SlurmCluster, missing
from tests.cluster.slurm.controller import CASE, SlurmController

pytestmark = [pytest.mark.cluster, pytest.mark.nightly, pytest.mark.timeout(600)]
AWAY_SECONDS = 60.0
RESTART_SECONDS = 40.0  # longer than Slurm's own commands wait
KILLED_SECONDS = 10.0  # in which Slurm notices that a step has lost its srun
STEP_MODULE = "training.benchmarks.driver.launch.step"
WAITING: dict[str, object] = {**CASE, **WAITS}


@pytest.fixture
def controller(tmp_path: Path, slurm_cluster: SlurmCluster, root: Path) -> Iterator[SlurmController]:
    made = SlurmController(tmp_path, slurm_cluster, root)
    made.configure_test({"one": WAITING})
    yield made
    made.end()
    slurm_cluster.cancel_all()


@pytest.fixture
def on_its_own(tmp_path: Path, root: Path, request: pytest.FixtureRequest) -> Iterator[SlurmController]:
    """On a cluster that no other test uses: after an end of slurmctld, jobs may take minutes to leave their nodes.

    A parameter has settings of its slurm.conf.
    """
    if lacking := missing():
        pytest.skip(f"tests of Slurm need {'; '.join(lacking)}")
    folder = conftest.testbed_folder() / "slurm_on_its_own"
    with SlurmCluster(2, folder, getattr(request, "param", {})) as cluster:
        made = SlurmController(tmp_path, cluster, root)
        made.configure_test({"one": WAITING})
        yield made
        made.end()


def test_two_nodes_train_over_gloo(controller: SlurmController) -> None:
    train: dict[str, object] = {"model": "llama", "framework": "pytorch", "config": "config_CPUx1x2"}
    steps = {"max_steps": 4, "target_loss": None}
    controller.configure_test({"train": {**train, "nnodes": 2, "nproc": 1, "overrides": steps}})
    record = controller.call().round_record("train")
    assert record["verdict"] == "pass" and record["world_size"] == 2 and record["metrics"], record


@pytest.mark.parametrize("goes_on", [False, True], ids=["job ends", "allocation around us goes on"])
def test_a_node_that_dies_in_mid_round_is_the_failed_host(controller: SlurmController, goes_on: bool) -> None:
    cluster, dying = controller.cluster, controller.cluster.hosts[1]
    controller.allocation = cluster.allocate(2, "--no-kill") if goes_on else ""
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    dying.kill()
    try:
        answer = controller.finish(process)
    finally:
        cluster.bed.boot(dying)
        dying.link_up()
        cluster.boot_node(dying)
        cluster.cancel_all()
        cluster.wait_idle()
    record = answer.round_record("one")
    assert record["verdict"] == "fail" and record["first_failure"]["host"] == "node2", record
    message = record["first_failure"]["message"]
    assert "node2 is down" in message, message
    assert ("goes on without it (RUNNING)" if goes_on else "NODE_FAIL") in message, message


def test_a_node_that_is_drained_is_taken_out_by_an_acceptance_which_goes_on_with_the_other(
    controller: SlurmController,
) -> None:
    controller.configure_cluster(HOSTS=["node1", "node2"])
    node = ["scontrol", "update", "nodename=node2"]
    controller.cluster.call([*node, "state=drain", "reason=disk"])  # one that is down returns as it registers
    try:
        answer = controller.call("accept", "--nproc", "1", "--rungs", "health,single", "--budget", "5m")
    finally:
        controller.cluster.call([*node, "state=resume"], check=False)
    (file,) = controller.logs.glob("accept*/accept.json")
    record = json.loads(file.read_text())
    assert answer.exit_code == 1 and record["hosts"] == {"node1": "accepted", "node2": "out"}, answer.output
    assert record["drain"]["node2"][0].startswith("Slurm: node2 is drained (disk; by root)"), record["drain"]
    assert [(rung["verdict"], rung["hosts"][-1]) for rung in record["rungs"]] == [("fail", "node2"), ("pass", "node1")]


def test_a_node_that_is_drained_while_the_job_of_an_acceptance_waits_is_taken_out(controller: SlurmController) -> None:
    """While it is asked which tools the hosts have: no gate knows of it before the run, which gets no nodes."""
    cluster, node = controller.cluster, ["scontrol", "update", "nodename=node2"]
    controller.configure_cluster(HOSTS=["node1", "node2"])
    held = cluster.allocate(1, "--nodelist=node2")
    try:
        process = controller.start("accept", "--nproc", "1", "--rungs", "single", "--budget", "5m")
        wait_until("its job", lambda: len(controller.jobs()) > 1)
        cluster.call([*node, "state=drain", "reason=disk"])
        answer = controller.finish(process)
    finally:
        cluster.call(["scancel", held])
        cluster.call([*node, "state=resume"], check=False)
    (file,) = controller.logs.glob("accept*/accept.json")
    record = json.loads(file.read_text())
    assert record["hosts"] == {"node1": "accepted", "node2": "out"}, answer.output
    assert record["drain"]["node2"][0].startswith("Slurm: node2 is drain"), record["drain"]
    assert "(disk; by root)" in record["drain"]["node2"][0], record["drain"]
    assert [rung["verdict"] for rung in record["rungs"]] == ["fail"]


def test_a_preempted_job_aborts_the_round_and_a_resume_runs_it_in_a_new_job(controller: SlurmController) -> None:
    controller.configure_cluster(SLURM_PARTITION="low")
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    controller.cluster.allocate(2, "--partition=main")
    answer = controller.finish(process)
    record = answer.round_record("one")
    assert record["verdict"] == "aborted" and "took its nodes (PREEMPTED" in record["reason"], record
    controller.cluster.cancel_all()
    assert answer.folder is not None
    resumed = controller.start("resume", answer.folder.name)
    wait_until("work of rank 0", lambda: controller.at_work("one", attempt=2))
    controller.let_go("one", attempt=2)
    again = controller.finish(resumed)
    assert again.exit_code == 0 and again.round_record("one", attempt=2)["verdict"] == "pass", again.output


def test_a_job_beyond_the_user_s_limit_is_refused_with_slurm_s_words(controller: SlurmController) -> None:
    change = ["sacctmgr", "--immediate", "--quiet", "modify", "user", "root", "set"]
    controller.cluster.call([*change, "MaxSubmitJobs=0"])
    try:
        answer = controller.call()
    finally:
        controller.cluster.call([*change, "MaxSubmitJobs=-1"])
    assert answer.exit_code == 3 and "AssocMaxSubmitJobLimit" in answer.output, answer.output


def test_a_limit_on_what_a_user_runs_at_once_is_waited_for(controller: SlurmController) -> None:
    change = ["sacctmgr", "--immediate", "--quiet", "modify", "user", "root", "set"]
    controller.configure_test({"one": {**CASE, "nnodes": 1}})
    controller.configure_cluster(HOSTS=1)
    controller.cluster.call([*change, "MaxJobs=1"])
    try:
        before = controller.cluster.allocate(1)
        process = controller.start()
        wait_until("the reason", lambda: controller.said("waits: AssocMaxJobsLimit"))
        controller.cluster.call(["scancel", before])
        answer = controller.finish(process)
    finally:
        controller.cluster.call([*change, "MaxJobs=-1"])
    assert answer.exit_code == 0, answer.output


def test_a_requeued_job_aborts_the_round_and_leaves_the_queue(controller: SlurmController) -> None:
    controller.configure_cluster(SLURM_OPTIONS=["--requeue"])
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    (job,) = controller.jobs()
    controller.cluster.call(["scontrol", "requeue", job])
    record = controller.finish(process).round_record("one")
    assert record["verdict"] == "aborted" and record["reason"].startswith(f"Slurm put job {job} back"), record
    assert controller.jobs() == []


def test_a_round_ends_before_the_allocation_does_and_is_collected(controller: SlurmController) -> None:
    controller.configure_cluster(SLURM_TIME="1")
    record = controller.call().round_record("one")
    assert record["verdict"] == "timeout" and "the time of Slurm's job" in record["reason"], record
    assert [node["missing"] for node in record["nodes"]] == [[], []]


def test_a_job_whose_time_an_operator_cuts_ends_its_round_as_out_of_time(controller: SlurmController) -> None:
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    controller.cluster.call(["scontrol", "update", f"jobid={controller.jobs()[0]}", "timelimit=1"])
    record = controller.finish(process).round_record("one")
    assert record["verdict"] == "timeout" and "its time limit passed (TIMEOUT" in record["reason"], record
    wait_until("the end of its processes", lambda: not controller.processes())


@pytest.mark.parametrize("both", [True, False], ids=["srun whole", "srun's first process"])
def test_what_a_killed_controller_and_its_killed_sruns_left_is_gone_on_with(
    controller: SlurmController, both: bool
) -> None:
    """Its tasks, or a job without a step: by chance, so either is right, and nothing is left at the end."""
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    jobs = controller.jobs()
    process.kill()
    process.communicate(timeout=200)
    for srun in [each for each in psutil.process_iter(["name", "cmdline"]) if is_srun_of(each, jobs)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # its other process ended it
            parent = srun.parent()
            if both or parent is None or parent.name() != "srun":
                srun.kill()
    run = controller.newest_run()
    assert run is not None
    resumed = controller.start("resume", run.name)
    wait_until("the takeover", lambda: controller.said("taken over (attempt 1)"))

    def has_ended() -> bool:
        for attempt in (1, 2):
            if controller.at_work("one", attempt):
                controller.let_go("one", attempt)
        return resumed.poll() is not None

    time.sleep(KILLED_SECONDS)
    wait_until("its end", has_ended)
    answer = controller.finish(resumed)
    assert answer.exit_code == 0, answer.output
    assert controller.jobs() == []
    wait_until("the end of its processes", lambda: not controller.processes())


def test_a_killed_step_takes_its_tasks_along_and_its_node_failed(controller: SlurmController) -> None:
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    kill_step(controller, "node2")
    answer = controller.finish(process)
    record = answer.round_record("one")
    assert record["verdict"] == "fail" and record["first_failure"]["host"] == "node2", record
    wait_until("the end of its processes", lambda: not controller.processes())


@pytest.mark.parametrize("on_its_own", [{"ProctrackType": "proctrack/pgid"}], indirect=True, ids=["pgid"])
def test_a_cancelled_job_leaves_nothing_running_where_slurm_knows_process_groups_alone(
    on_its_own: SlurmController,
) -> None:
    controller = on_its_own
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    controller.cluster.call(["scancel", *controller.jobs()])
    record = controller.finish(process).round_record("one")
    wait_until("the end of its processes", lambda: not controller.processes())
    assert record["verdict"] == "aborted" and "somebody cancelled it" in record["reason"], record


@pytest.mark.parametrize(
    "on_its_own",
    [{"JobAcctGatherFrequency": "task=1", "JobAcctGatherParams": "OverMemoryKill"}],
    indirect=True,
    ids=["over memory"],
)
def test_a_step_that_slurm_ends_for_its_memory_fails_with_the_word_of_the_accounts(on_its_own: SlurmController) -> None:
    """22.05 says CANCELLED of it, with signal 9; a control group would make it OUT_OF_MEMORY."""
    controller = on_its_own
    controller.configure_cluster(SLURM_OPTIONS=["--mem=90"])
    record = controller.call().round_record("one")
    assert record["verdict"] == "fail" and record["first_failure"]["host"] in ("node1", "node2"), record
    assert re.search(
        r"Slurm ended its step 1\.\d+ \(CANCELLED by 0, exit code 0:9\)", record["first_failure"]["message"]
    )
    wait_until("the end of its processes", lambda: not controller.processes())


def test_a_step_that_somebody_cancels_fails_on_its_node_with_the_word_of_the_accounts(
    controller: SlurmController,
) -> None:
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    shown = controller.cluster.call(["squeue", "--noheader", "--steps", "--format=%i %j %N"]).splitlines()
    (step,) = [words[0] for line in shown if (words := line.split())[1].endswith("-one-r1-n1") and words[2] == "node2"]
    controller.cluster.call(["scancel", step])
    answer = controller.finish(process)
    record = answer.round_record("one")
    assert record["verdict"] == "fail" and record["first_failure"]["host"] == "node2", record
    assert f"Slurm ended its step {step} (CANCELLED by 0" in record["first_failure"]["message"], record
    wait_until("the end of its processes", lambda: not controller.processes())


def kill_step(controller: SlurmController, host: str) -> None:
    """Kill the process of the step that holds the tasks of a node, and nothing below it."""
    here = [each for each in controller.processes() if STEP_MODULE in each.cmdline() and host in each.cmdline()[-1]]
    (found,) = [each for each in here if "slurmstepd" in [above.name() for above in each.parents()[:1]]]
    found.kill()


def is_srun_of(process: psutil.Process, jobs: list[str]) -> bool:
    """Whether it is an srun of one of these jobs."""
    return process.info["name"] == "srun" and any(f"--jobid={job}" in (process.info["cmdline"] or ()) for job in jobs)


def test_an_acceptance_waits_for_a_slurmctld_that_is_away_as_it_asks_for_nodes(on_its_own: SlurmController) -> None:
    controller, cluster = on_its_own, on_its_own.cluster
    controller.configure_cluster(HOSTS=["node1", "node2"])
    cluster.stop("slurmctld")
    process = controller.start("accept", "--nproc", "1", "--rungs", "health", "--budget", "15m")
    time.sleep(RESTART_SECONDS)
    cluster.start_controller()
    answer = controller.finish(process)
    (file,) = controller.logs.glob("accept*/accept.json")
    record = json.loads(file.read_text())
    assert record["hosts"] == {"node1": "accepted", "node2": "accepted"} and answer.exit_code == 0, answer.output
    assert "slurmctld does not answer, or just began; asking again for 120 s" in answer.output, answer.output
    assert controller.jobs() == []


def test_a_round_outlives_a_minute_without_slurmctld_and_one_without_the_accounts(on_its_own: SlurmController) -> None:
    controller = on_its_own
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    controller.cluster.stop("slurmctld")
    try:
        wait_until("the outage", lambda: controller.said("trying to reconnect"))
        time.sleep(AWAY_SECONDS)
    finally:
        controller.cluster.start_controller()
    controller.cluster.stop("slurmdbd")
    try:
        time.sleep(AWAY_SECONDS)
        controller.let_go("one")
        answer = controller.finish(process)
    finally:
        controller.cluster.start_accounts()
    record = answer.round_record("one")
    assert answer.exit_code == 0 and record["verdict"] == "pass", answer.output
    assert [node["missing"] for node in record["nodes"]] == [[], []]
