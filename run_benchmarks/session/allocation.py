"""Gets the hosts of a run from Slurm where it needs an allocation, and gives them back at its end."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from run_benchmarks.console.console import LOG
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.hosts.slurm.absence import Sparingly, outlast
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError, left_over, obtain, own_jobs, submit
from run_benchmarks.hosts.slurm.client import SlurmError
from run_benchmarks.hosts.slurm.jobs import FAILED_NODE, Job, job_of, seconds_asked
from run_benchmarks.hosts.slurm.node_names import expanded, folded
from run_benchmarks.hosts.slurm.nodes import NodeState, drained_by_us, states_of
from run_benchmarks.hosts.slurm.script import Request, Surroundings, surroundings
from run_benchmarks.results.records import JobRecord
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.interruption import Interruption, patience

AROUND_US = ("SLURM_JOB_ID", "SLURM_JOBID")
END_SECONDS, END_SHARE = 60.0, 0.2  # of the allocation's time for stopping and collecting; at most this share of it
CHECK_MINUTES = 10
"""The limit of the job of `run.py check`: a short job fits before others that wait (Slurm's backfill)."""
BLAMES_NODES = (*FAILED_NODE, "OUT_OF_MEMORY")  # ends of a job that are verdicts on its hosts
OUT_OF_TIME = ("TIMEOUT", "DEADLINE")


def request_of(prepared: PreparedRun) -> Request:
    """The allocation that a run asks for."""
    cluster = prepared.settings.cluster
    return Request(
        name=f"clusterdyno-{prepared.plan.key}",
        nodes=len(cluster.HOSTS),
        hosts=cluster.named_hosts,
        options=cluster.sbatch_options,
    )


def with_short_job(settings: Settings) -> Settings:
    """The settings with a time limit of CHECK_MINUTES where theirs is longer; SLURM_OPTIONS still win."""
    cluster = settings.cluster
    limit = cluster.SLURM_TIME
    if not cluster.needs_allocation or (limit is not None and seconds_asked(limit) <= CHECK_MINUTES * 60):
        return settings
    short = cluster.model_copy(update={"SLURM_TIME": str(CHECK_MINUTES)})
    return settings.model_copy(update={"cluster": short})


@contextmanager
def allocated(
    prepared: PreparedRun,
    interruption: Interruption | None = None,
    known: JobRecord | None = None,
    note: Callable[[JobRecord], None] = lambda _: None,
    queue_seconds: float | None = None,
) -> Iterator[PreparedRun]:
    """The run on hosts that can be reached: as it is, or on the nodes of an allocation, which is given back at the end.

    Inside an allocation (salloc, sbatch) that one is used and stays. The end of an allocation ends the run. slurmctld
    may be away for LINK_LIMIT, which is told.

    Args:
        known: the job that an earlier controller noted last; it is used where it still has nodes or waits for them.
        note: receives a new job as soon as it is submitted, and any once its nodes are known.
        queue_seconds: to wait for the nodes; None: SLURM_QUEUE_LIMIT.

    Raises:
        AllocationError: there are no nodes.
        InterruptedRunError: the run was ended while it waited.
    """
    if not prepared.settings.cluster.needs_allocation:
        yield prepared
        return
    waiting = _patience(prepared.settings, interruption)
    limit = prepared.settings.cluster.SLURM_QUEUE_LIMIT if queue_seconds is None else queue_seconds

    def found() -> Allocation:
        return _around_us() or _kept(known) or _of_our_own(prepared, interruption, known, note, limit, waiting)

    with _checked(interruption):
        allocation = outlast(found, waiting)
    allocation.patience = waiting
    if prepared.has_jobs_of_cases and is_inside():
        LOG.warning("ALLOCATION has no effect inside Slurm's job %s, which is used as it is", allocation.number)
    allocation.surroundings = surroundings_of(prepared)
    try:
        with _checked(interruption):
            hosts = outlast(lambda: _hosts(prepared, allocation, allocation.job()), waiting)
        job = allocation.job()
        if interruption is not None:
            allocation.on_end = _ender(interruption)
            if job is not None and job.seconds_left is not None:
                reason = f"the time of Slurm's job {allocation.number} is over"
                margin = min(END_SECONDS, END_SHARE * job.seconds_left)
                interruption.end_within(job.seconds_left - margin, reason)
        LOG.info("Nodes of Slurm's job %s: %s", allocation.number, folded(hosts))
        reachable = prepared.allocated(hosts, allocation)
        assert reachable.job is not None
        note(reachable.job)
        yield reachable
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


def leave_queue(prepared: PreparedRun) -> list[str]:
    """Cancel the run's jobs that still wait for their nodes; returns their ids.

    Raises:
        AllocationError: Slurm does not answer.
    """
    if not prepared.settings.cluster.needs_allocation:
        return []
    name = request_of(prepared).name
    try:
        jobs = [job_of(number) for number, found in own_jobs().items() if found == name]
    except SlurmError as error:
        raise AllocationError(f"Slurm's queue cannot be looked at: {error.detail}") from error
    waiting = [job.id for job in jobs if job is not None and job.is_waiting]
    for number in waiting:
        if trouble := Allocation(number=number, is_ours=True).give_back():
            raise AllocationError(f"Slurm's job {number} is not cancelled: {trouble}")
    return waiting


def is_inside() -> bool:
    """Whether this process runs in an allocation."""
    return _around_us() is not None


def surroundings_of(prepared: PreparedRun) -> Surroundings:
    """The surroundings of steps: a container sees our folders, and the data of the cases."""
    plan, cluster = prepared.plan, prepared.settings.cluster
    ours = (str(PurePosixPath(path).parents[1]) for path in (plan.code_dir_host, plan.log_root_host))
    data = (case.data_dir_host for case in plan.cases if case.data_dir_host)
    return surroundings(
        folders=sorted({*ours, *data}),
        setup=cluster.SLURM_SETUP,
        pyxis_image=cluster.SLURM_CONTAINER,
        apptainer_image=cluster.SLURM_APPTAINER,
        apptainer_options=prepared.resolved.vendor.apptainer_options,
    )


def _around_us() -> Allocation | None:
    number = next((os.environ[name] for name in AROUND_US if os.environ.get(name)), None)
    return None if number is None else Allocation(number=number, is_ours=False)


def _kept(known: JobRecord | None) -> Allocation | None:
    """The allocation around an earlier controller, if it still has the nodes; it is not ours to cancel."""
    if known is None or known.is_ours:
        return None
    try:
        job = job_of(known.id) if known.id in own_jobs() else None
    except SlurmError as error:
        raise AllocationError(f"Slurm's queue cannot be looked at: {error.detail}") from error
    if job is None or not set(expanded(known.hosts)) <= set(job.hosts):
        return None
    return Allocation(number=known.id, is_ours=False)


def _patience(settings: Settings, interruption: Interruption | None = None) -> Patience:
    """How long slurmctld may be away: LINK_LIMIT, or until the run has to end."""
    limit = settings.cluster.LINK_LIMIT
    return dataclasses.replace(patience(limit, interruption), tell=Sparingly(LOG.warning, limit))


@contextmanager
def _checked(interruption: Interruption | None) -> Iterator[None]:
    """Say of what Slurm did not answer that the run was ended meanwhile, if it was."""
    try:
        yield
    except AllocationError:
        if interruption is not None:
            interruption.check()
        raise


def _of_our_own(
    prepared: PreparedRun,
    interruption: Interruption | None,
    known: JobRecord | None,
    note: Callable[[JobRecord], None],
    limit: float,
    waiting: Patience,
) -> Allocation:
    check: Callable[[], None] = (lambda: None) if interruption is None else interruption.check
    cluster = prepared.settings.cluster
    request, case = request_of(prepared), prepared.plan.cases[0].name if prepared.is_part else ""
    number = left_over(request.name, None if known is None else known.id)
    if number is None and request.hosts:
        _refuse_out_of_service(request.hosts)
    elif number is None:
        _name_drained(cluster.SLURM_PARTITION)
    return obtain(
        number or request,
        note=lambda new: note(JobRecord(id=new, hosts="", case=case)),
        limit=limit,
        check=check,
        tell=LOG.info,
        check_nodes=lambda: _refuse_drained(request.hosts),
        patience=waiting,
    )


def out_of_service(settings: Settings, hosts: Sequence[str]) -> dict[str, str]:
    """Which of these hosts no new job gets, each with its state in words; those of an allocation around us are ours.

    Raises:
        AllocationError: Slurm does not answer for LINK_LIMIT, or knows no such node.
    """
    if not settings.cluster.needs_allocation or is_inside():
        return {}
    try:
        states = outlast(lambda: _registered(hosts), _patience(settings))
    except AllocationError:
        states = _states(hosts)  # a node that has not registered by now gets no job
    return {node.name: node.in_words for node in states if node.is_out_of_service}


def lost_in(allocation: Allocation | None) -> str:
    """How the job of an allocation ended, by what is no verdict on its nodes; "" while it has them."""
    job = None if allocation is None else allocation.job()
    return "" if job is None or not job.has_no_nodes or job.state in BLAMES_NODES else job.end_in_words


def _states(hosts: Sequence[str]) -> list[NodeState]:
    try:
        return states_of(hosts)
    except SlurmError as error:
        raise AllocationError(f"the nodes cannot be looked at: {error.detail}") from error


def _registered(hosts: Sequence[str]) -> list[NodeState]:
    """The states of nodes, of which a slurmctld that just began says "unknown" until they register with it."""
    found = _states(hosts)
    if unknown := [node.name for node in found if node.state.startswith("unknown")]:
        said = f"{folded(unknown)}: unknown, not registered with slurmctld"
        raise AllocationError(said) from SlurmError(["sinfo"], said, is_away=True)
    return found


def _refuse_out_of_service(hosts: tuple[str, ...]) -> None:
    """Refuse nodes that a job would wait for until somebody mends them."""
    found = _registered(hosts)
    if unusable := [node.in_words for node in found if node.is_out_of_service]:
        raise AllocationError(f"nodes of HOSTS are out of service: {'; '.join(unusable)}")
    if unknown := sorted(set(hosts) - {node.name for node in found}):
        raise AllocationError(f"Slurm knows no node {folded(unknown)}")


def _refuse_drained(hosts: tuple[str, ...]) -> None:
    """Refuse nodes that somebody takes out of service while their job waits; one that is down may come back."""
    with contextlib.suppress(SlurmError):
        if drained := [node.in_words for node in (states_of(hosts) if hosts else ()) if node.is_drained]:
            raise AllocationError(f"nodes of HOSTS are out of service: {'; '.join(drained)}")


def _name_drained(partition: str | None) -> None:
    """Name the nodes that an earlier run's drain list keeps from a run that takes any."""
    with contextlib.suppress(SlurmError):
        for node in drained_by_us(partition):
            LOG.warning("%s: no job gets it until `run.py undrain`", node.in_words)


def _hosts(prepared: PreparedRun, allocation: Allocation, job: Job | None) -> tuple[str, ...]:
    """The nodes of the allocation that the run uses: those of HOSTS, or as many as it says."""
    if job is None and allocation.is_unknown:
        raise AllocationError(f"Slurm knows no job {allocation.number} (any more)")
    if job is None:
        silence = SlurmError(["scontrol", "ping"], "no answer", is_away=True)
        words = f"slurmctld does not answer, so the nodes of job {allocation.number} are not known"
        raise AllocationError(words) from silence
    if job.is_over:
        raise AllocationError(job.end_in_words)
    cluster = prepared.settings.cluster
    there, named = job.hosts, cluster.named_hosts
    missing = [name for name in named if name not in there]
    others = [name for name in there if name not in named]
    wanted = (*named, *others[: len(cluster.HOSTS) - len(named)])
    if missing or len(wanted) < len(cluster.HOSTS):
        lacking = folded(missing) if missing else f"{len(cluster.HOSTS) - len(wanted)} of {len(cluster.HOSTS)} hosts"
        raise AllocationError(f"Slurm's job {allocation.number} has {folded(there) or 'no nodes'}, without {lacking}")
    return wanted


def _ender(interruption: Interruption) -> Callable[[Job], None]:
    """The guard that ends the run when its job is over, or out of time, unless that is a verdict on a host."""

    def end(job: Job) -> None:
        if job.state in OUT_OF_TIME:
            interruption.end_within(0.0, job.end_in_words)
        elif job.state not in BLAMES_NODES:
            interruption.end(job.end_in_words)

    return end
