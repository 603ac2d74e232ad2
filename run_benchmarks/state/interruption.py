"""Ends a run early: on Ctrl-C, SIGTERM and SIGHUP (a second one exits at once), and at the run's time limit.

A signal that was ignored when this process began stays ignored: nohup does that for SIGHUP, a shell without job control
for the SIGINT of background processes. SIGTERM is always handled: it is the way to stop a run.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from run_benchmarks.console.console import LOG, complain
from run_benchmarks.errors import InterruptedRunError, RunTimeLimitError
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.state.exit_codes import EXIT_INTERRUPTED
from run_benchmarks.state.own_clock import own_clock

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Whether the run has to end. Use as a context manager in the main thread: it installs the handlers.

    `on_stop` receives the reason when the first signal arrives.
    """

    def __init__(self, cleanup_command: str, on_stop: Callable[[str], None] = lambda _reason: None) -> None:
        self.signalled = threading.Event()  # by a signal: ends what waits for a host at once
        self._cleanup_command, self._on_stop = cleanup_command, on_stop
        self._previous: dict[signal.Signals, object] = {}
        self.reason = ""
        self.time_limit_reason = ""
        self._deadline = math.inf
        self._parts: list[Interruption] = []

    def __enter__(self) -> Interruption:
        for number in SIGNALS:
            if number is not signal.SIGTERM and signal.getsignal(number) is signal.SIG_IGN:
                continue
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        name = signal.Signals(number).name
        if self.signalled.is_set():
            complain(
                f"{name} again: leaving at once. To remove what may still run on the hosts:\n  {self._cleanup_command}"
            )
            os._exit(EXIT_INTERRUPTED)
        self.end(f"interrupted by {name}")
        self._on_stop(self.reason)
        complain(f"{name}: stopping cleanly, keeping what there is; once more to leave at once")

    def is_set(self) -> bool:
        """Whether a signal arrived."""
        return self.signalled.is_set()

    def end(self, reason: str) -> None:
        """Let the run end now, as a signal does."""
        if not self.signalled.is_set():
            self.reason = reason
            self.signalled.set()
            for part in self._parts:
                part.end(reason)

    def part(self) -> Interruption:
        """That of a part of the run, which ends with the run and may end earlier."""
        part = Interruption(self._cleanup_command)
        part._deadline, part.time_limit_reason = self._deadline, self.time_limit_reason
        self._parts.append(part)
        if self.signalled.is_set():
            part.end(self.reason)
        return part

    def limit_time(self, limit: float, used: float) -> None:
        """Let the run end `limit` seconds after its start, `used` of them gone (< 0: a clock was set back: 0)."""
        self.end_within(limit - max(0.0, used), f"the run reached its RUN_TIME_LIMIT of {limit:g} s")

    def end_within(self, seconds: float, reason: str) -> None:
        """Let the run's time be over in so many seconds, unless it is over earlier; `reason` then says why."""
        deadline = time.monotonic() + seconds
        if deadline < self._deadline:
            self._deadline, self.time_limit_reason = deadline, reason

    def time_is_up(self) -> bool:
        """Whether the run's time limit has passed."""
        return time.monotonic() >= self._deadline

    def seconds_left(self, most: float) -> float:
        """The deadline of one operation in seconds: `most`, or the rest of the run's time if that is less.

        Raises:
            Exception: whatever `check` raises.
        """
        self.check()
        return min(most, self._deadline - time.monotonic())

    def check(self) -> None:
        """Check that the run may go on.

        Raises:
            InterruptedRunError: a signal arrived.
            RunTimeLimitError: the run's time is over.
        """
        if self.signalled.is_set():
            raise InterruptedRunError(self.reason)
        if self.time_is_up():
            raise RunTimeLimitError(self.time_limit_reason)


def patience(link_limit: float, interruption: Interruption | None = None) -> Patience:
    """How long an answer of a host is waited for: LINK_LIMIT seconds, or until the run has to end, if there is one."""
    clock = own_clock()
    return Patience(
        limit=link_limit,
        is_over=lambda: interruption is not None and (interruption.is_set() or interruption.time_is_up()),
        check=(lambda: None) if interruption is None else interruption.check,
        tell=LOG.warning,
        now=clock.now,
        slept=lambda: clock.slept,
    )
