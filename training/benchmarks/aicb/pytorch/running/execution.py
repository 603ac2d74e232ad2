"""Runs a stream: issues each call, waits where the workload says, and records when it was issued and complete.

Modes: `each` waits for every call (batches of sends and receives together), as AICB does; `stream` waits where the
workload waits. Over gloo a waiting thread notes an overlapping call's end; `device_runner` is a device's.

The time that the main thread is ready to run without a CPU (run delay), which the kernel counts, is told from a late
rank's own. A reading costs 1 to 2 us, so the thread takes one only where STALE_NS have passed since the last, and
before an operation that is late by LATE_NS: a late rank's wait is known to STALE_NS, for at most 0.2 % of the time.

Source: Documentation/scheduler/sched-stats.rst of Linux, /proc/<pid>/schedstat.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol

import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.operations import Issue
from workloads.oplog.recorder import OpRecorder


class Pending:
    """A call under way. `done_ns` is when it was complete by the clock time.monotonic_ns, 0 before."""

    __slots__ = ("_lock", "done_ns", "error", "work")

    def __init__(self, work: dist.Work) -> None:
        self.work = work
        self.done_ns = 0
        self.error: BaseException | None = None
        self._lock = threading.Lock()
        self._lock.acquire()

    def finish(self) -> None:
        """Wait for the call, and note the time; in the thread."""
        try:
            self.work.wait()
        except Exception as error:  # noqa: BLE001 # raised again where the program waits
            self.error = error
        self.done_ns = time.monotonic_ns()
        self._lock.release()

    def wait(self) -> None:
        """Return when the call is complete.

        Raises:
            RuntimeError: it failed, as torch says.
        """
        self._lock.acquire()
        if self.error is not None:
            raise self.error


class Waiters:
    """The threads of all groups; a context manager. gloo lets one thread alone wait for a send or receive."""

    def __init__(self) -> None:
        self._queues: dict[object, SimpleQueue[Pending | None]] = {}

    def add(self, key: object, work: dist.Work) -> Pending:
        """Watch a call; those of one key end in the order in which they are added."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = SimpleQueue()
            threading.Thread(target=_serve, args=(queue,), name=f"waits {key}", daemon=True).start()
        pending = Pending(work)
        queue.put(pending)
        return pending

    def close(self) -> None:
        """Let the threads end once they have nothing to wait for."""
        for queue in self._queues.values():
            queue.put(None)


def _serve(queue: "SimpleQueue[Pending | None]") -> None:
    while (pending := queue.get()) is not None:
        pending.finish()


SCHEDSTAT = Path("/proc/thread-self/schedstat")
STALE_NS = 1_000_000
LATE_NS = 4_000_000
"""ns between two operations from which on the wait for a CPU is read: the shortest time slice of Linux."""


class CpuQueue:
    """The run delay of the thread that makes this, in ns; always 0 where the kernel does not count it."""

    __slots__ = ("_descriptor", "_total_ns", "read_at_ns")

    def __init__(self) -> None:
        self._total_ns = 0
        try:
            self._descriptor: int | None = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None
        self.read_at_ns = 0
        self.waited_ns()

    def waited_ns(self) -> int:
        """Since the last call, in ns; only the thread that made this may ask."""
        before = self._total_ns
        if self._descriptor is not None:
            self._total_ns = _run_delay(os.pread(self._descriptor, 100, 0))
        self.read_at_ns = time.monotonic_ns()
        return self._total_ns - before

    def read_after(self, end_ns: int) -> int:
        """Take a reading; returns what of it was after `end_ns`, at which an operation ended, in ns.

        Only the harness runs from there to the reading: what was long was a wait for a CPU, if any.
        """
        return min(self.waited_ns(), self.read_at_ns - end_ns)

    def close(self) -> None:
        """Close the kernel's file; nothing is waited for any more."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _run_delay(text: bytes) -> int:
    """The second number of a schedstat: time on a CPU, time waiting for one (both ns), time slices."""
    words = text.split()
    return int(words[1]) if len(words) == 3 and words[1].isdigit() else 0


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
