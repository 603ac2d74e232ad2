"""Times calls on this rank's device: warm-up until the times settle, then samples, each with a cold L2 on a GPU."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from training.benchmarks.aicb.measuring.statistics import Samples, spread_of, summarise
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.device_events import cycles_per_ns, elapsed_ns, timed_event

WINDOW = 5
SETTLED = 0.03
MOST_WARM_UP = 50
MOST_SECONDS = 20.0
"""Of the warm-up of one call; then it is measured as it is, and the record says that it did not settle."""
SHORTEST_WAIT_NS = 200_000.0
LONGEST_WAIT_NS = 20_000_000.0
"""Between these the device waits before a sample, twice as long as the host needs to queue the call behind the wait.

A backward pass of many small kernels takes the host longer than the device: else its time would be the host's.
"""


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
        self._cycles_per_ns = None if self._flushed is None else cycles_per_ns(device)
        self._queueing_ns = math.inf

    def measure(self, call: Callable[[], object], before: Callable[[], object] | None = None) -> Samples:
        """The times of a call in ns, which the device has finished when its time ends.

        before: runs ahead of each call and is not timed. `sensed` has the sensors while the samples ran.
        """
        self._queueing_ns = math.inf
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
        for _ in range(count):
            assert self._flushed is not None
            before()
            self._flushed.zero_()
            self._keep_busy()
            begin = timed_event(self.device)
            end = timed_event(self.device)
            begin.record()
            queued = time.perf_counter_ns()
            call()
            self._queueing_ns = min(self._queueing_ns, time.perf_counter_ns() - queued)
            end.record()
            marks.append((begin, end))
        # The device is still busy with what is queued.
        self.sensed = devices.sensors(self.device) or None
        devices.synchronize(self.device)
        return [elapsed_ns(begin, end) for begin, end in marks]

    def _keep_busy(self) -> None:
        """Queue a wait on the device, as long as the host's fastest queueing of the call suggests."""
        if self._cycles_per_ns is None:
            return
        known = self._queueing_ns if math.isfinite(self._queueing_ns) else 0.0
        wait_ns = min(max(2 * known, SHORTEST_WAIT_NS), LONGEST_WAIT_NS)
        busy = accelerators(self.device).busy(round(wait_ns * self._cycles_per_ns))
        if busy is not None:
            busy()


def _l2_buffer(device: torch.device) -> torch.Tensor | None:
    """A buffer of twice the L2 cache, shape (bytes,): writing it leaves nothing of the operands there."""
    if not is_accelerator(device):
        return None
    size = 2 * accelerators(device).cache_bytes(device)
    return torch.empty(max(size, 1 << 20), dtype=torch.int8, device=device)
