"""Bounds the time in which a round's files are judged: what a host sends must not hold the controller."""

import ctypes
import logging
import signal
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType, TracebackType
from typing import Self

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.state.context import RunningNode

LEAST_SECONDS, BYTES_PER_SECOND = 120.0, 2e6  # a slow machine under load reads tens of megabytes in a second
AGAIN_SECONDS = 1.0  # whoever swallows the error gets it again
# Their functions hold locks that an error between two of their lines would leave held.
_WITH_LOCKS = frozenset({__file__, threading.__file__, logging.__file__})


class TimeBudgetError(ClusterDynoError):
    """The judging took longer than its budget; the message has it."""


def budget_of(nodes: Iterable[RunningNode]) -> float:
    """Seconds for judging the collected files of these nodes: linear in their size."""
    size = sum(file.size for node in nodes for file in node.outcome.files.values())
    return LEAST_SECONDS + size / BYTES_PER_SECOND


class TimeBudget:
    """End the block after `seconds` by an exception, and again by another one if it goes on.

    In another thread than the main one, which alone gets signals, a single call into C ends by itself.

    Raises:
        TimeBudgetError: the block was not done by then.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        in_main = threading.current_thread() is threading.main_thread()
        self._limit = _Signal(seconds) if in_main else _Watcher(seconds)

    def __enter__(self) -> Self:
        self._limit.begin(sys._getframe(1))
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._limit.end()
        if isinstance(error, _LateError):
            raise TimeBudgetError(f"judging took longer than {self._seconds:.0f} s") from error


class _LateError(Exception):
    pass


def _can_end_at(frame: FrameType | None, block: FrameType | None) -> bool:
    """Whether an error may come at this place of a thread: nothing that the block called holds locks."""
    while frame is not None and frame is not block:
        if frame.f_code.co_filename in _WITH_LOCKS:
            return False
        frame = frame.f_back
    return True


class _Signal:
    """A signal to the main thread; a timer that was set before goes on afterwards."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self, block: FrameType) -> None:
        self._block: FrameType | None = block
        self._begun = time.monotonic()
        self._handler = signal.signal(signal.SIGALRM, self._raise)
        self._before = signal.setitimer(signal.ITIMER_REAL, self._seconds, AGAIN_SECONDS)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._block = None
        signal.signal(signal.SIGALRM, self._handler)
        delay, interval = self._before
        if delay:
            left = delay - (time.monotonic() - self._begun)
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left), interval)

    def _raise(self, _signal: int, frame: FrameType | None) -> None:
        if _can_end_at(frame, self._block):
            raise _LateError


class _Watcher:
    """An error that another thread, which waits meanwhile, sends to the one that made this.

    What it decides by one look at the thread's stack it does before the thread can leave `end`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._thread = seconds, threading.get_ident()
        self._running, self._sending = threading.Lock(), threading.Lock()

    def begin(self, block: FrameType) -> None:
        self._block: FrameType | None = block
        self._running.acquire()
        threading.Thread(target=self._watch, name="time-budget", daemon=True).start()

    def end(self) -> None:
        try:
            with self._sending:
                self._block = None
                self._running.release()
                self._send(None)  # one that was sent and has not come
        except _LateError:  # one that was decided on before this function began; no other comes while it runs
            if self._running.locked():
                self._running.release()

    def _watch(self) -> None:
        wait = self._seconds
        while not self._running.acquire(timeout=wait):
            with self._sending:
                if self._running.locked() and _can_end_at(sys._current_frames().get(self._thread), self._block):
                    self._send(_LateError)
            wait = AGAIN_SECONDS

    def _send(self, error: type[Exception] | None) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), error and ctypes.py_object(error))
