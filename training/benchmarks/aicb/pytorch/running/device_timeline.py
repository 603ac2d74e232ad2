"""Notes moments of a rank's program and ends of its calls on a device, by events that are read afterwards.

torch's events and streams are its only edge to the device, and may be replaced.
"""

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Self

import torch
import torch.distributed as dist

from training.benchmarks.driver.workload.accelerator import accelerators
from training.benchmarks.driver.workload.device_events import EventPool, TimedEvent, elapsed_ns, timed_event
from vendors.device import Accelerators

Beside = Callable[[object], AbstractContextManager[object]]


class DeviceTimeline:
    """Calls over a vendor's library: the current stream is the program. A mark is a number, of one iteration: from
    `begin` until the next one.

    The end of a call under way is an event on a stream of its group beside the program. These streams have a high
    priority: torch keeps 32 of them apart from the normal ones, of which the library's groups (NCCL's) have theirs, and
    a stream that both shared would delay these.
    """

    def __init__(self, pool: EventPool, beside: Beside, synchronize: Callable[[], None]) -> None:
        """beside: makes the stream of a key current; synchronize: waits until all streams have done what was queued."""
        self._pool = pool
        self._beside = beside
        self._synchronize = synchronize
        self._events: list[TimedEvent] = []
        self._before: list[int] = []
        self._latest = 0
        self._times: list[float] = []
        self._origin_ns = 0

    @classmethod
    def on(cls, device: torch.device) -> Self:
        """With events and streams of the device."""
        pool = EventPool(partial(timed_event, device))
        return cls(pool, Streams(accelerators(device)).beside, accelerators(device).synchronize)

    def begin(self) -> int:
        """An iteration begins, and nothing is under way. The device's clock is compared with the host's."""
        self._pool.release()
        self._events, self._before, self._times = [], [], []
        self._synchronize()
        before = time.monotonic_ns()
        mark = self.mark()
        self._events[mark].synchronize()
        self._origin_ns = (before + time.monotonic_ns()) // 2
        return mark

    def mark(self) -> int:
        """The moment when the program is here."""
        self._latest = self._noted()
        return self._latest

    def ending(self, key: object, work: dist.Work) -> int:
        """The moment when a call ends that was issued at the latest mark; calls of one key end in their order."""
        with self._beside(key):
            work.wait()
            return self._noted()

    def has_come(self, mark: int) -> bool:
        """Whether this moment is past; any thread may ask."""
        return self._events[mark].query()

    def finish(self) -> None:
        """Wait until all that was noted is past; only then marks have times.

        Each time is that of the mark before plus the time between the two: torch gives it in 32 bits, which a long
        iteration as a whole would exceed.
        """
        self._synchronize()
        self._times = [0.0]
        for event, before in itertools.islice(zip(self._events, self._before, strict=True), 1, None):
            self._times.append(self._times[before] + elapsed_ns(self._events[before], event))

    def ns(self, mark: int) -> int:
        """The time of a moment by time.monotonic_ns."""
        return self._origin_ns + round(self._times[mark])

    def _noted(self) -> int:
        """An event of the current stream, after the latest mark."""
        self._events.append(self._pool.recorded())
        self._before.append(self._latest if len(self._events) > 1 else 0)
        return len(self._events) - 1


class Streams:
    """A stream of high priority for each key."""

    def __init__(self, devices: Accelerators) -> None:
        self._devices = devices
        self._streams: dict[object, Any] = {}

    def beside(self, key: object) -> AbstractContextManager[object]:
        """Within it the key's stream is the current one."""
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = self._devices.stream(priority=-1)
        return self._devices.beside(stream)
