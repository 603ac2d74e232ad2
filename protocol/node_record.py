"""Record of how the workload ended on one node: `launch` writes node_exit.json, the controller reads it."""

import signal
from pathlib import Path

from pydantic import BaseModel, Field

from common.whole_files import write_text
from protocol import safe_json

NODE_EXIT_FILE = "node_exit.json"
LOCK_FILE = "workload.lock"
SCHEMA_VERSION = 1


class RankFailure(BaseModel, frozen=True, extra="forbid"):
    """One rank that did not end with exit code 0: it exited with `exit_code`, or `signal` (a name, SIGKILL) ended it.

    `message` is the traceback of an exception, otherwise a sentence. `time_ms` is epoch milliseconds: of the exception,
    otherwise of the end of the process. `stopped`: the launcher ended it because another rank had failed; `lost_peer`:
    its exception reports a broken connection to another rank, or came out of communication after another rank had
    failed; `waited`: its wait for others timed out. These three indicate an effect rather than a cause.
    `in_communication`: the exception came out of communication, whatever its text: an effect if anything else failed.
    """

    rank: int = Field(ge=0)
    local_rank: int = Field(ge=0)
    pid: int
    exit_code: int | None
    signal: str | None
    time_ms: int
    message: str
    stopped: bool
    lost_peer: bool = False
    waited: bool = False
    in_communication: bool = False

    @property
    def is_effect(self) -> bool:
        """Whether another rank's failure explains it."""
        return self.stopped or self.lost_peer or self.waited

    @property
    def shell_code(self) -> int:
        """The exit code that a shell would report: 1 to 255, 128 + number for a signal."""
        if self.signal is not None:
            return 128 + _signal_number(self.signal)
        return self.exit_code or 0


class NodeExit(BaseModel, frozen=True, extra="forbid"):
    """The end of `launch` on one node.

    `exit_code` is that of `launch`: 0, or of the first failure its exit code or 128 + signal, or 2 for a launch that
    could not begin. `failures` are ordered, the cause first. `error` is the failure of the launch itself; `signal`
    names the signal that stopped `launch`. `interface` reaches the master; `environment` is what the ranks inherited (a
    value that was set before wins). Times are epoch milliseconds; `cpu_s` is the CPU time, in seconds, of the launch
    and of all its processes that have ended. `fused` has the version of each library of fused kernels that imports
    here, "unusable: <why>" for one that does not, None for one that is not installed; {} where nobody looked.
    """

    schema_version: int = SCHEMA_VERSION
    exit_code: int = Field(ge=0, le=255)
    error: str | None = None
    signal: str | None = None
    failures: list[RankFailure] = []
    argv: list[str]
    interface: str | None
    environment: dict[str, str] = {}
    started_ms: int
    finished_ms: int
    torch: str | None
    cpu_s: float | None = None
    fused: dict[str, str | None] = {}

    def write(self, log_dir: Path) -> Path:
        """Write node_exit.json in `log_dir` atomically; returns its path."""
        path = log_dir / NODE_EXIT_FILE
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def read(cls, log_dir: Path) -> "NodeExit":
        """The record in `log_dir`.

        Raises:
            OSError: there is none.
            pydantic.ValidationError, safe_json.UnsafeJsonError: it is no record.
        """
        return cls.model_validate(safe_json.read(log_dir / NODE_EXIT_FILE))


def signal_name(number: int) -> str:
    """SIGKILL for 9; SIG<number> for signals without a name of their own (real-time ones)."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def _signal_number(name: str) -> int:
    known = signal.Signals.__members__
    return known[name].value if name in known else int(name.removeprefix("SIG"))
