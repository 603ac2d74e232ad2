"""Reads the state of jobs from squeue and sacct, as text in a format of our own.

Their JSON holds nothing more that a verdict needs, and its fields change: `job_state` is a list from 23.11 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf

from run_benchmarks.hosts.slurm.client import SlurmError, call
from run_benchmarks.hosts.slurm.node_names import expanded, folded

# The reason stands last: it is a sentence that may hold any separator ("ReqNodeNotAvail, UnavailableNodes:n2").
# %A is the id by which SLURM_JOB_ID and sacct's JobIDRaw name a job; %i says 12_3 of an array's task, 12+0 of a part.
SQUEUE_FORMAT = "%A|%T|%N|%L|%V|%S|%r"
SACCT_FORMAT = "JobIDRaw,State,ExitCode,NodeList"
# Words of 24.05 among them: EXPEDITING, POWER_UP_NODE, LAUNCH_FAILED, RECONFIG_FAIL. Source: Slurm's page
# job_state_codes. A job whose word is unknown is taken to be at work.
WAITING = frozenset({
    "PENDING", "CONFIGURING", "EXPEDITING", "POWER_UP_NODE", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
})  # fmt: skip
ENDING = "COMPLETING"
FORGOTTEN = "FORGOTTEN"  # our word of a job that slurmctld no longer knows (MinJobAge) and that no accounts hold
# How a job ends that this run did not end; the words follow its number.
ENDS = {
    "NODE_FAIL": "a node of it failed",
    "PREEMPTED": "a job of higher priority took its nodes",
    "TIMEOUT": "its time limit passed",
    "DEADLINE": "its deadline passed",
    "OUT_OF_MEMORY": "it needed more memory than it was given",
    "CANCELLED": "somebody cancelled it",
    "BOOT_FAIL": "a node of it did not boot",
    "LAUNCH_FAILED": "a node of it could not launch it",
    "RECONFIG_FAIL": "a node of it could not be configured for it",
    "REVOKED": "another cluster runs it",
    "FAILED": "it failed",
    "COMPLETED": "it ended",
    FORGOTTEN: "slurmctld no longer knows it, and no accounts say how it ended",
}
FAILED_NODE = ("NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED", "RECONFIG_FAIL")
# Why a job that is accepted never begins, whatever it waits for. Reasons that pass are none of these: Resources,
# Priority, nodes that are away, BeginTime, and limits on what several jobs have together (AssocMaxJobsLimit,
# QOSMaxNodePerUserLimit, QOSGrpCpuLimit). Source: Slurm's page job_reason_codes.
NEVER_BEGINS = re.compile(
    r"(?:Assoc|QOS)Max\w*Per(?:Job|Node)|QOSMin|Partition(?:Node|Time)Limit|PartitionConfig|(?:Association|QOS)TimeLimit"
    r"|(?:Account|QOS)NotAllowed|Invalid(?:Account|QOS)|BadConstraints|DependencyNeverSatisfied|MaxMemPerLimit"
    r"|Reservation(?:Deleted|Invalid)|DeadLine|JobHeld|JobHoldMaxRequeue|.*requeued (?:in )?held"
)
AWAY = re.compile(r"ReqNodeNotAvail|Nodes required for job are DOWN")
"""Why a job waits some of whose nodes are away."""
STEPS_FORMAT = "JobIDRaw,State,ExitCode,JobName"
STEP_GOES_ON = ("PENDING", "RUNNING", "COMPLETING", "COMPLETED")
TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")
NO_ID = ("Invalid job id", "Invalid job ID")


class AccountsAwayError(SlurmError):
    """The accounts, which alone may know how a job ended, do not answer; a later query may have their word."""

    def __init__(self, error: SlurmError) -> None:
        super().__init__(["sacct"], error.detail, is_away=True)


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job as Slurm shows it.

    Attributes:
        state: Slurm's word, such as RUNNING; only the word of "CANCELLED by 0".
        hosts: the nodes that it has.
        seconds_left: until its time limit; None without one.
        submitted: when it came into the queue, "" if unknown; times are Slurm's, local ones without their zone.
        start: when it began, or Slurm's estimate of when it will; "" if there is none.
        reason: why it waits or ended, in Slurm's words; "" if there is none.
    """

    id: str
    state: str
    hosts: tuple[str, ...] = ()
    seconds_left: float | None = None
    submitted: str = ""
    start: str = ""
    reason: str = ""

    @property
    def is_waiting(self) -> bool:
        """Whether it has no nodes yet."""
        return self.state in WAITING

    @property
    def queue_seconds(self) -> float | None:
        """How long it waited for its nodes; None if it waits, or if that is unknown."""
        if self.is_waiting:
            return None
        try:
            began, submitted = map(datetime.fromisoformat, (self.start, self.submitted))
        except ValueError:
            return None
        return max(0.0, (began - submitted).total_seconds())

    @property
    def is_over(self) -> bool:
        """Whether nothing can be started in it any more."""
        return self.state in ENDS or self.state == ENDING

    @property
    def has_no_nodes(self) -> bool:
        """Whether what had nodes has none any more: it is over, or Slurm put it back into the queue."""
        return self.is_over or self.is_waiting

    def has_shrunk(self, host: str) -> bool:
        """Whether it is at work, and no longer has this node of its own."""
        return not self.has_no_nodes and bool(self.hosts) and host not in self.hosts

    def without(self, nodes: Iterable[str]) -> Job:
        """This job, as NODE_FAIL if it ended on fewer hosts than these `nodes`: it went on without the lost ones.

        Slurm says COMPLETED of a job with --no-kill whose last step died with a node.
        """
        lost = [node for node in nodes if node not in self.hosts]
        if self.state not in ENDS or not self.hosts or not lost:
            return self
        return replace(self, state="NODE_FAIL", hosts=tuple(nodes), reason=f"{self.state} without {folded(lost)}")

    @property
    def never_begins(self) -> bool:
        """Whether it waits for what does not come by itself."""
        return self.is_waiting and NEVER_BEGINS.match(self.reason.strip("()")) is not None

    @property
    def lacks_nodes(self) -> bool:
        """Whether it waits for nodes that are away."""
        return self.is_waiting and AWAY.match(self.reason.strip("()")) is not None

    @property
    def end_in_words(self) -> str:
        """How it ended, in words that name Slurm's and its nodes."""
        reason = f", {self.reason}" if self.reason else ""
        if self.is_waiting:
            return f"Slurm put job {self.id} back into the queue ({self.state}{reason})"
        where = f" on {folded(self.hosts)}" if self.hosts else ""
        return f"Slurm's job {self.id} is over: {ENDS.get(self.state, 'it ends')} ({self.state}{reason}){where}"


def squeue_argv(ids: Sequence[str]) -> list[str]:
    """The command that asks for these jobs, ended ones as well."""
    return ["squeue", "--noheader", "--states=all", f"--jobs={','.join(ids)}", f"--format={SQUEUE_FORMAT}"]


def sacct_argv(ids: Sequence[str]) -> list[str]:
    """The command that asks the accounts; without --duplicates a requeued job shows its last incarnation only."""
    return [
        "sacct",
        "--noheader",
        "--parsable2",
        "--allocations",
        "--duplicates",
        f"--jobs={','.join(ids)}",
        f"--format={SACCT_FORMAT}",
    ]


def from_squeue(text: str) -> Iterator[Job]:
    """The jobs in an answer of squeue in SQUEUE_FORMAT; lines of another form are left out."""
    for line in text.splitlines():
        fields = line.split("|", 6)
        if len(fields) == 7:
            number, state, nodes, left, submitted, start, reason = fields
            yield Job(
                id=number.strip(),
                state=state.strip(),
                hosts=expanded(nodes) if nodes.strip("() \t") and not nodes.startswith("(") else (),
                seconds_left=seconds_of(left),
                submitted=submitted,
                start="" if start in ("N/A", "Unknown") else start,
                reason="" if reason in ("None", "(null)") else reason,
            )


def from_sacct(text: str) -> Iterator[Job]:
    """The jobs in an answer of sacct in SACCT_FORMAT: of a requeued one each incarnation, in order."""
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) == 4:
            number, state, _, nodes = fields
            words = state.split() or [""]
            hosts = () if nodes.startswith("None") or not nodes else expanded(nodes)
            yield Job(id=number, state=words[0].rstrip("+"), hosts=hosts, reason=" ".join(words[1:]))


def seconds_of(text: str) -> float | None:
    """Seconds of a time as Slurm writes it: [days-][hours:]minutes:seconds; None for UNLIMITED, INVALID, NOT_SET."""
    found = TIME.fullmatch(text.strip())
    if found is None:
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def seconds_asked(limit: str) -> float:
    """Seconds of a time limit as sbatch takes it: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S; inf for a word."""
    lacking = (2 if "-" in limit else 1) - limit.count(":")
    found = seconds_of(limit + ":00" * lacking)
    return inf if found is None else found


def job_of(number: str) -> Job | None:
    """The state of one job; None if neither slurmctld nor the accounts know it.

    An end is taken from slurmctld: the accounts may be late, and first say FAILED 0:0. While it says COMPLETING, and
    once it has forgotten the job (MinJobAge), the accounts say how it ended.

    Raises:
        AccountsAwayError: slurmctld has forgotten it, and the accounts do not answer.
        SlurmError: slurmctld does not answer.
    """
    try:
        job = _last(from_squeue(call(squeue_argv([number]))), number)
    except SlurmError as error:
        if not any(words in error.detail for words in NO_ID):
            raise
        job = None
    if job is not None and job.state != ENDING:
        return job
    try:
        accounted = _last(from_sacct(call(sacct_argv([number]))), number)
    except SlurmError as error:
        if job is None and error.is_away:
            raise AccountsAwayError(error) from error
        return job
    if accounted is None or (job is not None and not (accounted.state in ENDS or accounted.is_waiting)):
        return job
    return accounted


def ended_steps(number: str) -> dict[str, str]:
    """How the steps of a job ended that did not just come to their end, in words, by the step's name.

    A step may be ended while its job goes on: by the memory that it was given (OUT_OF_MEMORY), by scancel.

    Raises:
        SlurmError: the accounts do not answer.
    """
    argv = ["sacct", "--noheader", "--parsable2", f"--jobs={number}", f"--format={STEPS_FORMAT}"]
    rows = (line.split("|", 3) for line in call(argv).splitlines())
    steps = (row for row in rows if len(row) == 4 and "." in row[0] and row[1] not in STEP_GOES_ON)
    return {name: f"Slurm ended its step {step} ({state}, exit code {code})" for step, state, code, name in steps}


def _last(jobs: Iterable[Job], number: str) -> Job | None:
    found = [job for job in jobs if job.id == number]
    return found[-1] if found else None
