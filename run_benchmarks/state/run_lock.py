"""Holds run.lock (flock) in a run's folder for the controller that works on the run, whose name is in the file.

The kernel releases the lock when its holder ends for any reason. The content is written under the lock only and removed
at a clean end; a killed controller leaves its name in it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ValidationError

from common.reading import read_bounded
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.state.journal import MODE, JournalError
from training.benchmarks.driver.launch.process_tree import start_ticks

LOCK_FILE = "run.lock"
PATIENCE_SECONDS = 0.5  # a process that tests the lock holds it for a moment
MAX_BYTES = 1 << 16
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Controller(BaseModel, frozen=True):
    """The process that holds a lock: pid and start time (clock ticks since boot) on a head node since its boot.

    `stopping`: the reason why it was told to end, else empty.
    """

    host: str
    boot_id: str
    pid: int
    start_ticks: int
    stopping: str = ""

    @classmethod
    def this(cls) -> Controller:
        """This process."""
        pid = os.getpid()
        return cls(host=socket.gethostname(), boot_id=_boot_id(), pid=pid, start_ticks=start_ticks(pid))

    @property
    def is_here(self) -> bool:
        """Whether it was started on this head node since its boot."""
        return (self.host, self.boot_id) == (socket.gethostname(), _boot_id())


class RunLock:
    """The lock of one run while it is held; see `controlling`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._holder = Controller.this()
        self._write(self._holder)

    def note_stopping(self, reason: str) -> None:
        """Record that this controller was told to end: a second request would end it at once."""
        with contextlib.suppress(OSError):
            self._write(self._holder.model_copy(update={"stopping": reason}))

    def _write(self, holder: Controller) -> None:
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, holder.model_dump_json().encode() + b"\n", 0)


@contextmanager
def controlling(folder: Path) -> Iterator[RunLock]:
    """Hold the run's lock.

    Raises:
        JournalError: another controller works on the run.
        OSError: the lock cannot be made.
    """
    descriptor = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT, MODE)
    until = time.monotonic() + PATIENCE_SECONDS
    try:
        while not try_lock(descriptor):
            if time.monotonic() >= until:
                command = own_command("status", run_word(folder))
                raise JournalError(f"{folder}: a controller works on this run; see `{command}`")
            time.sleep(PATIENCE_SECONDS / 10)
        yield RunLock(descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def is_controlled(folder: Path) -> bool:
    """Whether a controller works on the run now."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def controller_of(folder: Path) -> Controller | None:
    """The controller that the lock names, running or killed; None without one."""
    try:
        return Controller.model_validate_json(read_bounded(folder / LOCK_FILE, MAX_BYTES))
    except (OSError, ValidationError):
        return None


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def try_lock(descriptor: int) -> bool:
    """Lock an open file for this process alone unless another one holds it; says whether it is locked now."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
