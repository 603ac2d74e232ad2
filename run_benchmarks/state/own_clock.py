"""Measures the time in which the controller itself could run: not stopped (Ctrl-Z), its machine not suspended.

In the rest hosts may have answered, and nobody listened: their silence is judged by the time in which somebody did.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

READ_SECONDS = 1.0
GAP_SECONDS = 5.0  # far longer than a busy machine keeps a thread waiting
_OF_THE_MACHINE = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # goes on while the machine is suspended


class OwnClock:
    """Context manager; while it is open, a thread reads the clock often enough to notice every gap.

    `slept` has the seconds that were left out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = time.clock_gettime(_OF_THE_MACHINE)
        self._slept = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="own-clock", daemon=True)

    def __enter__(self) -> Self:
        self._last = time.clock_gettime(_OF_THE_MACHINE)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def now(self) -> float:
        """Seconds since some moment, like time.monotonic, that count only while this process could run."""
        return self._read()[0]

    @property
    def slept(self) -> float:
        """Seconds left out so far."""
        return self._read()[1]

    def _keep(self) -> None:
        while not self._over.wait(READ_SECONDS):
            self._read()

    def _read(self) -> tuple[float, float]:
        with self._lock:
            present = time.clock_gettime(_OF_THE_MACHINE)
            gap, self._last = present - self._last, present
            if gap > GAP_SECONDS:
                self._slept += gap
            return present - self._slept, self._slept
