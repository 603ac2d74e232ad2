"""Reads how long the main thread has been ready to run without a CPU, so that a late rank's own time is told from it.

The kernel counts this time (run delay) for each thread. A reading costs 1 to 2 us, so the thread takes one only where
STALE_NS have passed since the last, and before an operation that is late by LATE_NS: what a late rank waited is known
to STALE_NS, for at most 0.2 % of the time.
Source: Documentation/scheduler/sched-stats.rst of Linux, /proc/<pid>/schedstat.
"""

import os
import time
from pathlib import Path

SCHEDSTAT = Path("/proc/thread-self/schedstat")
STALE_NS = 1_000_000
LATE_NS = 4_000_000
"""ns between two operations from which on the wait for a CPU is read: the shortest time slice of Linux."""


class CpuQueue:
    """The run delay of the thread that makes this, in ns; always 0 where the kernel does not count it."""

    __slots__ = ("_descriptor", "_total_ns", "read_at_ns")

    def __init__(self) -> None:
        self._total_ns = 0
        try:
            self._descriptor: int | None = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None
        self.read_at_ns = 0
        self.waited_ns()

    def waited_ns(self) -> int:
        """Since the last call, in ns; only the thread that made this may ask."""
        before = self._total_ns
        if self._descriptor is not None:
            self._total_ns = _run_delay(os.pread(self._descriptor, 100, 0))
        self.read_at_ns = time.monotonic_ns()
        return self._total_ns - before

    def read_after(self, end_ns: int) -> int:
        """Take a reading; returns what of it was after `end_ns`, at which an operation ended, in ns.

        Nothing but the harness runs from there to the reading: what was long there was a wait for a CPU, if there was
        one.
        """
        return min(self.waited_ns(), self.read_at_ns - end_ns)

    def close(self) -> None:
        """Close the kernel's file; nothing is waited for any more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _run_delay(text: bytes) -> int:
    """The second number of a schedstat: time on a CPU, time waiting for one (both ns), time slices."""
    words = text.split()
    return int(words[1]) if len(words) == 3 and words[1].isdigit() else 0
