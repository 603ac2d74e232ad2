"""Moments on a device's stream: torch's timing events, the time between two, and a pool that makes each once."""

from collections.abc import Callable
from typing import Protocol, Self

import torch

from training.benchmarks.driver.workload.accelerator import accelerators

CALIBRATION_CYCLES = 20_000_000
"""About 10 ms of a GPU."""
RISING_NS = 300_000_000
"""An H200 raises its clock from 345 to 1980 MHz in less. Counted while it rose, cycles made times 6 % too short."""


class TimedEvent(Protocol):
    """The part of a device's event that is used: a moment of the stream that is current when `record` is called."""

    def record(self) -> None:
        """Note the moment when the stream has done what was queued before."""
        ...

    def query(self) -> bool:
        """Whether the moment has come."""
        ...

    def synchronize(self) -> None:
        """Wait for the moment on the host."""
        ...

    def elapsed_time(self, end_event: Self) -> float:
        """Milliseconds until another event; both have come."""
        ...


def timed_event(device: torch.device) -> TimedEvent:
    """An event of the device's type that knows its time."""
    event: TimedEvent = accelerators(device).event()
    return event


def elapsed_ns(begin: TimedEvent, end: TimedEvent) -> float:
    """Nanoseconds between two moments that have come; an event's clock has steps of about half a microsecond."""
    return float(begin.elapsed_time(end)) * 1e6


class EventPool:
    """Events to be used again: an iteration makes none that an earlier one has made."""

    def __init__(self, make: Callable[[], TimedEvent]) -> None:
        self._make = make
        self._events: list[TimedEvent] = []
        self._used = 0

    def recorded(self) -> TimedEvent:
        """An unused event, recorded on the current stream."""
        if self._used == len(self._events):
            self._events.append(self._make())
        event = self._events[self._used]
        self._used += 1
        event.record()
        return event

    def release(self) -> None:
        """Use all events again: nobody reads their times any more."""
        self._used = 0


def cycles_per_ns(device: torch.device) -> float | None:
    """Cycles that a busy device counts in a nanosecond, measured now, once its clock has risen.

    None where the vendor cannot keep one busy.
    """
    busy = accelerators(device).busy(CALIBRATION_CYCLES)
    if busy is None:
        return None
    passed, last = 0.0, 1.0
    while passed < RISING_NS:
        begin, end = timed_event(device), timed_event(device)
        begin.record()
        busy()
        end.record()
        end.synchronize()
        last = max(elapsed_ns(begin, end), 1.0)
        passed += last
    return CALIBRATION_CYCLES / last
