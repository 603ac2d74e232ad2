"""Bounds the time in which a round's files are judged: what a host sends must not hold the controller."""

import contextlib
import ctypes
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from types import FrameType

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.state.context import RunningNode

LEAST_SECONDS, BYTES_PER_SECOND = 120.0, 2e6  # a slow machine under load reads tens of megabytes in a second
AGAIN_SECONDS = 1.0  # whoever swallows the error gets it again


class TimeBudgetError(ClusterDynoError):
    """The judging took longer than its budget; the message has it."""


def budget_of(nodes: Iterable[RunningNode]) -> float:
    """Seconds for judging the collected files of these nodes: linear in their size."""
    size = sum(file.size for node in nodes for file in node.outcome.files.values())
    return LEAST_SECONDS + size / BYTES_PER_SECOND


@contextlib.contextmanager
def time_budget(seconds: float) -> Iterator[None]:
    """End the block after `seconds` by an exception, and again by another one if it goes on.

    In another thread than the main one, which alone gets signals, a single call into C ends by itself.

    Raises:
        TimeBudgetError: the block was not done by then.
    """
    limit = _by_signal if threading.current_thread() is threading.main_thread() else _by_another_thread
    try:
        with limit(seconds):
            yield
    except _LateError as error:
        raise TimeBudgetError(f"judging took longer than {seconds:.0f} s") from error


class _LateError(Exception):
    pass


@contextlib.contextmanager
def _by_signal(seconds: float) -> Iterator[None]:
    """Raise in the main thread; a timer that was set before goes on afterwards."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _LateError

    begun = time.monotonic()
    handler = signal.signal(signal.SIGALRM, end)
    delay, interval = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if delay:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, delay - (time.monotonic() - begun)), interval)


@contextlib.contextmanager
def _by_another_thread(seconds: float) -> Iterator[None]:
    """Raise in this thread, from one that waits meanwhile.

    They share locks alone: the error may come inside a method of an Event, which then keeps its lock.
    """
    here, held, sending = threading.get_ident(), threading.Lock(), threading.Lock()

    def send(error: type[Exception] | None) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(here), error and ctypes.py_object(error))

    def watch() -> None:
        wait = seconds
        while not held.acquire(timeout=wait):
            with sending:
                if held.locked():
                    send(_LateError)
            wait = AGAIN_SECONDS

    held.acquire()
    try:
        threading.Thread(target=watch, name="time-budget", daemon=True).start()
        yield
    finally:
        try:
            held.release()
        finally:
            if held.locked():  # the error came just before; the next one would be AGAIN_SECONDS away
                with contextlib.suppress(RuntimeError):
                    held.release()
            with sending:
                send(None)  # one that was sent and has not come
