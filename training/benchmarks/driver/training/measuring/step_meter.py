"""Clocks of a training loop: total, without evaluation, computation alone, and each step. Needs no torch."""

import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from training.benchmarks.driver.training.measuring.rates import Times

MarkT = TypeVar("MarkT")


class StepMeter(ABC, Generic[MarkT]):
    """Clocks of the training loop. A mark is a moment: of the host's clock, or an event in a device's stream.

    raw and no_eval are host times that end after a synchronization with the device. pure_compute is the sum over
    the steps of the time between begin and end of the computation on the device (communication of gradients
    included), without the loading of data meanwhile. The time of a step begins where the step before it, or what
    was excluded after that, has ended. All are in seconds.
    """

    def __init__(self) -> None:
        self._excluded, self._is_computing = 0.0, False
        self._compute = 0.0
        self._steps: list[float] = []
        self._pending: list[tuple[MarkT, MarkT, MarkT, bool]] = []
        self._loading: list[tuple[MarkT, MarkT]] = []  # between the begin and the end of a step's computation
        self._begin = time.perf_counter()
        self._mark = self._compute_begin = self.now()

    @abstractmethod
    def now(self) -> MarkT:
        """This moment."""

    @abstractmethod
    def seconds(self, begin: MarkT, end: MarkT) -> float:
        """Seconds between two moments that are over on the device."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has done what was queued."""

    def start(self) -> None:
        """Start the clock of the training."""
        self.synchronize()
        self._begin = time.perf_counter()
        self._mark = self.now()

    def begin_compute(self) -> None:
        """Mark that the data of the step's first forward pass is on the device."""
        self._is_computing, self._compute_begin = True, self.now()

    def end_compute(self, *, is_typical: bool = True) -> None:
        """Mark that the step's update is done, or queued; the time of a step that is not typical is kept as NaN."""
        self._is_computing, end = False, self.now()
        self._pending.append((self._mark, self._compute_begin, end, is_typical))
        self._mark = end

    @contextlib.contextmanager
    def loading(self) -> Iterator[None]:
        """Leave what is done inside this context out of the computation."""
        begin = self.now() if self._is_computing else None
        yield
        if begin is not None:
            self._loading.append((begin, self.now()))

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Exclude evaluations and checkpoints inside this context."""
        self.synchronize()
        begin = time.perf_counter()
        yield
        self.synchronize()
        self._excluded += time.perf_counter() - begin
        self._mark = self.now()

    def read(self) -> Times:
        """The times so far, in seconds; waits for the device."""
        self.synchronize()
        raw = time.perf_counter() - self._begin
        for mark, begin, end, is_typical in self._pending:
            self._compute += self.seconds(begin, end)
            self._steps.append(self.seconds(mark, end) if is_typical else math.nan)
        self._compute -= sum(self.seconds(begin, end) for begin, end in self._loading)
        self._pending.clear()
        self._loading.clear()
        return Times(raw=raw, no_eval=raw - self._excluded, pure_compute=self._compute)

    @property
    def step_times(self) -> Sequence[float]:
        """Seconds of each step that was over at the last `read`; NaN where a step was not typical."""
        return self._steps
