"""Moments on a CUDA stream: torch's timing events, the time between two of them, and a pool that makes each once."""

from collections.abc import Callable
from typing import Protocol, Self

import torch

CALIBRATION_CYCLES = 20_000_000
"""About 10 ms of a GPU."""


class TimedEvent(Protocol):
    """The part of torch.cuda.Event that is used: a moment of the stream that is current when `record` is called."""

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


def timed_event() -> TimedEvent:
    """A CUDA event that knows its time."""
    event: TimedEvent = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    return event


def elapsed_ns(begin: TimedEvent, end: TimedEvent) -> float:
    """Nanoseconds between two moments that have come; an event's clock has steps of about half a microsecond."""
    return float(begin.elapsed_time(end)) * 1e6


class EventPool:
    """Events to be used again: an iteration makes none that an earlier one has made."""

    def __init__(self, make: Callable[[], TimedEvent] = timed_event) -> None:
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


def cycles_per_ns() -> float:
    """Cycles that torch.cuda._sleep counts in a nanosecond on the current device, measured now."""
    pool = EventPool()
    torch.cuda._sleep(CALIBRATION_CYCLES)  # type: ignore[no-untyped-call] # brings the clock up
    begin = pool.recorded()
    torch.cuda._sleep(CALIBRATION_CYCLES)  # type: ignore[no-untyped-call]
    end = pool.recorded()
    end.synchronize()
    return CALIBRATION_CYCLES / elapsed_ns(begin, end)
