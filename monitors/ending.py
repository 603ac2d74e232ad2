"""Waits for the end of a monitor: a signal, the release of the workload's lock, or its time limit."""

import contextlib
import fcntl
import os
import signal
import time
from pathlib import Path

ENDING_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})

# Seconds between two looks at the lock, independent of the interval of the samples.
_LOOK_S = 0.5
# Seconds for which a lock that was never seen held has to be free: a workload takes it as soon as it has made the file.
_FREE_S = 5.0


class Ending:
    """Waits for the next tick, or returns the reason to stop if there is one.

    Args:
        lock: file on which the workload holds an exclusive flock while it lives; None: no lock is watched.
        deadline: time.monotonic() at which the monitor ends in any case, in seconds.
    """

    def __init__(self, lock: Path | None, deadline: float) -> None:
        self._lock = None if lock is None else _WorkloadLock(lock)
        self._deadline = deadline

    def wait(self, until: float) -> str | None:
        """Sleep until time.monotonic() is `until` (seconds); returns the reason at once if there is one to end."""
        while True:
            now = time.monotonic()
            if now >= self._deadline:
                return "max_seconds are over"
            if self._lock is not None and self._lock.released():
                return "the workload's lock is free again"
            pause = max(0.0, min(until, now + _LOOK_S, self._deadline) - now)
            received = signal.sigtimedwait(ENDING_SIGNALS, pause)
            if received is not None:
                return signal.Signals(received.si_signo).name
            if time.monotonic() >= until:
                return None

    def close(self) -> None:
        """Closes the lock file."""
        if self._lock is not None:
            self._lock.close()


class _WorkloadLock:
    """Watches a flock of another process, which may live in another container: only the lock itself shows its end.

    The folder is this round's alone, so the file is made by its workload. One that lives for less than a look leaves
    the file with a lock that nobody was seen to hold.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._taken = False
        self._free_since: float | None = None

    def released(self) -> bool:
        """Whether the lock was held once and is free now, or has been free for some time in a file that is there."""
        if self._descriptor is None:
            with contextlib.suppress(FileNotFoundError):
                self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return False  # a new file: trying its lock now could make the workload's own attempt fail
        if self._held():
            self._taken, self._free_since = True, None
            return False
        now = time.monotonic()
        self._free_since = now if self._free_since is None else self._free_since
        return self._taken or now - self._free_since >= _FREE_S

    def _held(self) -> bool:
        assert self._descriptor is not None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        return False

    def close(self) -> None:
        """Closes the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
