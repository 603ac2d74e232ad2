"""Gets the hosts of a run from Slurm where it needs an allocation, and gives them back at its end."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError, find, obtain, submit
from run_benchmarks.hosts.slurm.client import SlurmError
from run_benchmarks.hosts.slurm.jobs import FAILED_NODE, Job, job_of
from run_benchmarks.hosts.slurm.node_names import folded
from run_benchmarks.hosts.slurm.nodes import states_of
from run_benchmarks.hosts.slurm.script import Request, Surroundings, surroundings
from run_benchmarks.results.records import JobRecord
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.state.interruption import Interruption

AROUND_US = ("SLURM_JOB_ID", "SLURM_JOBID")
END_SECONDS, END_SHARE = 60.0, 0.2  # of the allocation's time for stopping and collecting; at most this share of it
BLAMES_NODES = (*FAILED_NODE, "OUT_OF_MEMORY")  # ends of a job that are verdicts on its hosts


def request_of(prepared: PreparedRun) -> Request:
    """The allocation that a run asks for."""
    cluster = prepared.settings.cluster
    return Request(
        name=f"clusterdyno-{prepared.plan.key}",
        nodes=len(cluster.HOSTS),
        hosts=() if cluster.are_unnamed else cluster.HOSTS,
        options=cluster.sbatch_options,
    )


@contextmanager
def allocated(prepared: PreparedRun, interruption: Interruption | None = None) -> Iterator[PreparedRun]:
    """The run on hosts that can be reached: as it is, or on the nodes of an allocation, which is given back at the end.

    Inside an allocation (salloc, sbatch) that one is used and stays. The end of an allocation ends the run.

    Raises:
        AllocationError: there are no nodes.
        InterruptedRunError: the run was ended while it waited.
    """
    if not prepared.settings.cluster.needs_allocation:
        yield prepared
        return
    allocation = _around_us() or _of_our_own(prepared, interruption)
    allocation.surroundings = _surroundings(prepared)
    try:
        job = allocation.job()
        hosts = _hosts(prepared, allocation, job)
        if interruption is not None:
            allocation.on_end = _ender(interruption)
            if job is not None and job.seconds_left is not None:
                reason = f"the time of Slurm's job {allocation.number} is over"
                margin = min(END_SECONDS, END_SHARE * job.seconds_left)
                interruption.end_within(job.seconds_left - margin, reason)
        LOG.info("Nodes of Slurm's job %s: %s", allocation.number, folded(hosts))
        yield prepared.allocated(hosts, allocation)
    finally:
        if trouble := allocation.give_back():
            LOG.warning("Slurm's job %s is not cancelled: %s", allocation.number, trouble)


def submit_controller(
    prepared: PreparedRun, command: Sequence[str], output: Path, note: Callable[[JobRecord], None]
) -> None:
    """Submit a job with the run's nodes whose first one runs `command`; `note` receives it before it can begin.

    Raises:
        AllocationError: Slurm does not take it.
    """
    request = dataclasses.replace(request_of(prepared), command=tuple(command), output=str(output).replace("%", "%%"))
    submit(request, lambda number: note(JobRecord(id=number, hosts="")))


def leave_queue(prepared: PreparedRun) -> str | None:
    """Cancel the run's job if it still waits for its nodes; returns its id, None if none waits.

    Raises:
        AllocationError: Slurm does not answer.
    """
    if not prepared.settings.cluster.needs_allocation:
        return None
    try:
        number = find(request_of(prepared).name)
        job = None if number is None else job_of(number)
    except SlurmError as error:
        raise AllocationError(f"Slurm's queue cannot be looked at: {error.detail}") from error
    if job is None or not job.is_waiting:
        return None
    if trouble := Allocation(number=job.id, is_ours=True).give_back():
        raise AllocationError(f"Slurm's job {job.id} is not cancelled: {trouble}")
    return job.id


def is_inside() -> bool:
    """Whether this process runs in an allocation."""
    return _around_us() is not None


def _surroundings(prepared: PreparedRun) -> Surroundings:
    """The surroundings of steps: a container sees our folders, and the data of the cases."""
    plan, cluster = prepared.plan, prepared.settings.cluster
    ours = (str(PurePosixPath(path).parents[1]) for path in (plan.code_dir_host, plan.log_root_host))
    data = (case.data_dir_host for case in plan.cases if case.data_dir_host)
    return surroundings(
        folders=sorted({*ours, *data}),
        setup=cluster.SLURM_SETUP,
        pyxis_image=cluster.SLURM_CONTAINER,
        apptainer_image=cluster.SLURM_APPTAINER,
    )


def _around_us() -> Allocation | None:
    number = next((os.environ[name] for name in AROUND_US if os.environ.get(name)), None)
    return None if number is None else Allocation(number=number, is_ours=False)


def _of_our_own(prepared: PreparedRun, interruption: Interruption | None) -> Allocation:
    check: Callable[[], None] = (lambda: None) if interruption is None else interruption.check
    cluster = prepared.settings.cluster
    if not cluster.are_unnamed:
        _refuse_out_of_service(cluster.HOSTS)
    return obtain(request_of(prepared), limit=cluster.SLURM_QUEUE_LIMIT, check=check, tell=LOG.info)


def _refuse_out_of_service(hosts: tuple[str, ...]) -> None:
    """Refuse nodes that a job would wait for until somebody mends them.

    Raises:
        AllocationError: some are down or drained, or do not exist; with Slurm's reasons.
    """
    try:
        found = states_of(hosts)
    except SlurmError as error:
        raise AllocationError(f"the nodes cannot be looked at: {error.detail}") from error
    if unusable := [node.in_words for node in found if node.is_out_of_service]:
        raise AllocationError(f"nodes of HOSTS are out of service: {'; '.join(unusable)}")
    if unknown := sorted(set(hosts) - {node.name for node in found}):
        raise AllocationError(f"Slurm knows no node {folded(unknown)}")


def _hosts(prepared: PreparedRun, allocation: Allocation, job: Job | None) -> tuple[str, ...]:
    """The nodes of the allocation that the run uses: those of HOSTS, or as many as it says.

    Raises:
        AllocationError: the allocation lacks some.
    """
    cluster = prepared.settings.cluster
    there = job.hosts if job is not None else ()
    wanted = there[: len(cluster.HOSTS)] if cluster.are_unnamed else cluster.HOSTS
    missing = [name for name in wanted if name not in there]
    if missing or len(wanted) < len(cluster.HOSTS):
        lacking = folded(missing) if missing else f"{len(cluster.HOSTS) - len(wanted)} of {len(cluster.HOSTS)} hosts"
        raise AllocationError(f"Slurm's job {allocation.number} has {folded(there) or 'no nodes'}, without {lacking}")
    return wanted


def _ender(interruption: Interruption) -> Callable[[Job], None]:
    """The guard that ends the run when its job is over, unless that is a verdict on a host."""

    def end(job: Job) -> None:
        if job.state not in BLAMES_NODES:
            interruption.end(job.end_in_words)

    return end
