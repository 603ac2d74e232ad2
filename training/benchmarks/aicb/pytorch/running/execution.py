"""Runs a stream: issues each call, waits where the workload says, and records when it was issued and complete.

Modes: `each` waits for every call (batches of sends and receives together), as AICB does; `stream` waits where the
workload waits. Over gloo an overlapping call's end is noted by a waiting thread; the runner of a device is in
device_runner.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.cpu_queue import LATE_NS, STALE_NS, CpuQueue
from training.benchmarks.aicb.pytorch.running.operations import Issue
from training.benchmarks.aicb.pytorch.running.waiting import Pending, Waiters
from workloads.oplog.recorder import OpRecorder

now = time.monotonic_ns


@dataclass(slots=True)
class Step:
    """One row of an epoch, or one batch. position: in the workload; key: of its group and direction.

    is_blocking: `issue` returns when it is done, on a device's stream when what follows begins after it; waits:
    indices in the epoch of the calls to wait for after it; others: positions of the other rows of a batch.
    """

    position: int
    issue: Issue
    is_blocking: bool
    key: object
    waits: tuple[int, ...] = ()
    others: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EpochSteps:
    """The steps of one epoch; end: position of its epoch end in the workload."""

    steps: list[Step]
    end: int

    @property
    def records(self) -> int:
        """Records of the epoch in the op log, its end included."""
        return 1 + sum(1 + len(step.others) for step in self.steps)


class Runner(Protocol):
    """Runs epochs one after the other on one device."""

    def waits_for(self) -> int | None:
        """Position of the row whose end the program waits for, None outside of that; any thread may ask."""
        ...

    def run(self, epoch: EpochSteps, iteration: int) -> int:
        """Execute and record an epoch under this number; returns its time in ns."""
        ...

    def close(self) -> None:
        """Stop what runs beside the program."""
        ...


class HostRunner(Runner):
    """Runs epochs whose calls return when they are done, or over gloo are waited for on the host."""

    def __init__(self, log: OpRecorder) -> None:
        self._log, self._waiters, self._queue = log, Waiters(), CpuQueue()
        self._waits_for: int | None = None
        self._ended_ns: int | None = None

    def waits_for(self) -> int | None:
        return self._waits_for

    def close(self) -> None:
        self._waiters.close()
        self._queue.close()

    def run(self, epoch: EpochSteps, iteration: int) -> int:
        waited = self._queue.waited_ns()
        begin = now()
        # The time between two epochs is part of the gap before the first operation.
        last, carried = (begin, 0) if self._ended_ns is None else (self._ended_ns, waited)
        if all(step.is_blocking for step in epoch.steps):
            self._blocking(epoch, iteration, last, carried)
        else:
            self._overlapping(epoch, iteration, last, carried)
        self._ended_ns = end = now()
        self._log.record(epoch.end, iteration, begin, end)
        return end - begin

    def _blocking(self, epoch: EpochSteps, iteration: int, last: int, carried: int) -> None:
        record, queue = self._log.record, self._queue
        for step in epoch.steps:
            issue = step.issue
            begin = now()
            if begin - last > LATE_NS:
                begin = self._late(last, carried)
            issue()
            last = now()
            record(step.position, iteration, begin, last)
            carried = queue.read_after(last) if last - queue.read_at_ns > STALE_NS else 0

    def _late(self, last: int, carried: int) -> int:
        """Note how much of the time since `last` this thread waited for a CPU; returns the time now.

        carried: what is known of that already.
        """
        waited = carried + self._queue.waited_ns()
        begin = now()
        self._log.queued(min(waited, begin - last))
        return begin

    def _overlapping(self, epoch: EpochSteps, iteration: int, last: int, carried: int) -> None:
        log, steps, queue = self._log, epoch.steps, self._queue
        pending: dict[int, tuple[int, Pending]] = {}
        for index, step in enumerate(steps):
            begin = now()
            if begin - last > LATE_NS:
                begin = self._late(last, carried)
            work = step.issue()
            last = now()
            if step.is_blocking:
                log.record(step.position, iteration, begin, last)
            elif work is not None:
                pending[index] = log.issued(step.position, iteration, begin), self._waiters.add(step.key, work)
            for each in step.waits:
                slot, call = pending.pop(each)
                last = self._wait(steps[each].position, slot, call)
            carried = queue.read_after(last) if last - queue.read_at_ns > STALE_NS else 0

    def _wait(self, position: int, slot: int, call: Pending) -> int:
        """Wait for a call; returns when the program goes on."""
        if call.done_ns:
            call.wait()
            self._log.finished(slot, call.done_ns, 0)
            return now()
        self._waits_for = position
        begin = now()
        call.wait()
        end = now()
        self._waits_for = None
        self._log.finished(slot, call.done_ns, max(0, call.done_ns - begin))
        return end


def synchronised(issue: Issue, synchronize: Callable[[], None]) -> Issue:
    """The call, returned from when the device has executed it."""

    def run() -> dist.Work | None:
        issue()
        synchronize()
        return None

    return run
