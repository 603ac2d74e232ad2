"""Runs epochs on an accelerator: the vendor's library executes the calls in streams, whose events give their times.

torch's events and streams are the only edge to the device, and may be replaced.
"""

import itertools
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, Runner, Step
from training.benchmarks.driver.workload.accelerator import accelerators
from training.benchmarks.driver.workload.device_events import EventPool, TimedEvent, elapsed_ns, timed_event
from vendors.device import Accelerators
from workloads.oplog.recorder import WAITED, OpRecorder

Beside = Callable[[object], AbstractContextManager[object]]


class DeviceTimeline:
    """Calls over a vendor's library: the current stream is the program. A mark is a number of one iteration.

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

        Each is the mark before plus the time between: torch gives 32 bits, too few for a long iteration as a whole.
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


@dataclass(slots=True)
class _Seen:
    """An executed call: slot in the log; wait: when the program began to wait for it, None for a blocking one."""

    position: int
    slot: int
    issued: int
    end: int
    wait: int | None = None


class DeviceRunner(Runner):
    """Runs epochs over NCCL. each: runs those whose calls all return when the device has executed them."""

    def __init__(self, log: OpRecorder, line: DeviceTimeline, each: Runner | None = None) -> None:
        self._log, self._line, self._each = log, line, each
        self._under_way: list[_Seen] = []
        self._steps: list[Step] = []
        self._begun = 0

    def close(self) -> None:
        if self._each is not None:
            self._each.close()

    def waits_for(self) -> int | None:
        """Position of the first call that has not ended, else of the one that the host is in; None after all."""
        for call in list(self._under_way):
            if not self._line.has_come(call.end):
                return call.position
        # Nothing is noted of the call that the host is in.
        return self._steps[self._begun].position if self._begun < len(self._steps) else None

    def run(self, epoch: EpochSteps, iteration: int) -> int:
        if self._each is not None and all(step.is_blocking and not step.others for step in epoch.steps):
            self._steps = []
            return self._each.run(epoch, iteration)
        self._steps, self._begun = epoch.steps, 0
        begin, end = self._streamed(epoch, iteration)
        self._log.record(epoch.end, iteration, begin, end)
        return end - begin

    def _streamed(self, epoch: EpochSteps, iteration: int) -> tuple[int, int]:
        line, log = self._line, self._log
        pending: dict[int, tuple[dist.Work, _Seen]] = {}
        start = line.begin()
        for index, step in enumerate(epoch.steps):
            issued = line.mark()
            work = step.issue()
            if step.is_blocking:
                end = line.mark()
                for position in (step.position, *step.others):
                    self._under_way.append(_Seen(position, log.issued(position, iteration, 0), issued, end))
            elif work is not None:
                call = _Seen(
                    step.position, log.issued(step.position, iteration, 0), issued, line.ending(step.key, work)
                )
                self._under_way.append(call)
                pending[index] = work, call
            self._begun = index + 1
            for each in step.waits:
                work, call = pending.pop(each)
                self._wait(work, call)
        last = line.mark()
        line.finish()
        for call in self._under_way:
            self._written(call)
        self._under_way = []
        return line.ns(start), line.ns(last)

    def _wait(self, work: dist.Work, call: _Seen) -> None:
        call.wait = self._line.mark()
        work.wait()

    def _written(self, call: _Seen) -> None:
        line = self._line
        issued, done = line.ns(call.issued), line.ns(call.end)
        # An event may be noted in the step of the device's clock before that of the issue.
        done = max(issued, done)
        exposed = WAITED if call.wait is None else min(done - issued, max(0, done - line.ns(call.wait)))
        self._log.issue_ns[call.slot] = issued
        self._log.finished(call.slot, done, exposed)
