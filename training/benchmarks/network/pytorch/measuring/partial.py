"""Keeps what rank 0 has measured if the run ends early: by Ctrl-C, a signal to stop, or the loss of another rank.

A thread waits for the signals: the main thread may be blocked in an operation that never ends, in which Python calls no
signal handler. It logs the partial result and lets the signal end the process as it would have.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from common.errors import in_brief
from protocol.perflog import Event, PerfLogger

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_END = b"\0"  # no signal has this number


class KeptSteps:
    """The steps that rank 0 has measured, inside a `with` statement around the measurement; other ranks keep nothing.

    `conclude` gets the steps and a sentence, at an early end and once at most; it returns FINISHED's value.
    """

    def __init__(
        self,
        logger: PerfLogger,
        *,
        is_first: bool,
        total_steps: int,
        conclude: Callable[[list[dict[str, Any]], str], dict[str, Any]],
    ) -> None:
        self._logger, self._is_first, self._total, self._conclude = logger, is_first, total_steps, conclude
        self.steps: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._is_over = False
        self._handlers: dict[signal.Signals, Any] = {}
        self._pipe: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None

    def add(self, step: dict[str, Any]) -> None:
        """Keep the value of a STEP_END."""
        if self._is_first:
            self.steps.append(step)

    def __enter__(self) -> Self:
        if self._is_first and threading.current_thread() is threading.main_thread():
            self._pipe = os.pipe()
            os.set_blocking(self._pipe[1], False)
            heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores
            self._handlers = {number: signal.signal(number, _nothing) for number in heard}
            signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
            self._thread = threading.Thread(target=self._wait, args=(self._pipe[0],), name="partial", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._keep(in_brief(error))
        self._is_over = True
        if self._pipe is None or self._thread is None:
            return
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.write(self._pipe[1], _END)
        self._thread.join()
        for descriptor in self._pipe:
            os.close(descriptor)

    def _wait(self, descriptor: int) -> None:
        """Wait for a signal, keep the steps, and end the process by that signal."""
        while (number := os.read(descriptor, 1)) != _END:
            if number[0] not in SIGNALS:
                continue
            name = signal.Signals(number[0])
            self._keep(f"stopped by {name.name}")
            sys.stdout.flush()
            _die_of(name)

    def _keep(self, reason: str) -> None:
        """Log FINISHED with what was measured, marked as partial, unless nothing was or this is already done."""
        with self._lock:
            steps, is_over, self._is_over = list(self.steps), self._is_over, True
            if is_over or not steps:
                return
            counts = {"partial": True, "completed_steps": len(steps), "total_steps": self._total}
            sentence = f"partial: {len(steps)} of {self._total} steps were measured: {reason}"
            self._logger.log(Event.FINISHED, {**self._conclude(steps, sentence), **counts, "answer": sentence})


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler in Python: only with one does the kernel's signal reach the wakeup descriptor."""


def _die_of(number: signal.Signals) -> None:
    """End this process by the signal, from any thread."""
    ctypes.CDLL(None).signal(int(number), 0)  # SIG_DFL: signal.signal works in the main thread alone
    os.kill(os.getpid(), number)
