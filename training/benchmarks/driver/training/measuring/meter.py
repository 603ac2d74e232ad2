"""Measures the times of a run (total, without evaluation, computation alone) on torch's devices, and its memory."""

import resource
import time

import torch

from training.benchmarks.driver.training.measuring.rates import peak_of
from training.benchmarks.driver.training.measuring.step_meter import StepMeter
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator
from training.benchmarks.driver.workload.device_events import TimedEvent, elapsed_ns, timed_event

Mark = float | TimedEvent


class Meter(StepMeter[Mark]):
    """Clocks of the training loop: on an accelerator steps and computation are timed by events, which do not block."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        super().__init__()

    def now(self) -> Mark:
        """This moment: on an accelerator an event in the stream, else seconds of the host's clock."""
        if not is_accelerator(self._device):
            return time.perf_counter()
        event = timed_event(self._device)
        event.record()
        return event

    def seconds(self, begin: Mark, end: Mark) -> float:
        if isinstance(begin, float) or isinstance(end, float):
            assert isinstance(begin, float) and isinstance(end, float)
            return end - begin
        return elapsed_ns(begin, end) / 1e9

    def synchronize(self) -> None:
        """Wait until the device has done what was queued."""
        if is_accelerator(self._device):
            accelerators(self._device).synchronize(self._device)


def peak_tflops(config: TrainingConfig, device: torch.device) -> float | None:
    """Peak rate of one device in 1e12 operations/s for the run's precision; None if it is unknown."""
    return peak_of(config, device_name(device) if is_accelerator(device) else None)


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory of this rank so far, in bytes: allocated on the device, else resident on the host."""
    if is_accelerator(device):
        return accelerators(device).peak_memory(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
