"""Times on the streams of a device, by a device that is made up: no GPU is at hand, and its edge is torch's events.

The host issues without waiting; a stream does what it is given one after the other. An event that is read before the
device has done it is an error, as it is with torch.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

import numpy as np
import pytest
import torch.distributed as dist

from training.benchmarks.aicb.pytorch.running.device_runner import DeviceRunner, DeviceTimeline
from training.benchmarks.aicb.pytorch.running.execution import EpochSteps, HostRunner, Step
from training.benchmarks.aicb.pytorch.running.operations import Issue
from training.benchmarks.driver.workload.device_events import EventPool
from workloads.oplog.recorder import WAITED, OpRecorder

MS = 1_000_000
MAIN = "main"


class Device:
    """Streams, each the ms at which it has done what it was given; `events` made, and times of a wait for all."""

    def __init__(self) -> None:
        self.streams: dict[object, float] = {MAIN: 0.0}
        self.current: object = MAIN
        self.done_ms = 0.0
        self.events: list[Event] = []
        self.synchronised = 0

    @contextmanager
    def beside(self, key: object) -> Iterator[None]:
        """The stream of a key is the current one."""
        self.current = ("beside", key)
        yield
        self.current = MAIN

    def event(self) -> "Event":
        """A new event."""
        self.events.append(Event(self))
        return self.events[-1]

    def advance(self, ms: float) -> None:
        """The current stream computes."""
        self.streams[self.current] = self.streams.get(self.current, 0.0) + ms

    def synchronize(self) -> None:
        """The host waits until everything is done; the streams then stand at the same time."""
        self.synchronised += 1
        self.done_ms = max(self.streams.values())
        self.streams = dict.fromkeys(self.streams, self.done_ms)

    def call(self, key: object, ms: float) -> Issue:
        """A call of a group, which lasts so long from when the group's stream and the current one are ready."""

        def issue() -> dist.Work:
            begin = max(self.streams.get(key, 0.0), self.streams[self.current])
            self.streams[key] = begin + ms
            return Call(self, begin + ms)  # type: ignore[return-value] # what is used of one

        return issue

    def blocking(self, key: object, ms: float) -> Issue:
        """A call that the current stream waits for."""
        made = self.call(key, ms)

        def issue() -> None:
            work = made()
            assert work is not None
            work.wait()

        return issue


class Call:
    """A call under way; waiting delays the current stream, not the host."""

    def __init__(self, device: Device, end_ms: float) -> None:
        self._device, self._end_ms = device, end_ms

    def wait(self) -> bool:
        streams = self._device.streams
        streams[self._device.current] = max(streams.get(self._device.current, 0.0), self._end_ms)
        return True


class Event:
    """An event of the device."""

    def __init__(self, device: Device) -> None:
        self._device, self.at_ms = device, -1.0

    def record(self) -> None:
        self.at_ms = self._device.streams.get(self._device.current, 0.0)

    def query(self) -> bool:
        return self.at_ms <= self._device.done_ms

    def synchronize(self) -> None:
        self._device.done_ms = max(self._device.done_ms, self.at_ms)

    def elapsed_time(self, end_event: Self) -> float:
        if not self.query() or not end_event.query():
            raise RuntimeError("the event is not complete")
        return float(np.float32(end_event.at_ms - self.at_ms))


def line_of(device: Device) -> DeviceTimeline:
    return DeviceTimeline(EventPool(device.event), device.beside, device.synchronize)


def relative(log: OpRecorder) -> list[tuple[int, float, float, float]]:
    """Position, issue, end and exposed time in ms of each record, from the begin of the epoch; -1: all of it."""
    start = log.issue_ns[log.count - 1]
    found = []
    for slot in range(log.count):
        exposed = log.exposed_ns[slot]
        ns = log.issue_ns[slot] - start, log.done_ns[slot] - start
        found.append((log.op[slot], ns[0] / MS, ns[1] / MS, exposed if exposed == WAITED else exposed / MS))
    return found


def overlapping(device: Device) -> EpochSteps:
    """Two calls under way beside computation: one is done when it is waited for, the other is not."""

    def compute() -> None:
        device.advance(10)

    return EpochSteps(
        [
            Step(1, device.call("dp", 4), False, "dp"),
            Step(2, device.call("tp", 30), False, "tp"),
            Step(3, compute, True, None, waits=(0,)),
            Step(4, device.blocking("pp", 5), True, "pp", waits=(1,), others=(5,)),
            Step(6, device.blocking("tp", 2), True, "tp"),
        ],
        7,
    )


def test_times_of_a_device_are_those_of_its_streams() -> None:
    """The program: 10 ms of computation, 5 of a batch, 15 that it waits for the call of tp, 2 of the last one."""
    device = Device()
    log = OpRecorder(7)
    before = time.monotonic_ns()
    took = DeviceRunner(log, line_of(device)).run(overlapping(device), 1)
    assert took == 32 * MS
    assert relative(log) == [
        (1, 0.0, 4.0, 0.0),
        (2, 0.0, 30.0, 15.0),
        (3, 0.0, 10.0, WAITED),
        (4, 10.0, 15.0, WAITED),
        (5, 10.0, 15.0, WAITED),
        (6, 30.0, 32.0, WAITED),
        (7, 0.0, 32.0, WAITED),
    ]
    assert before <= log.issue_ns[0] <= time.monotonic_ns()


def test_an_iteration_waits_for_the_device_at_its_ends_and_makes_no_events_again() -> None:
    device = Device()
    log = OpRecorder(21)
    runner = DeviceRunner(log, line_of(device))
    for iteration in (1, 2, 3):
        runner.run(overlapping(device), iteration)
        assert device.synchronised == 2 * iteration
        # Begin and end; an issue and an end of each of 5 steps; two waits.
        assert len(device.events) == 2 + 2 * 5 + 2
    assert [log.iteration[slot] for slot in range(21)] == [1] * 7 + [2] * 7 + [3] * 7
    assert log.done_ns[20] - log.issue_ns[20] == 32 * MS


def test_the_call_that_a_device_is_in_is_known() -> None:
    """The host has issued everything and waits: the first call that has not ended is what hangs."""
    device = Device()
    runner = DeviceRunner(OpRecorder(7), line_of(device))
    seen = []

    def synchronize() -> None:
        if device.streams[MAIN]:
            for device.done_ms in (3.0, 20.0, 31.0, 32.0):
                seen.append(runner.waits_for())
        device.done_ms = max(device.streams.values())

    runner._line = DeviceTimeline(EventPool(device.event), device.beside, synchronize)
    runner.run(overlapping(device), 1)
    assert seen == [1, 2, 6, None]


def test_short_times_in_a_long_iteration_are_exact() -> None:
    """torch gives the time between two events in 32 bits: from its begin, an hour has steps of a quarter of a ms."""
    device = Device()
    log = OpRecorder(4)

    def compute() -> None:
        device.advance(3_600_000)

    steps = [
        Step(0, compute, True, None),
        *(Step(1 + place, device.blocking("tp", 0.001), True, None) for place in (0, 1)),
    ]
    line = line_of(device)
    DeviceRunner(log, line).run(EpochSteps(steps, 3), 1)
    assert [log.done_ns[slot] - log.issue_ns[slot] for slot in (1, 2)] == [pytest.approx(1000, abs=1)] * 2


def test_each_is_timed_by_the_host_where_every_call_blocks() -> None:
    """A call that returns when the device has executed it needs no events."""
    device = Device()
    log = OpRecorder(2)
    DeviceRunner(log, line_of(device), HostRunner(log)).run(EpochSteps([Step(0, lambda: None, True, None)], 1), 1)
    assert not device.events and log.count == 2
