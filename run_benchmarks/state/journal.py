"""Keeps journal.jsonl in a run's folder: what started and what ended, on the disk before anything depends on it.

A killed controller leaves it; `run.py resume` continues from it, `run.py status` reads it. Each line is one event. The
controller that works on the run holds run.lock beside it (run_benchmarks.state.run_lock).
"""

import dataclasses
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from common.reading import read_bounded
from protocol.circumstance import Circumstance, NodeLook
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.results.records import JobRecord, Verdict
from run_benchmarks.settings.changes import Changes

JOURNAL_FILE = "journal.jsonl"
MODE = 0o640
MAX_BYTES = 256 << 20


class JournalError(ClusterDynoError):
    """A run's journal cannot be used; the message names the file and the mistake."""

    ends_with = 2


def now_ms() -> int:
    """The present time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class _Event(BaseModel, frozen=True, extra="forbid"):
    time_ms: int = Field(default_factory=now_ms)


class BaselineTarget(BaseModel, frozen=True, extra="forbid"):
    """The file of --save-baseline, an absolute path, and whether --force overwrites an existing one."""

    file: Path
    overwrite: bool = False


class BaselineInUse(BaseModel, frozen=True, extra="forbid"):
    """BASELINE of a run: its file, the sha256 of its content, and BASELINE_PERCENT."""

    file: str
    sha256: str
    percent: float

    def __str__(self) -> str:
        return f"BASELINE {self.file} (sha256 {self.sha256[:12]}) and BASELINE_PERCENT {self.percent:g}"


class RunStarted(_Event):
    """A controller started or resumed the run. `rounds`: number of rounds by case. `waves`: the cases as planned, one
    wave after the other, those of a wave side by side; empty in older journals.

    `hosts` are those of HOSTS that take part: a resume uses the same, whatever --hosts and --exclude name.
    `plan_digest` shows whether config files changed since the run started; the plan itself holds environment values and
    is not stored. `runtime` and `log_root_host` are the plan's: what `clean` looks for, and where. `changes` are those
    of the command line (--set, --case, --repeat), which a resume repeats; null in older journals.
    `save_baseline`: where the run's end, or that of its resume, saves a baseline; null without --save-baseline.
    `pid` is 0 where a job of Slurm will begin the run.
    `baseline`: what the run is compared with, also after a resume; null without BASELINE.
    `hmac_sha256`: the authentication code of all this by the head node's own key (run_benchmarks.state.vouching).
    """

    event: Literal["run_started"] = "run_started"
    run_id: str
    pid: int
    plan_digest: str
    cluster_conf: str
    test_conf: str
    rounds: dict[str, int]
    waves: list[list[str]] = []
    hosts: list[str] | None = None
    runtime: str | None = None
    log_root_host: str | None = None
    changes: Changes | None = None
    save_baseline: BaselineTarget | None = None
    baseline: BaselineInUse | None = None
    hmac_sha256: str | None = None


class JobNoted(_Event):
    """A job of Slurm has the hosts of the run from now on, or is submitted and has none yet."""

    event: Literal["job_noted"] = "job_noted"
    job: JobRecord


class RoundStarted(_Event):
    """An attempt at a round is about to start tasks. `hosts` are those that were available for cases at that time.

    `boot_ids`: of the hosts that it runs on, as far as they tell one; a host with another one has lost its tasks.
    """

    event: Literal["round_started"] = "round_started"
    case: str
    round: int
    attempt: int
    master_port: int
    hosts: list[str]
    boot_ids: dict[str, str] = {}


class NodeEnd(BaseModel, frozen=True, extra="forbid"):
    """The end of one node's workload; None if it never ran or its host was lost (`error` says why).

    The other fields are those of results.node_outcome.
    """

    exit_code: int | None
    error: str | None
    stopped: bool
    warnings: list[str] = []
    lost: bool = False
    heard_ms: int | None = None
    silent_ms: int | None = None
    circumstances: tuple[Circumstance, ...] = ()
    look: NodeLook | None = None


class RoundCollecting(_Event):
    """The workloads of an attempt have ended; their files are collected from now on, by this controller or a later one.

    `nodes` by host; `early_end` if the controller itself ended the round; `phase_seconds` of the phases so far.
    """

    event: Literal["round_collecting"] = "round_collecting"
    case: str
    round: int
    attempt: int
    nodes: dict[str, NodeEnd]
    early_end: tuple[Verdict, str] | None
    phase_seconds: dict[str, float]


class RoundEnded(_Event):
    """An attempt at a round has a verdict; its round.json is written. `lost`: the infrastructure lost it.

    `owed`: the hosts whose files could not be collected, and still can be. A later collection ends it once more.
    """

    event: Literal["round_ended"] = "round_ended"
    case: str
    round: int
    attempt: int
    verdict: Verdict
    reason: str
    owed: list[str] = []
    lost: bool = False


class RunEnded(_Event):
    """The controller completed the run."""

    event: Literal["run_ended"] = "run_ended"
    verdict: Verdict
    exit_code: int


Event = RunStarted | JobNoted | RoundStarted | RoundCollecting | RoundEnded | RunEnded
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


@dataclass(frozen=True, kw_only=True)
class OwedCollection:
    """An attempt at a round with files that are on these `hosts` alone: its start, and how its workloads ended."""

    started: RoundStarted
    collecting: RoundCollecting
    hosts: list[str]


@dataclass(frozen=True, kw_only=True)
class OpenRound:
    """An attempt at a round that was started and never ended. `collecting`: how its workloads ended, if they did."""

    started: RoundStarted
    collecting: RoundCollecting | None = None

    def __str__(self) -> str:
        return f"round {self.started.round} of {self.started.case}"


@dataclass(kw_only=True)
class JournalState:
    """Content of a journal. `ended` has the last attempt of each round, `open` by case the one that was started and
    never ended. `owed` is by case, round and attempt.

    `failures` counts a round's attempts that failed or timed out, `losses` those of them that the infrastructure broke,
    which `failures` leaves out. `jobs` by id, the one that was noted last at the end. `started` is the last start (a
    resume is one, too), `begun_ms` the epoch ms of the first, or of the time when it got nodes.
    """

    started: RunStarted
    begun_ms: int
    ended: dict[tuple[str, int], RoundEnded] = field(default_factory=dict)
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    failures: Counter[tuple[str, int]] = field(default_factory=Counter)
    losses: Counter[tuple[str, int]] = field(default_factory=Counter)
    open: dict[str, OpenRound] = field(default_factory=dict)
    run_ended: RunEnded | None = None
    owed: dict[tuple[str, int, int], OwedCollection] = field(default_factory=dict)
    ends: dict[tuple[str, int, int], RoundEnded] = field(default_factory=dict)
    jobs: dict[str, JobRecord] = field(default_factory=dict)

    @property
    def job(self) -> JobRecord | None:
        """The job that was noted last; None without one."""
        return next(reversed(self.jobs.values()), None)

    @property
    def is_queued(self) -> bool:
        """Whether the run waits for the nodes of its job, and nothing of it has run yet."""
        return self.job is not None and not self.job.hosts and not self.attempts

    def counter(self, event: RoundEnded) -> Counter[tuple[str, int]]:
        """The count to which the end of an attempt belongs."""
        return self.losses if event.lost else self.failures


class Journal:
    """The journal of one run, appended to by one controller at a time, by any of its threads."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_FILE
        self._appending = threading.Lock()

    def append(self, event: Event) -> None:
        """Write one event and wait until it is on the disk.

        Raises:
            OSError: the journal cannot be written.
        """
        with self._appending:
            self._append(event)

    def _append(self, event: Event) -> None:
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, MODE)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            rest = b"\n" * torn + event.model_dump_json().encode() + b"\n"
            while rest:  # a full disk takes a part of it, and refuses the next
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            _sync_folder(self.path.parent)

    def read(self) -> JournalState:
        """The content of the journal; a line that was cut off by a crash counts as not written.

        Raises:
            JournalError: there is none, or it does not begin with a run.
        """
        try:
            lines = read_bounded(self.path, MAX_BYTES).decode("utf-8", "replace").splitlines()
        except OSError as error:
            raise JournalError(f"{self.path}: no journal of a run ({error.strerror})") from error
        state: JournalState | None = None
        for line in lines:
            try:
                event = _EVENT.validate_json(line)
            except ValidationError:
                continue
            if isinstance(event, RunStarted):
                if state is None:
                    state = JournalState(started=event, begun_ms=event.time_ms)
                state.started, state.run_ended = event, None
            elif state is not None:
                _apply(state, event)
        if state is None:
            raise JournalError(f"{self.path}: does not begin with a run")
        return state


def recorded_hosts(folder: Path) -> list[str] | None:
    """The hosts of the run in `folder`; None if no journal names them."""
    try:
        return Journal(folder).read().started.hosts
    except JournalError:
        return None


def noted_job(folder: Path) -> JobRecord | None:
    """The job that the run in `folder` noted last; None if no journal has one."""
    try:
        return Journal(folder).read().job
    except JournalError:
        return None


def _note(state: JournalState, event: JobNoted) -> None:
    """Apply a note on a job: the last counts, but whose it is tells the first, since it may run its own controller."""
    if state.is_queued and event.job.hosts:  # what it waited is no part of the run's time
        state.begun_ms = event.time_ms
    before = state.jobs.pop(event.job.id, event.job)
    state.jobs[event.job.id] = event.job.model_copy(update={"is_ours": before.is_ours})


def _apply(state: JournalState, event: Event) -> None:
    if isinstance(event, JobNoted):
        _note(state, event)
    elif isinstance(event, RoundStarted):
        state.open[event.case] = OpenRound(started=event)
        state.attempts[event.case, event.round] = event.attempt
    elif isinstance(event, RoundCollecting):
        if (known := state.open.get(event.case)) is not None:
            state.open[event.case] = dataclasses.replace(known, collecting=event)
    elif isinstance(event, RoundEnded):
        _end(state, event)
    elif isinstance(event, RunEnded):
        state.run_ended = event


def _end(state: JournalState, event: RoundEnded) -> None:
    """Apply the end of an attempt: of an open one, or once more of one whose collection was owed."""
    key, round_ = (event.case, event.round, event.attempt), (event.case, event.round)
    known = state.owed.pop(key, None)
    if known is not None:
        known = dataclasses.replace(known, hosts=event.owed)
    else:
        ended = state.open.pop(event.case, None)
        if ended is not None and ended.collecting is not None:
            known = OwedCollection(started=ended.started, collecting=ended.collecting, hosts=event.owed)
    if known is not None and event.owed:
        state.owed[key] = known
    if (before := state.ends.get(key)) is not None:
        state.counter(before)[round_] -= before.verdict.is_failure
    state.counter(event)[round_] += event.verdict.is_failure
    state.ends[key] = event
    if event.attempt >= state.attempts.get(round_, 0):
        state.ended[round_], state.attempts[round_] = event, event.attempt


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
