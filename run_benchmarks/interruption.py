"""Ctrl-C, SIGTERM and SIGHUP: the first asks the run to end cleanly, a second one leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType

from run_benchmarks.console import complain
from run_benchmarks.errors import InterruptedRunError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED = 130


class Interruption:
    """Whether the run was asked to end. Use as a context manager in the main thread: it installs the handlers."""

    def __init__(self, cleanup_command: str) -> None:
        self._event = threading.Event()
        self._cleanup_command = cleanup_command
        self._previous: dict[signal.Signals, object] = {}
        self.reason = ""

    def __enter__(self) -> Interruption:
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self._event.is_set():
            complain(
                f"{name} again: leaving at once. To remove what may still run on the hosts:\n  {self._cleanup_command}"
            )
            os._exit(EXIT_INTERRUPTED)
        self.reason = f"interrupted by {name}"
        self._event.set()
        complain(f"{name}: stopping cleanly, keeping what there is; once more to leave at once")

    def is_set(self) -> bool:
        """Whether a signal came."""
        return self._event.is_set()

    def check(self) -> None:
        """Raise InterruptedRunError where a signal came."""
        if self._event.is_set():
            raise InterruptedRunError(self.reason)
