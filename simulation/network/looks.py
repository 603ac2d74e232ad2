"""Looks at a simulation now and then, to write what is there, and once more where Ctrl-C ends it."""

import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType

EVERY_S, PAUSE = 1.0, 10  # between two looks: seconds, or times as long as a look took


class Looks:
    """A context of a simulation, of which `look` writes what is there."""

    def __init__(self, look: Callable[[], None]) -> None:
        self._look, self._then = look, time.monotonic() + EVERY_S

    def __enter__(self) -> "Looks":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt):
            with suppress(OSError):  # of a full disk: it is an interruption all the same
                self._look()

    def now_and_then(self) -> None:
        """Look, unless the last time was but now."""
        if (began := time.monotonic()) >= self._then:
            self._look()
            ended = time.monotonic()
            self._then = ended + max(EVERY_S, PAUSE * (ended - began))
