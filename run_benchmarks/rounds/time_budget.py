"""Bounds the time in which a round's files are judged: what a host sends must not hold the controller."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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


@contextmanager
def time_budget(seconds: float) -> Iterator[None]:
    """End the block after `seconds` by an exception; in another thread than the main one there is no limit.

    A timer that was set before goes on afterwards.

    Raises:
        TimeBudgetError: the block was not done by then.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise TimeBudgetError(f"judging took longer than {seconds:.0f} s")

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
