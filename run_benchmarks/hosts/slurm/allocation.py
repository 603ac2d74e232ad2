"""Holds an allocation of Slurm: asks for it, waits for its nodes, knows how its job is, and gives it back."""

import contextlib
import getpass
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.outages import IMPATIENT, Patience
from run_benchmarks.hosts.slurm import jobs
from run_benchmarks.hosts.slurm.absence import outlast
from run_benchmarks.hosts.slurm.client import CANCEL_SECONDS, SlurmError, call
from run_benchmarks.hosts.slurm.jobs import Job
from run_benchmarks.hosts.slurm.node_names import count_of, expanded
from run_benchmarks.hosts.slurm.nodes import states_of
from run_benchmarks.hosts.slurm.script import Request, Surroundings, batch_script

QUERY_SECONDS = 5.0  # between two queries of the same controller
FIRST_SECONDS = 1.5  # most jobs that find free nodes have begun by then
POLL_SECONDS = 0.2
PING_SECONDS = 5.0
END_SECONDS = 60.0  # for COMPLETING, before the accounts or slurmctld say how a job ended
MISSING_LOOKS = 3  # queries in a row that do not know a job which was just submitted
SHARE = re.compile(r"^\s*Nodes=(\S+) CPU_IDs=(\S+) Mem=", re.MULTILINE)
NEXT_JOB = re.compile(r"^(?=JobId=)", re.MULTILINE)


class AllocationError(ClusterDynoError):
    """Slurm does not give the nodes; the message says why."""

    ends_with = 3


@dataclass
class Allocation:
    """One job whose nodes a run uses.

    Attributes:
        number: its job id.
        is_ours: whether this run asked for it, and gives it back; not one in which run.py itself runs.
        surroundings: what the commands of its steps run in.
        patience: how long slurmctld may be away as its first steps begin, and as it is given back.
        is_unknown: whether Slurm answered last that it knows no such job.
        on_end: called with the job as soon as it is known to have lost its nodes, before anybody else learns of it.
    """

    number: str
    is_ours: bool
    surroundings: Surroundings = field(default_factory=Surroundings)
    patience: Patience = IMPATIENT
    is_unknown: bool = False
    on_end: Callable[[Job], None] = lambda _: None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _asked: float = float("-inf")
    _job: Job | None = None
    _nodes: tuple[str, ...] = ()  # that it had, until the loss of them is told
    _ending_since: float | None = None
    _is_given_back: bool = False
    _cpus: dict[str, int] = field(default_factory=dict)
    _steps: dict[str, str] = field(default_factory=dict)
    _steps_asked: float = float("-inf")

    def job(self) -> Job | None:
        """Its state, at most QUERY_SECONDS old if slurmctld answers; None if nothing is known."""
        with self._lock:
            is_over = self._job is not None and self._job.is_over and self._job.state != jobs.ENDING
            if not is_over and time.monotonic() - self._asked >= QUERY_SECONDS:
                self._ask()
            return self._job

    @property
    def queue_seconds(self) -> float | None:
        """How long it waited for its nodes, by the last query; None if unknown."""
        return None if self._job is None else self._job.queue_seconds

    def let_a_query_pass(self) -> None:
        """Wait until the last answer is so old that the next call of `job` asks Slurm anew."""
        time.sleep(max(0.0, min(QUERY_SECONDS, self._asked + QUERY_SECONDS - time.monotonic())))

    def _ask(self) -> None:
        try:
            ping()  # squeue would wait for 18 s if slurmctld is away
            found = jobs.job_of(self.number)
        except jobs.AccountsAwayError:
            self.is_unknown, self._ending_since = True, self._ending_since or time.monotonic()
            if self._is_ending:
                return
            found = None
        except SlurmError:
            return
        finally:
            self._asked = time.monotonic()
        self.is_unknown = found is None
        if found is None:
            if not self._nodes:
                return
            found = Job(id=self.number, state=jobs.FORGOTTEN)
        self._nodes = self._nodes or (() if found.has_no_nodes else found.hosts)
        self._job = found = found.without(self._nodes)
        self._ending_since = (self._ending_since or self._asked) if found.state == jobs.ENDING else None
        if found.has_no_nodes and self._nodes and not self._is_ending and not self._is_given_back:
            self._nodes = ()  # it is told once
            self.on_end(found)

    @property
    def _is_ending(self) -> bool:
        """Whether it is over and Slurm does not say yet why; after END_SECONDS that counts as not to be known."""
        return self._ending_since is not None and time.monotonic() - self._ending_since < END_SECONDS

    def over(self, host: str) -> str:
        """How a node's job ended or went on without it (salloc --no-kill); "" while the job has it, or unknown."""
        job = self.job()
        while job is not None and job.state == jobs.ENDING and (self._ending_since is None or self._is_ending):
            self.let_a_query_pass()  # None: another thread has just learnt of the end, and tells it
            job = self.job()
        if job is not None and job.has_shrunk(host):
            return _with_failed(host, (host,), f"Slurm's job {job.id} goes on without it ({job.state})")
        if job is None or not job.has_no_nodes:
            return ""
        if job.state not in jobs.FAILED_NODE:
            return job.end_in_words
        return _with_failed(host, job.hosts or (host,), job.end_in_words)

    def step_end(self, name: str) -> str:
        """How a step was ended by somebody, or by Slurm; "" if it was not, or the accounts say nothing of it yet."""
        with self._lock:
            if time.monotonic() - self._steps_asked >= QUERY_SECONDS:
                with contextlib.suppress(SlurmError):
                    self._steps = jobs.ended_steps(self.number)
                self._steps_asked = time.monotonic()
            return self._steps.get(name, "")

    def cpus(self, host: str) -> int:
        """How many processors the job has on a node.

        Raises:
            SlurmError: slurmctld does not answer.
        """
        with self._lock:
            if not self._cpus:
                text = call(["scontrol", "show", "job", "--details", self.number])  # of an array its other tasks, too
                for job in NEXT_JOB.split(text):
                    for nodes, ranges in SHARE.findall(job) if job.startswith(f"JobId={self.number} ") else ():
                        self._cpus |= dict.fromkeys(expanded(nodes), count_of(ranges))
            return self._cpus.get(host, 1)

    def give_back(self) -> str:
        """Cancel the job if it is ours; returns why that failed, "" if it did not."""
        self._is_given_back = True
        if not self.is_ours:
            return ""
        try:
            outlast(lambda: call(["scancel", self.number], seconds=CANCEL_SECONDS), self.patience)
        except SlurmError as error:
            return str(error)
        return ""


def ping() -> None:
    """Ask slurmctld for a sign of life.

    Raises:
        SlurmError: it gives none.
    """
    call(["scontrol", "ping"], seconds=PING_SECONDS)


def _with_failed(host: str, suspects: tuple[str, ...], words: str) -> str:
    """`words` for a node, before them what has become of it, or after them of those of `suspects` that failed."""
    try:
        failed = [node for node in states_of(suspects) if node.has_failed]
    except SlurmError:
        failed = []
    own = [node.in_words for node in failed if node.name == host]
    return "; ".join([*own, words, *([] if own else (node.in_words for node in failed))])


def own_jobs() -> dict[str, str]:
    """The names of this user's jobs that have not ended, by id, in the order of the queue.

    Raises:
        SlurmError: slurmctld does not answer.
    """
    argv = ["squeue", "--noheader", f"--user={getpass.getuser()}", "--states=all", "--sort=i", "--format=%A|%T|%j"]
    rows = (line.strip().split("|", 2) for line in call(argv).splitlines())
    return {row[0]: row[2] for row in rows if len(row) == 3 and not Job(id=row[0], state=row[1]).is_over}


def left_over(name: str, known: str | None) -> str | None:
    """`known` if it is one of this user's jobs of that name that have not ended, else None.

    The others are cancelled: a controller that was killed as it submitted one could not note it.

    Raises:
        AllocationError: slurmctld does not answer, or cancels none.
    """
    try:
        ours = [number for number, found in own_jobs().items() if found == name]
        if unnoted := [number for number in ours if number != known]:
            call(["scancel", *unnoted], seconds=CANCEL_SECONDS)
    except SlurmError as error:
        raise AllocationError(f"Slurm's queue cannot be looked at: {error.detail}") from error
    return known if known in ours else None


def obtain(
    wanted: Request | str,
    *,
    note: Callable[[str], None],
    limit: float,
    check: Callable[[], None],
    tell: Callable[[str], None],
    check_nodes: Callable[[], None] = lambda: None,
    patience: Patience = IMPATIENT,
) -> Allocation:
    """The job of that number, or a new one for a request, once its nodes are ours; cancelled if that fails.

    Args:
        note: receives the id of a new job as soon as there is one.
        limit: seconds to wait for the nodes.
        check: called often; its exception ends the waiting.
        tell: receives why the job waits, and each other reason after it.
        check_nodes: called at each look at a job that waits for nodes that are away; its exception ends the waiting.
        patience: the allocation's.

    Raises:
        AllocationError: Slurm refuses the job, or it does not begin.
        Exception: whatever `check`, `check_nodes` or `note` raises.
    """
    try:
        number = _submit(wanted) if isinstance(wanted, Request) else wanted
    except SlurmError as error:
        raise AllocationError(f"Slurm gives no nodes: {error.detail}") from error
    allocation, is_new = Allocation(number=number, is_ours=True, patience=patience), isinstance(wanted, Request)
    try:
        if is_new:
            note(number)
        first_look = FIRST_SECONDS if is_new else 0.0
        _wait(allocation, time.monotonic() + first_look, limit, check, tell, check_nodes)
    except BaseException:
        allocation.give_back()
        raise
    return allocation


def submit(request: Request, note: Callable[[str], None]) -> None:
    """Submit the job, which begins once `note` has received its id.

    Raises:
        AllocationError: Slurm refuses it, or does not let it begin.
        Exception: whatever `note` raises; the job is cancelled then.
    """
    try:
        number = _submit(request, "--hold")
        try:
            note(number)
            call(["scontrol", "release", number])
        except BaseException:
            Allocation(number=number, is_ours=True).give_back()
            raise
    except SlurmError as error:
        raise AllocationError(f"Slurm takes no job: {error.detail}") from error


def _submit(request: Request, *options: str) -> str:
    """Submit the job; one whose answer was lost is found by its name."""
    try:
        return call(["sbatch", "--parsable", *options], text=batch_script(request)).strip().split(";")[0]
    except SlurmError as error:
        found = [number for number, name in own_jobs().items() if name == request.name] if error.is_away else []
        if not found:
            raise
        return found[-1]


def _wait(
    allocation: Allocation,
    next_look: float,
    limit: float,
    check: Callable[[], None],
    tell: Callable[[str], None],
    check_nodes: Callable[[], None],
) -> None:
    began, said, missing = time.monotonic(), "", 0
    while True:
        check()
        if time.monotonic() < next_look:
            time.sleep(POLL_SECONDS)
            continue
        job = allocation.job()
        next_look = time.monotonic() + QUERY_SECONDS
        missing = missing + 1 if job is None else 0
        if job is not None and not job.is_waiting:
            if job.is_over:
                raise AllocationError(job.end_in_words)
            return
        if job is not None:
            _check_waiting(job, check_nodes)
        waited = time.monotonic() - began
        if waited >= limit:
            why = f": {job.reason}" if job is not None and job.reason else ""
            raise AllocationError(f"Slurm's job {allocation.number} had no nodes after {waited:.0f} s{why}")
        words = _waiting_in_words(allocation, job)
        if words != said and (job is not None or missing >= MISSING_LOOKS):
            said = words
            tell(words)


def _check_waiting(job: Job, check_nodes: Callable[[], None]) -> None:
    if job.never_begins:
        raise AllocationError(f"Slurm's job {job.id} would wait for ever: {job.reason}")
    if job.lacks_nodes:
        check_nodes()


def _waiting_in_words(allocation: Allocation, job: Job | None) -> str:
    if job is None:
        why = "Slurm knows no such job" if allocation.is_unknown else "slurmctld does not answer"
        return f"Slurm's job {allocation.number}: {why}; asking again"
    start = f"; Slurm expects it to begin at {job.start}" if job.start else ""
    return f"Slurm's job {allocation.number} waits: {job.reason or job.state}{start}"
