"""journal.jsonl in a run's folder: what was begun and what ended, on the disk before anybody relies on it.

A controller that is killed leaves it; `run.py resume` goes on from it, `run.py status` reads it. Each line is one
event. run.lock beside it is held by the controller that works on the run (run_benchmarks.state.run_lock).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.results.records import Verdict
from run_benchmarks.settings.changes import Changes

JOURNAL_FILE = "journal.jsonl"
MODE = 0o640
RETRIED = (Verdict.FAIL, Verdict.TIMEOUT)


class JournalError(ClusterDynoError):
    """A run's journal cannot be used; the message names the file and what is wrong."""


def now_ms() -> int:
    """Epoch milliseconds."""
    return time.time_ns() // 1_000_000


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    time_ms: int = Field(default_factory=now_ms)


class RunStarted(_Event):
    """A controller took up the run: at its start, and again at each resume. `rounds`: number of rounds by case.

    `hosts` are those of HOSTS that take part: a resume takes the same, whatever --hosts and --exclude said.

    `plan_digest` tells whether the files still say the same; the plan itself holds environment values and stays out.
    `runtime` and `log_root_host` are the plan's: what `clean` looks for, and where. `changes` are those of the command
    line (--set, --case, --repeat), which a resume makes again; null in journals of before there were any.
    """

    event: Literal["run_started"] = "run_started"
    run_id: str
    pid: int
    plan_digest: str
    cluster_conf: str
    test_conf: str
    rounds: dict[str, int]
    hosts: list[str] | None = None
    runtime: str | None = None
    log_root_host: str | None = None
    changes: Changes | None = None


class RoundStarted(_Event):
    """An attempt at a round is about to start tasks. `hosts` are those that were left for cases at that time."""

    event: Literal["round_started"] = "round_started"
    case: str
    round: int
    attempt: int
    master_port: int
    hosts: list[str]


class NodeEnd(BaseModel):
    """How one node's workload ended; None where it never ran or its host was lost (`error` says why)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    exit_code: int | None
    error: str | None
    stopped: bool
    warnings: list[str] = []


class RoundCollecting(_Event):
    """The workloads of an attempt have ended; what they left is collected from now on, by whoever is there to do it.

    `nodes` by host; `early_end` where the controller itself ended the round; `phase_seconds` of the phases so far.
    """

    event: Literal["round_collecting"] = "round_collecting"
    case: str
    round: int
    attempt: int
    nodes: dict[str, NodeEnd]
    early_end: tuple[Verdict, str] | None
    phase_seconds: dict[str, float]


class RoundEnded(_Event):
    """An attempt at a round came to a verdict; its round.json is written."""

    event: Literal["round_ended"] = "round_ended"
    case: str
    round: int
    attempt: int
    verdict: Verdict
    reason: str


class RunEnded(_Event):
    """The controller brought the run to its end."""

    event: Literal["run_ended"] = "run_ended"
    verdict: Verdict
    exit_code: int


Event = RunStarted | RoundStarted | RoundCollecting | RoundEnded | RunEnded
_EVENT: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="event")])


@dataclass(kw_only=True)
class JournalState:
    """What a journal says. `ended` has the last attempt of each round, `open` one that was started and never ended,
    `collecting` how that one's workloads ended, where they did.

    `failures` counts a round's attempts that failed or ran out of time. `started` is the last start (a resume is one,
    too), `begun_ms` the time of the first.
    """

    started: RunStarted
    begun_ms: int
    ended: dict[tuple[str, int], RoundEnded] = field(default_factory=dict)
    attempts: dict[tuple[str, int], int] = field(default_factory=dict)
    failures: Counter[tuple[str, int]] = field(default_factory=Counter)
    open: RoundStarted | None = None
    collecting: RoundCollecting | None = None
    run_ended: RunEnded | None = None


class Journal:
    """The journal of one run, appended to by one controller at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / JOURNAL_FILE

    def append(self, event: Event) -> None:
        """Write one event and wait until it is on the disk.

        Raises:
            OSError: the journal cannot be written.
        """
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, MODE)
        try:
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, b"\n" * torn + event.model_dump_json().encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            _sync_folder(self.path.parent)

    def read(self) -> JournalState:
        """What the journal says; a line that was cut off by a crash counts as not written.

        Raises:
            JournalError: there is none, or it does not begin with a run.
        """
        try:
            lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise JournalError(f"{self.path}: no journal of a run ({error.strerror})") from error
        state: JournalState | None = None
        for line in lines:
            try:
                event = _EVENT.validate_json(line)
            except ValidationError:
                continue
            if isinstance(event, RunStarted):
                state = JournalState(started=event, begun_ms=event.time_ms) if state is None else state
                state.started, state.run_ended = event, None
            elif state is not None:
                _apply(state, event)
        if state is None:
            raise JournalError(f"{self.path}: does not begin with a run")
        return state


def recorded_hosts(folder: Path) -> list[str] | None:
    """The hosts of the run in `folder`; None where no journal names them."""
    try:
        return Journal(folder).read().started.hosts
    except JournalError:
        return None


def _apply(state: JournalState, event: Event) -> None:
    if isinstance(event, RoundStarted):
        state.open, state.collecting = event, None
        state.attempts[event.case, event.round] = event.attempt
    elif isinstance(event, RoundCollecting):
        state.collecting = event
    elif isinstance(event, RoundEnded):
        state.open = state.collecting = None
        state.ended[event.case, event.round] = event
        state.failures[event.case, event.round] += event.verdict in RETRIED
        state.attempts[event.case, event.round] = event.attempt
    elif isinstance(event, RunEnded):
        state.run_ended = event


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
