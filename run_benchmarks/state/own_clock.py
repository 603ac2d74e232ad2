"""Measures the time in which the controller itself could run: not stopped (Ctrl-Z), its machine not suspended.

In the rest hosts may have answered, and nobody listened: their silence is judged by the time in which somebody did.
"""

import functools
import threading
import time
from collections.abc import Callable

READ_SECONDS = 1.0
GAP_SECONDS = 5.0  # far longer than a busy machine keeps a thread waiting
_OF_THE_MACHINE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended


def of_the_machine() -> float:
    """Seconds since some moment."""
    return time.clock_gettime(_OF_THE_MACHINE)


class OwnClock:
    """A clock that leaves out every gap between two reads that is longer than GAP_SECONDS.

    `read`: the seconds of the machine's clock. `slept` has the seconds that were left out.
    """

    def __init__(self, read: Callable[[], float] = of_the_machine) -> None:
        self._lock, self._machine = threading.Lock(), read
        self._last = read()
        self._slept = 0.0

    def now(self) -> float:
        """Seconds since some moment, like time.monotonic, that count only while this process could run."""
        return self._read()[0]

    @property
    def slept(self) -> float:
        """Seconds left out so far."""
        return self._read()[1]

    def keep(self) -> None:
        """Read the clock often enough that a gap is this process's own; never return."""
        never = threading.Event()
        while not never.wait(READ_SECONDS):
            self._read()

    def _read(self) -> tuple[float, float]:
        with self._lock:
            present = self._machine()
            gap, self._last = present - self._last, present
            if gap > GAP_SECONDS:
                self._slept += gap
            return present - self._slept, self._slept


@functools.cache
def own_clock() -> OwnClock:
    """The clock of this process, which a thread reads from the first call on."""
    clock = OwnClock()
    threading.Thread(target=clock.keep, name="own-clock", daemon=True).start()
    return clock
