"""run.py on a real Slurm: an allocation is asked for, used by steps alone, collected from, and given back.

All tests of `make test` with a Slurm cluster are in this file: one worker runs it, and starts one cluster.
"""

import hashlib
import io
import os
import re
import shlex
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from run_benchmarks.errors import CommandError, DeadlineError, LinkLostError
from run_benchmarks.hosts.base import CANCELLED
from run_benchmarks.hosts.outages import OutOfReachError
from run_benchmarks.hosts.slurm import allocation as allocations
from run_benchmarks.hosts.slurm.allocation import Allocation
from run_benchmarks.hosts.slurm.host import SlurmHost
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
SLEEP = "3127"  # seconds, by which a process is found


@pytest.fixture
def controller(tmp_path: Path, slurm_cluster: SlurmCluster, root: Path) -> Iterator[SlurmController]:
    made = SlurmController(tmp_path, slurm_cluster, root)
    yield made
    made.end()
    slurm_cluster.cancel_all()


@dataclass(frozen=True)
class Crowd:
    """The ends of three controllers on a full cluster: one in the job that fills it, one that waits, one that leaves.

    `jobs` are those in the queue before the third left it, after it had, and after the first ended.
    """

    allocation: str
    inside: Answer
    missing: Answer
    waited: Answer
    left: Answer
    jobs: tuple[list[str], list[str], list[str]]


@pytest.fixture(scope="module")
def crowd(slurm_cluster: SlurmCluster, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowd]:
    before, made = slurm_cluster.allocate(2), list[SlurmController]()

    def controller(name: str, allocation: str = "", **changes: object) -> SlurmController:
        made.append(SlurmController(tmp_path_factory.mktemp(name), slurm_cluster, root, allocation))
        made[-1].configure_cluster(**{"HOSTS": "node[1-2]", **changes})
        return made[-1]

    try:
        waiting = controller("waiting", SLURM_PARTITION="main", SLURM_TIME="10")
        leaving, inside = controller("leaving", HOSTS=2), controller("inside", before)
        first, second, third = (each.start() for each in made)
        wait_until("the reasons", lambda: all(each.said(" waits: ") for each in made[:2]))
        all_jobs = waiting.jobs()
        second.send_signal(signal.SIGINT)
        left = leaving.finish(second)
        jobs_then = waiting.jobs()
        answer = inside.finish(third)
        inside.configure_cluster(HOSTS=["node[2-3]"])
        missing, jobs_last = inside.call("check"), waiting.jobs()
        slurm_cluster.call(["scancel", before])
        yield Crowd(
            allocation=before,
            inside=answer,
            missing=missing,
            waited=waiting.finish(first),
            left=left,
            jobs=(all_jobs, jobs_then, jobs_last),
        )
    finally:
        for each in made:
            each.end()
        slurm_cluster.cancel_all()


def test_a_run_submits_a_job_waits_uses_its_nodes_and_gives_them_back(
    crowd: Crowd, slurm_cluster: SlurmCluster
) -> None:
    answer = crowd.waited
    assert answer.exit_code == 0, answer.output
    assert "waits: Resources" in answer.output + crowd.left.output  # the first in the queue
    (job,) = answer.run_record()["jobs"]
    assert answer.folder is not None
    page = (answer.folder / "report.html").read_text()
    assert job["hosts"] == "node[1-2]" and job["queue_seconds"] >= 1
    assert f"after {duration(job['queue_seconds'])} in the queue" in page
    record = answer.round_record("one")
    assert record["verdict"] == "pass"
    assert [node["host"] for node in record["nodes"]] == ["node1", "node2"]
    assert [node["missing"] for node in record["nodes"]] == [[], []]
    assert job["id"] in crowd.jobs[-1] and not slurm_cluster.call(["squeue", "--noheader"]).strip()
    # By the accounts: each node's tasks were one step with all of the job's processors there.
    shown = [
        "sacct",
        "--noheader",
        "--parsable2",
        "--format=JobName%60,AllocCPUS,NNodes,NodeList",
        f"--jobs={job['id']}",
    ]
    steps = [line.split("|") for line in slurm_cluster.call(shown).splitlines() if "-one-r1-n" in line]
    assert sorted(step[1:] for step in steps) == [[str(CPUS), "1", "node1"], [str(CPUS), "1", "node2"]]


def test_inside_an_allocation_its_nodes_are_used_and_it_stays(crowd: Crowd) -> None:
    answer = crowd.inside
    assert answer.exit_code == 0, answer.output
    assert [each["id"] for each in answer.run_record()["jobs"]] == [crowd.allocation]
    assert crowd.missing.exit_code == 3
    assert f"job {crowd.allocation} has node[1-2], without node3" in crowd.missing.output
    assert crowd.allocation in crowd.jobs[-1]


def test_ctrl_c_takes_a_job_out_of_the_full_queue_and_no_other(crowd: Crowd) -> None:
    assert crowd.left.exit_code == 130 and "interrupted by SIGINT" in crowd.left.output, crowd.left.output
    before, after, _ = crowd.jobs
    assert len(before) == 3 and len(after) == 2 and set(after) < set(before) and crowd.allocation in after


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


@pytest.mark.nightly
def test_two_nodes_meet_over_gloo_and_a_failed_rank_is_named(controller: SlurmController) -> None:
    breaks = {"model": "faulty", "overrides": {"fault": "exit", "rank": 1, "steps": 4, "after": 2}}
    controller.configure_test({"breaks": {**CASE, **breaks}})
    answer = controller.call()
    assert answer.exit_code == 1, answer.output
    first = answer.round_record("breaks")["first_failure"]
    assert (first["host"], first["rank"], first["exit_code"]) == ("node2", 1, 7), first


@pytest.mark.nightly
def test_a_killed_controller_s_round_is_taken_over_in_the_job_of_its_journal_and_clean_ends_that_job(
    controller: SlurmController,
) -> None:
    """And neither does anything to another user's job of that name. A later one of ours, which no controller could
    note, is cancelled.
    """
    controller.configure_test({"one": WAITING, "two": WAITING})
    process = controller.start()
    wait_until("work of rank 0", lambda: controller.at_work("one"))
    jobs = controller.jobs()
    process.kill()
    process.communicate(timeout=200)
    run = controller.newest_run()
    assert run is not None and len(jobs) == 1 and controller.jobs() == jobs
    name = controller.cluster.call(["squeue", "--noheader", f"--jobs={jobs[0]}", "--format=%j"]).strip()
    other = controller.cluster.submit_as_other(name)
    controller.cluster.call(["sbatch", f"--job-name={name}", "--nodes=2", "--exclusive", "--chdir=/", "--wrap=true"])
    resumed = controller.start("resume", run.name)
    wait_until("the takeover", lambda: controller.said("taken over (attempt 1)"))
    controller.let_go("one")
    wait_until("work of the second case", lambda: controller.at_work("two"))
    ended = read_round(run / "one" / "round1")
    assert ended is not None and ended.verdict == "pass" and ended.attempt == 1
    assert not controller.said("it is run again")
    assert [job.id for job in load_record(run / "run.json", RunRecord).jobs] == jobs
    assert set(controller.jobs()) == {*jobs, other}
    resumed.kill()
    resumed.communicate(timeout=200)
    answer = controller.call("clean", run.name)
    assert answer.exit_code == 0 and "two/round1/node1_noderank0.workload" in answer.output, answer.output
    assert controller.jobs() == [other]


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


@pytest.mark.nightly
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
    resumed.communicate(timeout=200)
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
    process.communicate(timeout=200)
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


@pytest.mark.nightly
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
    process.communicate(timeout=200)
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


@pytest.mark.nightly
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
        assert applied.exit_code == 0 and "node2: left as it is: node2 is drained (disk; Bob; by" in applied.output
        refused = controller.call("check")
        assert refused.exit_code == 3, refused.output
        assert "node1 is drained (clusterdyno run20261125160000: net round 1: slow; 3|4 pairs; by" in refused.output
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


def test_a_job_runs_on_each_host_and_is_accounted(slurm_cluster: SlurmCluster) -> None:
    command = ["srun", "--nodes=2", f"--cpus-per-task={CPUS}", "--job-name=first", "sh", "-c"]
    said = slurm_cluster.call([*command, "echo $(cat /proc/sys/kernel/hostname) $SLURM_CPUS_ON_NODE"])
    assert sorted(said.splitlines()) == [f"node1 {CPUS}", f"node2 {CPUS}"]
    shown = ["sacct", "--noheader", "--parsable2", "--name=first", "--format=State,NNodes,User", "--allocations"]
    wait_until("its row in the accounts", lambda: slurm_cluster.call(shown) == "COMPLETED|2|root\n", 20)


def test_a_user_of_no_account_and_a_partition_that_is_not_there_are_refused(slurm_cluster: SlurmCluster) -> None:
    for option, said in (("--partition=none", "invalid partition"), ("--account=none", "Invalid account")):
        refused = ["sh", "-c", f"srun {option} true 2>&1 || true"]
        assert said in slurm_cluster.call(refused)


def test_a_task_of_an_array_and_a_part_of_a_heterogeneous_job_are_known_by_their_slurm_job_id(
    slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In which run.py may run; squeue shows them as 7_1 and 9+1."""
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environment["SLURM_CONF"])
    job = ["sbatch", "--nodes=1", "--output=/dev/null", "--chdir=/"]
    slurm_cluster.call([*job, "--array=1-2", "--wrap=exec sleep infinity"])
    slurm_cluster.call([*job, ":", "--nodes=1", "--wrap=exec sleep infinity"])
    listed = ["squeue", "--noheader", "--array", "--states=RUNNING", "--format=%A %i %N"]
    wait_until("all four", lambda: len(slurm_cluster.call(listed).splitlines()) == 4)
    shown = [line.split() for line in slurm_cluster.call(listed).splitlines()]
    assert sorted(re.sub(r"\d", "", each) for _, each, _ in shown) == ["+", "+", "_", "_"]
    for number, _, node in shown:
        found = Allocation(number=number, is_ours=False).job()
        assert found is not None and (found.id, found.state, found.hosts) == (number, "RUNNING", (node,))
    slurm_cluster.cancel_all()


@pytest.fixture
def host(slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmHost]:
    monkeypatch.setenv("SLURM_CONF", slurm_cluster.environment["SLURM_CONF"])
    job = slurm_cluster.allocate(1, "--nodelist=node1")
    yield SlurmHost("node1", Allocation(number=job, is_ours=True))
    slurm_cluster.cancel_all()


def sleeping(cluster: SlurmCluster) -> str:
    return cluster.hosts[0].exec(["sh", "-c", f"pgrep -f 'sleep [{SLEEP[0]}]{SLEEP[1:]}' || true"]).stdout


def test_bytes_exit_codes_and_streams_arrive_as_they_are(host: SlurmHost) -> None:
    data = bytes(range(256)) * 4096 + os.urandom(1 << 20)
    received = bytearray()
    done = host.run(["sh", "-c", "cat; echo said >&2"], deadline=60, stdin=io.BytesIO(data), on_stdout=received.extend)
    assert hashlib.sha256(received).digest() == hashlib.sha256(data).digest()
    assert (done.exit_code, done.stderr) == (0, "said\n")
    words = ["printf", "%s|", "a b", "$(id)", "'\"\\", "é\n"]
    assert host.run(words, deadline=30).stdout == "a b|$(id)|'\"\\|é\n|"
    with pytest.raises(CommandError, match="exited 137"):
        host.run(["sh", "-c", "kill -9 $$"], deadline=30)
    assert host.run(["false"], deadline=30, check=False).exit_code == 1


def test_a_step_that_holds_tasks_has_the_node_s_processors_and_leaves_room_for_others(
    host: SlurmHost, slurm_cluster: SlurmCluster
) -> None:
    script = f'echo ready; echo "$SLURM_CPUS_ON_NODE" >/tmp/cpus; exec sleep {SLEEP}'
    host.hold_step(["sh", "-c", script], b"", seconds=30)
    assert host.run(["cat", "/tmp/cpus"], deadline=30).stdout == f"{CPUS}\n"
    assert host.run(["sh", "-c", "echo $SLURM_CPUS_ON_NODE"], deadline=30).stdout == "1\n"
    with pytest.raises(LinkLostError, match="did not begin within 1 s"):
        host.hold_step(["sh", "-c", "echo no >&2; sleep 9"], b"", seconds=1)
    assert host._allocation.give_back() == ""
    wait_until("the end of the tasks", lambda: not sleeping(slurm_cluster), 30)


def test_nothing_runs_on_after_a_deadline_or_a_cancelling(host: SlurmHost, slurm_cluster: SlurmCluster) -> None:
    with pytest.raises(DeadlineError, match="did not end within 1 s"):
        host.run(["sleep", SLEEP], deadline=1)
    cancel = threading.Event()
    threading.Timer(0.5, cancel.set).start()
    assert host.run(["sleep", SLEEP], deadline=60, cancel=cancel).exit_code == CANCELLED
    wait_until("the end of both", lambda: not sleeping(slurm_cluster), 20)


def test_a_job_that_ended_is_no_outage(
    host: SlurmHost, slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "QUERY_SECONDS", 0.0)
    host.connect()
    slurm_cluster.call(["scancel", host._allocation.number])
    with pytest.raises(OutOfReachError, match="somebody cancelled it"):
        host.run(["true"], deadline=30)
