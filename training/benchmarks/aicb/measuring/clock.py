"""Times calls on this rank's device: warm-up until the times settle, then samples, each with a cold L2 on a GPU."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from training.benchmarks.aicb.measuring.statistics import Samples, spread_of, summarise
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import elapsed_ns, timed_event

WINDOW = 5
SETTLED = 0.03
MOST_WARM_UP = 50
MOST_SECONDS = 20.0
"""Of the warm-up of one call; then it is measured as it is, and the record says that it did not settle."""
SPIN_CYCLES = 400_000
"""The device waits so long (a fifth of a millisecond) before a sample, while the host queues the calls behind it."""


@dataclass(frozen=True, slots=True)
class ClockLimits:
    """iterations: samples; warm_up: largest number of calls before them, for at most `seconds`."""

    iterations: int = 10
    warm_up: int = MOST_WARM_UP
    seconds: float = MOST_SECONDS


class Clock:
    """Measures calls on one device."""

    def __init__(self, device: torch.device, limits: ClockLimits) -> None:
        self.device = device
        self.limits = limits
        self.sensed: dict[str, Any] | None = None
        self._flushed = _l2_buffer(device)

    def measure(self, call: Callable[[], object], before: Callable[[], object] | None = None) -> Samples:
        """The times of a call in ns, which the device has finished when its time ends.

        before: runs ahead of each call and is not timed. `sensed` has the sensors while the samples ran.
        """
        recent: list[float] = []
        tries, began = 0, time.perf_counter()
        while tries < self.limits.warm_up:
            recent = [*recent[-WINDOW + 1 :], self._timed(call, 1, before)[0]]
            tries += 1
            if len(recent) == WINDOW and spread_of(recent) < SETTLED:
                break
            if time.perf_counter() - began > self.limits.seconds:
                break
        spread = spread_of(recent) if recent else 0.0
        settled = len(recent) == WINDOW and spread < SETTLED
        times = self._timed(call, self.limits.iterations, before)
        return summarise(times, warm_up=tries, settled=settled, spread=spread)

    def _timed(self, call: Callable[[], object], count: int, before: Callable[[], object] | None) -> list[float]:
        run = self._on_cpu if self._flushed is None else self._on_device
        return run(call, count, before or (lambda: None))

    def _on_cpu(self, call: Callable[[], object], count: int, before: Callable[[], object]) -> list[float]:
        times = []
        for _ in range(count):
            before()
            begin = time.perf_counter_ns()
            call()
            times.append(float(time.perf_counter_ns() - begin))
        return times

    def _on_device(self, call: Callable[[], object], count: int, before: Callable[[], object]) -> list[float]:
        marks = []
        devices = accelerators(self.device)
        busy = devices.busy(SPIN_CYCLES) or (lambda: None)
        for _ in range(count):
            assert self._flushed is not None
            before()
            self._flushed.zero_()
            busy()
            begin = timed_event(self.device)
            end = timed_event(self.device)
            begin.record()
            call()
            end.record()
            marks.append((begin, end))
        # The device is still busy with what is queued.
        self.sensed = devices.sensors(self.device) or None
        devices.synchronize(self.device)
        return [elapsed_ns(begin, end) for begin, end in marks]


def _l2_buffer(device: torch.device) -> torch.Tensor | None:
    """A buffer of twice the L2 cache, shape (bytes,): writing it leaves nothing of the operands there."""
    if not is_accelerator(device):
        return None
    size = 2 * accelerators(device).cache_bytes(device)
    return torch.empty(max(size, 1 << 20), dtype=torch.int8, device=device)
