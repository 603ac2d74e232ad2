"""Calls a tool: bounded in time and in what is kept of its output; nothing of it stays behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 4 << 20
"""Of an output; what comes after is read and dropped, so that the tool can end."""
LISTENS = "0A"


def located(program: str, folders: Sequence[str] = ()) -> str | None:
    """The path of a program on PATH or in one of the folders; None: it is not installed."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *folders]))


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: what it printed, its exit code, and whether its time was up."""

    text: str
    exit_code: int
    is_late: bool


class Call:
    """A tool that runs, in a session of its own; as a context it is ended at the end."""

    def __init__(self, argv: Sequence[str], seconds: float) -> None:
        """Start it, for so many seconds.

        Raises:
            OSError: it cannot be started.
        """
        self._process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        self._kept, self._is_late = bytearray(), False
        self._clock = threading.Timer(seconds, self._late)
        self._clock.daemon = True
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._clock.start()
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := os.read(self._process.stdout.fileno(), 1 << 16):
                self._kept += chunk[: max(0, MAX_BYTES - len(self._kept))]

    def _late(self) -> None:
        self._is_late = True
        self._kill()

    def _kill(self) -> None:
        """End it and what it started; its number is its own until it is waited for."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _is_over(self, how: int = 0) -> bool:
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | how) is not None

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone."""
        return self._process.returncode is not None or self._is_over(os.WNOHANG)

    def wait(self) -> Ended:
        """Its end, at the latest when its time is up."""
        if self._process.returncode is None:
            self._is_over()
            self._clock.cancel()
            self._kill()  # what it started and left behind holds the pipe
            self._process.wait()
        self._reader.join(10)
        return Ended(self._kept.decode("utf-8", "replace"), self._process.returncode, self._is_late)

    def __enter__(self) -> Call:
        return self

    def __exit__(self, *error: object) -> None:
        self._kill()
        self.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def awaited_server(server: Call, port: int, seconds: float = 20.0, proc: Path = Path("/proc/net")) -> bool:
    """Whether a server listens on a TCP port within some seconds; to connect to it would be to use it up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not server.has_ended:
        if _listens(port, proc):
            return True
        time.sleep(0.05)
    return False


def _listens(port: int, proc: Path) -> bool:
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / name).read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == LISTENS and int(words[1].rpartition(":")[2], 16) == port:
                    return True
    return False
