"""The end of an allocation ends the run, unless it is a verdict on a node."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.circumstance import Circumstance, CircumstanceKind
from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.slurm import allocation as allocations
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError
from run_benchmarks.hosts.slurm.host import JobOverError, SlurmHost
from run_benchmarks.hosts.slurm.jobs import WAITING, Job
from run_benchmarks.hosts.slurm.nodes import NodeState
from run_benchmarks.runtimes.process import ProcessTree
from run_benchmarks.runtimes.slurm import _Workload
from run_benchmarks.session import allocation as allocating
from run_benchmarks.session.allocation import _ender, _hosts, _refuse_drained
from run_benchmarks.state.interruption import Interruption


@pytest.mark.parametrize(
    ("state", "ends_the_run"),
    [
        ("CANCELLED", True),
        ("PREEMPTED", True),
        ("PENDING", True),
        ("NODE_FAIL", False),
        ("BOOT_FAIL", False),
        ("LAUNCH_FAILED", False),
        ("REQUEUED", True),
        ("REQUEUE_HOLD", True),
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


@pytest.mark.parametrize("state", ["TIMEOUT", "DEADLINE"])
def test_a_job_whose_time_is_over_is_the_end_of_the_run_s_time(state: str) -> None:
    """Where Slurm's own end came first: somebody made the job's time shorter."""
    interruption = Interruption("clean")
    interruption.end_within(3600.0, "the time that the job had")
    _ender(interruption)(Job(id="12", state=state, hosts=("n1", "n2")))
    assert interruption.time_is_up() and not interruption.is_set()
    assert f"({state}) on n[1-2]" in interruption.time_limit_reason


@pytest.mark.parametrize("ended", ["without an exit code", "by SIGTERM"])
def test_a_task_that_a_lost_job_or_step_took_along_is_no_failure_of_its_own(
    ended: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(*_: object) -> int:
        if ended == "by SIGTERM":
            return 143
        raise TaskError("n1", "task one vanished without an exit code")

    monkeypatch.setattr(ProcessTree, "wait", wait)
    held = Allocation(number="12", is_ours=True)
    monkeypatch.setattr(held, "let_a_query_pass", lambda: None)
    monkeypatch.setattr(held, "job", lambda: Job(id="12", state="CANCELLED"))
    task = object.__new__(_Workload)
    task._host, task._task = SlurmHost("n1", held), SimpleNamespace(name="one")  # type: ignore[assignment]
    with pytest.raises(JobOverError, match="somebody cancelled it"):
        task.wait(1.0)
    monkeypatch.setattr(held, "job", lambda: Job(id="12", state="RUNNING", hosts=("n1",)))
    monkeypatch.setattr(held, "step_end", lambda name: f"Slurm ended its step 12.3 of {name}")
    with pytest.raises(TaskError, match=r"Slurm ended its step 12\.3 of one"):
        task.wait(1.0)


@pytest.mark.parametrize(
    ("kind", "is_there"), [(None, True), (CircumstanceKind.PAUSED, True), (CircumstanceKind.TASK, False)]
)
def test_a_task_whose_supervisor_went_with_its_step_exists_no_more(
    kind: CircumstanceKind | None, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessTree, "exists", lambda _: True)
    monkeypatch.setattr(ProcessTree, "trouble", lambda _: kind and Circumstance(kind=kind, words="its supervisor"))
    assert object.__new__(_Workload).exists() is is_there


@pytest.mark.parametrize(
    ("job", "said"),
    [
        (None, "slurmctld does not answer, so the nodes of job 12 are not known"),
        (Job(id="12", state="TIMEOUT", hosts=("n1", "n2")), r"job 12 is over: its time limit passed \(TIMEOUT\)"),
        (Job(id="12", state="RUNNING", hosts=("n1",)), "job 12 has n1, without n2"),
    ],
)
def test_an_allocation_that_has_not_the_hosts_is_refused_by_what_is_known_of_it(job: Job | None, said: str) -> None:
    """SLURM_JOB_ID may be that of a job that ended while its shell went on in a terminal."""
    cluster = SimpleNamespace(HOSTS=("n1", "n2"), named_hosts=("n1", "n2"))
    prepared: Any = SimpleNamespace(settings=SimpleNamespace(cluster=cluster))
    with pytest.raises(AllocationError, match=said):
        _hosts(prepared, Allocation(number="12", is_ours=False), job)
    if job is None:
        with pytest.raises(AllocationError, match=r"Slurm knows no job 12 \(any more\)"):
            _hosts(prepared, Allocation(number="12", is_ours=False, is_unknown=True), None)


def test_a_job_waits_no_longer_for_a_node_that_somebody_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is down may come back while the job waits."""
    states = {"n1": "down*", "n2": "draining"}
    nodes = [NodeState(name=name, state=state, reason="disk", by="alice") for name, state in states.items()]
    monkeypatch.setattr(allocating, "states_of", lambda names: [each for each in nodes if each.name in names])
    with pytest.raises(AllocationError, match=r"out of service: n2 is draining \(disk; by alice\)$"):
        _refuse_drained(("n1", "n2"))
    _refuse_drained(("n1",))
    _refuse_drained(())


def test_a_node_that_has_not_registered_with_a_new_slurmctld_is_waited_for_and_else_out_of_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = ["unknown", "unknown", "idle"]
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(
        allocating, "states_of", lambda _: [NodeState(name="n1", state=told.pop(0) if told else "unknown", reason="")]
    )
    cluster = SimpleNamespace(needs_allocation=True, LINK_LIMIT=60.0)
    settings: Any = SimpleNamespace(cluster=cluster)
    assert allocating.out_of_service(settings, ["n1"]) == {} and not told
    cluster.LINK_LIMIT = 0.0
    assert allocating.out_of_service(settings, ["n1"]) == {"n1": "n1 is unknown"}


def test_a_node_that_its_job_went_on_without_is_lost_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """As recorded of a job with --no-kill, whose step was killed, too (tests/data/slurm: job 28, RESIZING)."""
    held = Allocation(number="28", is_ours=True)
    monkeypatch.setattr(held, "job", lambda: Job(id="28", state="RUNNING", hosts=("n3",)))
    down = NodeState(name="n2", state="down*", reason="Not responding")
    monkeypatch.setattr(allocations, "states_of", lambda names: [down] if tuple(names) == ("n2",) else [])
    assert held.over("n2") == "n2 is down* (Not responding); Slurm's job 28 goes on without it (RUNNING)"
    assert held.over("n3") == ""
