"""The controller's exceptions: one root, a class for each kind, each with the facts that the user needs."""

import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from common.errors import InputProblems as InputProblems
from common.errors import Problem as Problem

TAIL_LINES = 50
TAIL_CHARACTERS = 16_384  # a line may have any length
SHOWN_CHARACTERS = 300


class ClusterDynoError(Exception):
    """Root of every error that the controller raises on purpose, except InputProblems, which ranks use, too.

    ends_with: the exit code of run.py where one ends a command; None where every command has to handle it.
    """

    ends_with: ClassVar[int | None] = None


class HostError(ClusterDynoError):
    """An operation on a host, or the connection to it, failed. `detail` is the message without the host's name;
    `beside`: the errors of all hosts on which the same operation failed, this one's too, where several were asked.
    """

    def __init__(self, host: str, message: str) -> None:
        self.host, self.detail = host, message
        self.beside: Sequence[ClusterDynoError] = ()
        super().__init__(f"{host}: {message}")


class ConnectError(HostError):
    """No connection to the host: unreachable, refused, or the login was not accepted."""


class HostKeyError(ConnectError):
    """The host's key is unknown or differs from the recorded one."""


class LinkLostError(HostError):
    """The connection broke; the command may still run on the host. `output` is its stderr so far."""

    def __init__(self, host: str, message: str, output: str = "") -> None:
        self.output = output
        super().__init__(host, message)


class EngineSilentError(LinkLostError):
    """The host's container engine did not answer in time; the host itself may."""


class LoginShellError(HostError):
    """The account's login shell did not start a command: its start files end the session, or it may not run any."""


class CommandError(HostError):
    """A command on a host ended with a non-zero exit code."""

    def __init__(self, host: str, argv: Sequence[str], exit_code: int, output: str) -> None:
        self.argv = tuple(argv)
        self.exit_code = exit_code
        self.output = output
        super().__init__(host, f"`{shown(argv)}` exited {exit_code}: {tail(output) or 'no output'}")


class DeadlineError(HostError):
    """A command on a host passed its deadline and was killed there."""

    def __init__(self, host: str, argv: Sequence[str], seconds: float, output: str) -> None:
        self.argv = tuple(argv)
        self.seconds = seconds
        self.output = output
        super().__init__(host, f"`{shown(argv)}` did not end within {seconds:g} s and was killed")


class NotBegunError(DeadlineError):
    """A command whose deadline passed before the account's login shell began it; `message` says what is known."""

    def __init__(self, host: str, argv: Sequence[str], seconds: float, message: str) -> None:
        super().__init__(host, argv, seconds, "")
        HostError.__init__(self, host, message)


class TooSlowError(DeadlineError):
    """A transfer that brought too little in its last `seconds`; `message` says how little that is."""

    def __init__(self, host: str, argv: Sequence[str], seconds: float, message: str) -> None:
        super().__init__(host, argv, seconds, "")
        HostError.__init__(self, host, message)


class TaskError(HostError):
    """A node's task (container or process tree) could not be created, started or stopped."""


class CollectError(HostError):
    """Files of a host could not be brought completely to the head node.

    `files` arrived valid (sha256 by name), `missing` are names of the host's files that did not, `cut` of those of
    `files` of which a limit left the beginning only.
    """

    def __init__(
        self,
        host: str,
        message: str,
        *,
        files: Mapping[str, str] | None = None,
        missing: Sequence[str] = (),
        cut: Collection[str] = (),
    ) -> None:
        self.files, self.missing, self.cut = dict(files or {}), tuple(missing), frozenset(cut)
        super().__init__(host, message)


class CheckError(ClusterDynoError):
    """At least one host failed the check; the findings were printed."""


class InterruptedRunError(ClusterDynoError):
    """SIGINT, SIGTERM or SIGHUP ended the run."""


class RunTimeLimitError(ClusterDynoError):
    """The run reached its RUN_TIME_LIMIT."""


def shown(argv: Sequence[str]) -> str:
    """A command as messages show it, in one line: of `sh -c SCRIPT`, `...` stands for the script."""
    words = [*argv[:2], "...", *argv[3:]] if tuple(argv[:2]) == ("sh", "-c") else argv
    line = " ".join("..." if word == "..." else shlex.quote(word) for word in words)
    return line.replace("\n", " ")[:SHOWN_CHARACTERS]


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """The last `lines` lines of `text`, without trailing white space; of a long line its end, after `...`."""
    text = text.rstrip()
    if len(text) > TAIL_CHARACTERS:
        text = f"...{text[-TAIL_CHARACTERS:]}"
    return "\n".join(text.splitlines()[-lines:])


class HistoryError(ClusterDynoError):
    """The history cannot be read or written; the message names the database and says why."""

    ends_with = 2
