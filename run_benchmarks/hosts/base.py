"""Defines the host protocol: run a command, move files, talk to the host's Docker engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Protocol

from docker import APIClient

from run_benchmarks.hosts.incoming.capture import Capture as Capture

DOCKER_SECONDS = 60
CANCELLED = 128 + 9
POLL_SECONDS = 0.05


class CancelledError(Exception):
    """The caller's `cancel` was set; hosts catch it themselves."""


@dataclass(frozen=True, kw_only=True)
class Completed:
    """A command that ended by itself. `stdout` is empty where the caller took it as a stream."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ConnectionAdvice:
    """What a person should know of the way to a host, though it works: what was found, what would be better, how."""

    subject: str
    found: str
    expected: str
    action: str


class Host(Protocol):
    """One machine, reached in one way.

    Methods raise the errors of run_benchmarks.errors, each naming the host. Several threads use a host at once.
    """

    @property
    def name(self) -> str:
        """The host's name as it stands in HOSTS."""

    @property
    def address(self) -> str:
        """The IP address under which the head node talks to it."""

    @property
    def needs_docker_client(self) -> bool:
        """Whether its Docker engine is reached through the docker command there."""

    def connect(self) -> None:
        """Open the connection; on an open one, nothing happens; on a lost one, a new one is made."""

    def reconnect(self) -> None:
        """Make a new connection even where the old one looks open: a frozen one looks so for a quarter of an hour."""

    def close(self) -> None:
        """Let go of the connection and of everything opened on it."""

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

        Setting `cancel` kills it too; it then counts as ended, with exit code CANCELLED, and is not an error.

        Raises:
            CommandError: `check` is set and the exit code is not 0.
            DeadlineError: the deadline passed.
            LinkLostError: the connection broke; nothing is known of the command.
        """

    def remarks(self) -> tuple[ConnectionAdvice, ...]:
        """What there is to say about the way to it; asks the host where it has to."""

    def docker(self) -> APIClient:
        """The host's Docker engine; the client is made once and shared."""

    def open_docker(self, timeout: int, check: Callable[[], None] | None = None) -> APIClient:
        """Another client of the engine; the caller closes it.

        Its calls end after `timeout` seconds; one that streams may be silent for so long. While a call waits, `check`
        is called now and then, and what it raises ends the call.
        """
