"""rank_states.json: how far each rank of a node has come and how it ended; `launch` writes it, the controller reads it.

It says what the logs cannot: which rank waits in a collective and which has not come to it, which process is stopped,
which rank left first.
"""

import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field

from training.benchmarks.driver.protocol import safe_json

RANK_STATES_FILE = "rank_states.json"
SCHEMA_VERSION = 1
STOPPED_STATES = ("T", "t")  # of /proc/<pid>/stat: by a signal, by a debugger


class RankState(BaseModel):
    """One rank. Times are by its host's clock, `*_us` epoch microseconds, `*_ms` epoch milliseconds.

    `told_ms` is when it last said anything (it does every two seconds, by a thread of its own), `moved_ms` when one of
    its counts last changed: `events` (PerfLog records, `last_event`), `steps`, `collectives` (by group, how many it has
    begun). `in_flight` has the collectives that torch's flight recorder, where it is on, holds as not ended. `waits_in`
    is the function of torch.distributed in which its main thread was then, null elsewhere. `is_training`: between
    TRAIN_START and TRAIN_END. `state` is the kernel's letter, as long as there is a process. `left_us` is when it began
    to leave, by itself and with `left_code`; `ended_us` when its process was gone, with `exit_code` or `signal` where
    the kernel still told.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(ge=0)
    pid: int
    told_ms: int
    moved_ms: int
    events: int = 0
    last_event: str | None = None
    is_training: bool = False
    steps: int = 0
    collectives: dict[str, int] = {}
    in_flight: list[str] = []
    waits_in: str | None = None
    state: str | None = None
    left_us: int | None = None
    left_code: int | None = None
    ended_us: int | None = None
    exit_code: int | None = None
    signal: str | None = None

    @property
    def counts(self) -> tuple[int, int, int]:
        """What grows while the rank gets on: events, steps, collectives of all groups."""
        return self.events, self.steps, sum(self.collectives.values())


class NodeRanks(BaseModel):
    """The ranks of one node as they were at `written_ms`, in the order of their numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA_VERSION
    written_ms: int
    ranks: list[RankState]

    def write(self, log_dir: Path) -> None:
        """Write rank_states.json in `log_dir` whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        path = log_dir / RANK_STATES_FILE
        unfinished = path.with_suffix(f".{os.getpid()}.tmp")
        unfinished.write_text(self.model_dump_json() + "\n", encoding="utf-8")
        unfinished.replace(path)

    @classmethod
    def read(cls, log_dir: Path) -> Self:
        """The record in `log_dir`.

        Raises:
            OSError: there is none.
            pydantic.ValidationError, safe_json.UnsafeJsonError: it is no record.
        """
        return cls.model_validate(safe_json.read(log_dir / RANK_STATES_FILE))

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The record in a text.

        Raises:
            pydantic.ValidationError, safe_json.UnsafeJsonError: the text is no such record.
        """
        return cls.model_validate(safe_json.load(text))
