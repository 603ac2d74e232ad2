"""Progress and end of each rank of a node: `launch` writes rank_states.json, the controller reads it.

It holds what logs cannot show: which rank waits in a collective, has not reached it, is stopped, exited first.
"""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, Field, ValidationError

from common.whole_files import write_text
from protocol import safe_json

RANK_STATES_FILE = "rank_states.json"
SCHEMA_VERSION = 1
STOPPED_STATES = ("T", "t")  # of /proc/<pid>/stat: by a signal, by a debugger


class RankState(BaseModel, frozen=True, extra="forbid"):
    """One rank. Times are by its host's clock, `*_us` epoch microseconds, `*_ms` epoch milliseconds.

    `told_ms` is its last report (a thread of its own sends one every two seconds), `moved_ms` the last change of its
    counts: `events` (PerfLog records, `last_event`), `steps`, `collectives` (begun, by group). `in_flight` holds the
    collectives that torch's flight recorder, if on, has as not ended. `waits_in` is the function of torch.distributed
    in which its main thread was then, null elsewhere. `is_training`: between TRAIN_START and TRAIN_END; `train_ms` is
    when its launcher heard of the one and of the other, by the launcher's own clock. `state` is the
    kernel's letter while the process exists. `left_us` is when it began to exit by itself, with `left_code`; `ended_us`
    when its process was gone, with `exit_code` or `signal` if the kernel still reported them.
    """

    rank: int = Field(ge=0)
    pid: int
    told_ms: int
    moved_ms: int
    events: int = 0
    last_event: str | None = None
    is_training: bool = False
    train_ms: tuple[int, int] | None = None
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
        """The counts that grow while the rank progresses: events, steps, collectives of all groups."""
        return self.events, self.steps, sum(self.collectives.values())


class NodeRanks(BaseModel, frozen=True, extra="forbid"):
    """The ranks of one node at `written_ms` (epoch ms), in the order of their numbers."""

    schema_version: int = SCHEMA_VERSION
    written_ms: int
    ranks: list[RankState]

    def write(self, log_dir: Path) -> None:
        """Write rank_states.json in `log_dir` atomically.

        Raises:
            OSError: the file cannot be written.
        """
        write_text(log_dir / RANK_STATES_FILE, self.model_dump_json() + "\n")

    @classmethod
    def read(cls, log_dir: Path) -> Self:
        """The record in `log_dir`.

        Raises:
            OSError: there is none.
            pydantic.ValidationError, safe_json.UnsafeJsonError: it is no record.
        """
        return cls.model_validate(safe_json.read(log_dir / RANK_STATES_FILE))

    @classmethod
    def found(cls, log_dir: Path) -> Self | None:
        """The record in `log_dir`; None if there is none that is complete."""
        try:
            return cls.read(log_dir)
        except (OSError, ValidationError, safe_json.UnsafeJsonError):
            return None

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The record in a text.

        Raises:
            pydantic.ValidationError, safe_json.UnsafeJsonError: the text is no such record.
        """
        return cls.model_validate(safe_json.load(text))
