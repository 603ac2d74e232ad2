"""run.py on a real Slurm: an allocation is asked for, used by steps alone, collected from, and given back."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_benchmarks.report.overview import duration
from run_benchmarks.results.records import DrainRecord, RunRecord, load_record, read_round, write_record
from run_benchmarks.state.journal import Journal
from tests.cluster.controller import Answer, wait_until
from tests.cluster.faulty_project import WAITS, project
from tests.cluster.slurm.cluster import OTHER_USER, SlurmCluster
from tests.cluster.slurm.controller import CASE, SlurmController
from tests.cluster.slurm.files import CPUS
from tests.docs.pages import ROOT
from tests.docs.tutorials import follow
from tests.run_benchmarks.results.rounds import run_record

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
WAITING: dict[str, object] = {**CASE, **WAITS}


@pytest.fixture
def controller(tmp_path: Path, slurm_cluster: SlurmCluster, root: Path) -> Iterator[SlurmController]:
    made = SlurmController(tmp_path, slurm_cluster, root)
    yield made
    made.end()
    slurm_cluster.cancel_all()


def test_a_run_submits_a_job_waits_uses_its_nodes_and_gives_them_back(controller: SlurmController) -> None:
    controller.configure_cluster(HOSTS="node[1-2]", SLURM_PARTITION="main", SLURM_TIME="10")
    before = controller.cluster.allocate(2)
    process = controller.start()
    wait_until("the reason", lambda: controller.said("waits: Resources"))
    controller.cluster.call(["scancel", before])
    answer = controller.finish(process)
    assert answer.exit_code == 0, answer.output
    (job,) = answer.run_record()["jobs"]
    assert answer.folder is not None
    page = (answer.folder / "report.html").read_text()
    assert job["hosts"] == "node[1-2]" and job["queue_seconds"] >= 1
    assert f"after {duration(job['queue_seconds'])} in the queue" in page
    record = answer.round_record("one")
    assert record["verdict"] == "pass"
    assert [node["host"] for node in record["nodes"]] == ["node1", "node2"]
    assert [node["missing"] for node in record["nodes"]] == [[], []]
    assert controller.jobs() == []
    # By the accounts: each node's tasks were one step with all of the job's processors there.
    shown = ["sacct", "--noheader", "--parsable2", "--format=JobName%60,AllocCPUS,NNodes,NodeList", "--allusers"]
    steps = [line.split("|") for line in controller.cluster.call(shown).splitlines() if "-one-r1-n" in line]
    assert sorted(step[1:] for step in steps) == [[str(CPUS), "1", "node1"], [str(CPUS), "1", "node2"]]


@pytest.mark.nightly
def test_the_tutorial_s_five_lines_and_commands(controller: SlurmController, monkeypatch: pytest.MonkeyPatch) -> None:
    block = re.search(r"```python\n(.*?)```", (ROOT / "docs/tutorials/slurm.md").read_text(), re.DOTALL)
    assert block is not None
    controller.cluster_conf.write_text(block[1].replace("gpu[01-02]", "node[1-2]"))
    controller.configure_test({"ALL_REDUCE": CASE}, HISTORY="off")
    for name, value in controller.cluster.environment.items():
        monkeypatch.setenv(name, value)

    def said(command: str) -> str:
        run = command.replace(".venv/bin/python run_benchmarks/run.py", shlex.join(controller.argv()))
        return f"set -o pipefail; {run} | sed -e 's/node.1-2./gpu[01-02]/' -e 's/node\\([12]\\)/gpu0\\1/g'"

    follow("slurm", controller.logs.parent, said)
    assert controller.jobs() == []


def test_inside_an_allocation_its_nodes_are_used_and_it_stays(controller: SlurmController) -> None:
    job = controller.cluster.allocate(2)
    controller.allocation = job
    controller.configure_cluster(HOSTS="node[1-2]")
    answer = controller.call()
    assert answer.exit_code == 0 and [each["id"] for each in answer.run_record()["jobs"]] == [job], answer.output
    controller.configure_cluster(HOSTS="node[2-3]")
    missing = controller.call("check")
    assert missing.exit_code == 3 and f"job {job} has node[1-2], without node3" in missing.output
    assert controller.jobs() == [job]


@pytest.mark.nightly
def test_two_nodes_meet_over_gloo_and_a_failed_rank_is_named(controller: SlurmController) -> None:
    breaks = {"model": "faulty", "overrides": {"fault": "exit", "rank": 1, "steps": 4, "after": 2}}
    controller.configure_test({"breaks": {**CASE, **breaks}})
    answer = controller.call()
    assert answer.exit_code == 1, answer.output
    first = answer.round_record("breaks")["first_failure"]
    assert (first["host"], first["rank"], first["exit_code"]) == ("node2", 1, 7), first


def test_clean_ends_the_job_of_a_killed_controller_and_leaves_another_user_s_of_that_name(
    controller: SlurmController,
) -> None:
    controller.configure_test({"one": WAITING})
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    (job,) = controller.jobs()
    process.kill()
    process.communicate(timeout=60)
    run = controller.newest_run()
    assert run is not None
    name = controller.cluster.call(["squeue", "--noheader", f"--jobs={job}", "--format=%j"]).strip()
    other = controller.cluster.submit_as_other(name)
    answer = controller.call("clean", run.name)
    assert answer.exit_code == 0 and "one/round1/node1_noderank0.workload" in answer.output, answer.output
    assert controller.jobs() == [other]


def test_a_killed_controller_s_round_is_taken_over_in_the_job_of_its_journal(controller: SlurmController) -> None:
    """And not in a later job of that name, which no controller could note: it is cancelled."""
    controller.configure_test({"one": WAITING})
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    jobs = controller.jobs()
    process.kill()
    process.communicate(timeout=60)
    run = controller.newest_run()
    assert run is not None and len(jobs) == 1 and controller.jobs() == jobs
    name = controller.cluster.call(["squeue", "--noheader", f"--jobs={jobs[0]}", "--format=%j"]).strip()
    controller.cluster.call(["sbatch", f"--job-name={name}", "--nodes=2", "--exclusive", "--chdir=/", "--wrap=true"])
    resumed = controller.start("resume", run.name)
    wait_until("the takeover", lambda: controller.said("taken over (attempt 1)"))
    controller.let_go("one")
    answer = controller.finish(resumed)
    assert answer.exit_code == 0, answer.output
    assert "it is run again" not in answer.output
    assert answer.round_record("one")["attempt"] == 1
    assert [job["id"] for job in answer.run_record()["jobs"]] == jobs and controller.jobs() == []


def one_case_loses_its_job(controller: SlurmController) -> Answer:
    """A run of two cases with a job each, whose first job somebody cancels, after which nothing of it runs on."""
    controller.configure_test({"one": {**WAITING, "nnodes": 1}, "two": CASE})
    controller.configure_cluster(ALLOCATION="case")
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    (first,) = controller.jobs()
    assert controller.cluster.call(["squeue", "--noheader", f"--jobs={first}", "--format=%D"]).strip() == "1"
    modules = {word for each in controller.processes() for word in each.cmdline()}
    assert {"monitors", "training.benchmarks.driver.launch", "training.benchmarks.driver.launch.rank"} <= modules
    controller.cluster.call(["scancel", first])
    answer = controller.finish(process)
    wait_until("the end of its processes", lambda: not controller.processes())
    assert answer.run_record()["jobs"][0]["id"] == first
    return answer


def test_each_case_has_a_job_of_its_own_and_one_that_is_lost_ends_its_case_alone(controller: SlurmController) -> None:
    """And nothing of it runs on, though Slurm tracks no control groups here: it knows processes by their parents."""
    answer = one_case_loses_its_job(controller)
    assert answer.round_record("one")["verdict"] == "aborted", answer.output
    assert answer.round_record("two")["verdict"] == "pass", answer.output
    jobs = [(job["case"], job["hosts"]) for job in answer.run_record()["jobs"]]
    assert jobs == [("one", "node1"), ("two", "node[1-2]")] and controller.jobs() == []


@pytest.mark.nightly
def test_a_resume_gives_a_job_to_the_case_alone_that_lost_its_own(controller: SlurmController) -> None:
    answer = one_case_loses_its_job(controller)
    assert answer.folder is not None
    resumed = controller.start("resume", answer.folder.name)
    wait_until("work of rank 0", lambda: controller.at_work("one", attempt=2) or resumed.poll() is not None)
    assert resumed.poll() is None, controller.finish(resumed).output
    jobs = controller.jobs()
    assert jobs not in ([], [answer.run_record()["jobs"][0]["id"]])
    resumed.kill()
    resumed.communicate(timeout=60)
    resumed = controller.start("resume", answer.folder.name)
    wait_until("the takeover", lambda: controller.said("taken over (attempt 2)"))
    assert controller.jobs() == jobs
    controller.let_go("one", attempt=2)
    again = controller.finish(resumed)
    assert again.exit_code == 0 and again.round_record("one", attempt=2)["verdict"] == "pass", again.output
    assert [job["case"] for job in again.run_record()["jobs"]] == ["one", "two", "one"]
    assert controller.jobs() == []


@pytest.mark.nightly
def test_collect_gets_a_job_on_the_nodes_of_the_case_alone_whose_files_are_owed(controller: SlurmController) -> None:
    answer = one_case_loses_its_job(controller)
    assert answer.folder is not None
    assert not answer.round_record("one")["nodes"][0]["files"]
    collected = controller.call("collect", answer.folder.name)
    (node,) = collected.round_record("one")["nodes"]
    assert node["missing"] == [] and {"rank0.out.log", "node_exit.json"} <= node["files"].keys()
    assert [(job["case"], job["hosts"]) for job in collected.run_record()["jobs"]][2:] == [("one", "node1")]
    assert controller.jobs() == []
    assert "nothing is to be collected" in controller.call("collect", answer.folder.name).output


@pytest.mark.nightly
def test_clean_ends_the_job_of_the_case_that_a_killed_controller_ran(controller: SlurmController) -> None:
    controller.configure_test({"one": {**WAITING, "nnodes": 1}, "two": CASE})
    controller.configure_cluster(ALLOCATION="case")
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    process.kill()
    process.communicate(timeout=60)
    run = controller.newest_run()
    assert run is not None and len(controller.jobs()) == 1
    answer = controller.call("clean", run.name)
    assert answer.exit_code == 0 and "one/round1/node1_noderank0.workload" in answer.output, answer.output
    assert controller.jobs() == []
    # A job is no longer in the list while its last processes end.
    wait_until("the end of its processes", lambda: not controller.processes())


@pytest.mark.nightly
def test_a_job_that_somebody_cancels_aborts_the_round_with_slurm_s_word(controller: SlurmController) -> None:
    controller.configure_test({"one": WAITING})
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    (job,) = controller.jobs()
    controller.cluster.call(["scancel", job])
    answer = controller.finish(process)
    wait_until("the end of its processes", lambda: not controller.processes())
    record = answer.round_record("one")
    assert record["verdict"] == "aborted", record
    assert f"job {job} is over: somebody cancelled it (CANCELLED" in record["reason"]


def test_ctrl_c_ends_two_cases_that_run_side_by_side_in_one_job_collects_them_and_cancels_it(
    controller: SlurmController,
) -> None:
    controller.configure_test({name: {**WAITING, "nnodes": 1} for name in ("one", "two")}, MAX_PARALLEL_CASES=2)
    process = controller.start()
    wait_until("work of both", lambda: controller.at_work("one") and controller.at_work("two"))
    assert len(controller.jobs()) == 1 and controller.processes()
    process.send_signal(signal.SIGINT)
    answer = controller.finish(process)
    assert answer.exit_code == 130, answer.output
    records = [answer.round_record(case) for case in ("one", "two")]
    assert [record["nodes"][0]["host"] for record in records] == ["node1", "node2"]
    for record in records:
        assert (record["verdict"], record["reason"]) == ("aborted", "interrupted by SIGINT")
        assert record["nodes"][0]["missing"] == [] and record["nodes"][0]["files"]
    assert controller.jobs() == []
    # A job is no longer in the list while its last processes end.
    wait_until("the end of its processes", lambda: not controller.processes())


@pytest.mark.nightly
def test_clean_takes_a_job_out_of_the_queue_without_waiting_for_its_nodes(slurm_cluster: SlurmCluster) -> None:
    """Of a controller that was killed while it waited, and of one that the job itself would run."""
    controller = SlurmController(slurm_cluster.shared, slurm_cluster, project(slurm_cluster.shared / "p1"))
    before = slurm_cluster.allocate(2)
    process = controller.start()
    wait_until("the reason", lambda: controller.said("waits: Resources"))
    process.kill()
    process.communicate(timeout=60)
    controller.configure_cluster(SLURM_DETACH=True)
    for words in ((), ("run", "--detach")):
        run = controller.call(*words).folder if words else controller.newest_run()
        assert run is not None
        cleaned = controller.call("clean", run.name)
        assert cleaned.exit_code == 0 and "which waited for nodes, is cancelled" in cleaned.output, cleaned.output
    assert controller.jobs() == [before]
    slurm_cluster.cancel_all()


@pytest.mark.nightly
def test_a_detached_controller_runs_in_the_job_and_its_results_lie_on_the_shared_file_system(
    slurm_cluster: SlurmCluster,
) -> None:
    controller = SlurmController(slurm_cluster.shared, slurm_cluster, project(slurm_cluster.shared / "project"))
    controller.configure_cluster(SLURM_DETACH=True)
    before = slurm_cluster.allocate(2)
    begun = controller.call("run", "--detach")
    run = controller.newest_run()
    assert begun.exit_code == 0 and run is not None and "is begun by a job of Slurm" in begun.output, begun.output
    (job,) = set(controller.jobs()) - {before}
    shown = controller.call("status", run.name).output
    assert f"submitted: Slurm's job {job} begins it" in " ".join(shown.split())
    slurm_cluster.call(["scancel", before])
    wait_until("its end", lambda: Journal(run).read().run_ended)
    wait_until("the job's end", lambda: not controller.jobs())
    record = load_record(run / "run.json", RunRecord)
    assert record.verdict == "pass", (run / "console.log").read_text()
    assert [each.id for each in record.jobs] == [job] and record.command[1] == "resume"
    ended = read_round(run / "one" / "round1")
    assert ended is not None and [(node.host, node.missing) for node in ended.nodes] == [("node1", []), ("node2", [])]


def test_a_full_queue_is_told_and_ctrl_c_takes_the_job_out_of_it(controller: SlurmController) -> None:
    controller.cluster.allocate(2)
    process = controller.start()
    wait_until("the reason", lambda: controller.said("waits: Resources"))
    process.send_signal(signal.SIGINT)
    answer = controller.finish(process)
    assert answer.exit_code == 130 and "interrupted by SIGINT" in answer.output, answer.output
    assert len(controller.jobs()) == 1


def test_the_drain_list_of_a_run_reaches_slurm_and_is_taken_back_by_its_reason(
    controller: SlurmController, tmp_path: Path
) -> None:
    controller.configure_cluster(HOSTS=["node[1-2]"])
    run = tmp_path / "result" / "run20261125160000"
    run.mkdir(parents=True)
    listed = [DrainRecord(host=name, reasons=["net round 1: slow; 3|4 pairs"]) for name in ("node1", "node2")]
    write_record(run / "run.json", run_record({}).model_copy(update={"drain": listed}))
    call, resume = controller.cluster.call, ["scontrol", "update", "nodename=node[1-2]", "state=resume"]
    call(["scontrol", "update", "nodename=node2", "state=drain", "reason=disk; Bob"])
    program = tmp_path / "bin" / "scontrol"  # as an ordinary user's
    program.parent.mkdir()
    real = shutil.which("scontrol")
    program.write_text(f'#!/bin/sh\nexec setpriv --reuid={OTHER_USER} --clear-groups {real} "$@"\n')
    program.chmod(0o755)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
            refused = controller.call("drain", str(run), "--apply")
        assert refused.exit_code == 1 and "ask a Slurm operator or administrator" in refused.output, refused.output
        applied = controller.call("drain", str(run), "--apply")
        assert applied.exit_code == 0 and "node2: left as it is: node2 is drained (disk; Bob)" in applied.output
        refused = controller.call("check")
        assert refused.exit_code == 3, refused.output
        assert "node1 is drained (clusterdyno run20261125160000: net round 1: slow; 3|4 pairs)" in refused.output
        assert controller.jobs() == []
        controller.configure_cluster(SLURM_PARTITION="main", SLURM_QUEUE_LIMIT=1)
        named = controller.call("check").output
        assert "node1 is drained (clusterdyno run20261125160000" in named and "node2 is drained" not in named, named
        back = controller.call("undrain", str(run))
        assert "node1: in service again" in back.output and "node2: left as it is" in back.output
        shown = call(["sinfo", "--noheader", "--Node", "--partition=main", "--format=%N %T"]).split()
        assert shown[2:] == ["node2", "drained"] and shown[1].startswith("idle")
    finally:
        call(resume, check=False)
