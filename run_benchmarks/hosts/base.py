"""Defines the host protocol: run a command, move files, talk to the host's Docker engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol

from run_benchmarks.errors import CommandError
from run_benchmarks.hosts.incoming.capture import Capture as Capture

if TYPE_CHECKING:  # docker takes long to import
    from docker import APIClient

DOCKER_SECONDS = 60
CANCELLED = 128 + 9
POLL_SECONDS = 0.05


class CancelledError(Exception):
    """The caller's `cancel` was set; hosts catch it themselves."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A command that ended by itself. `stdout` is empty if the caller consumed it as a stream."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float

    def check(self, host: str) -> None:
        """Check that the command succeeded.

        Raises:
            CommandError: its exit code is not 0.
        """
        if self.exit_code != 0:
            raise CommandError(host, self.argv, self.exit_code, self.stderr or self.stdout)


@dataclass(frozen=True, kw_only=True)
class ConnectionAdvice:
    """Advice on a working connection to a host: what was found, what would be better, and how to change it."""

    subject: str
    found: str
    expected: str
    action: str


class Host(Protocol):
    """One machine, reached in one way.

    Methods fail with the errors of run_benchmarks.errors, which name the host. Several threads use a host at once.
    """

    @property
    def name(self) -> str:
        """The host's name in HOSTS."""

    @property
    def address(self) -> str:
        """The IP address that the head node uses for it."""

    @property
    def needs_docker_client(self) -> bool:
        """Whether its Docker engine is reached through the docker command on the host."""

    def connect(self) -> None:
        """Open the connection; does nothing on an open one, and makes a new one after a loss."""

    def reconnect(self) -> None:
        """Make a new connection even if the old one looks open: a frozen connection does for 15 minutes."""

    def close(self) -> None:
        """Close the connection and everything opened on it."""

    def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float,
        stdin: IO[bytes] | None = None,
        on_stdout: Callable[[bytes], None] | None = None,
        check: bool = True,
        cancel: threading.Event | None = None,
    ) -> Completed:
        """Run a command to its end; after `deadline` seconds it is killed on the host with its whole process group.

        Setting `cancel` kills it, too; it then counts as ended, with exit code CANCELLED, and is no error.

        Raises:
            CommandError: `check` is set and the exit code is not 0.
            DeadlineError: the deadline passed.
            LinkLostError: the connection broke; the state of the command is unknown.
        """

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """Advice on the connection; asks the host if necessary."""

    def docker(self) -> APIClient:
        """A client of the host's Docker engine, made once and shared."""

    def open_docker(self, timeout: int, check: Callable[[], None] | None = None) -> APIClient:
        """Another client of the engine; the caller closes it.

        Its calls end after `timeout` seconds; a streaming call may be silent for that long. While a call waits, `check`
        is called periodically, and an exception from it ends the call.
        """
