"""Measures the times of a run (total, without evaluation, computation alone), and derives MFU and memory."""

import contextlib
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from training.benchmarks.driver.protocol.datasheet import datasheet
from training.benchmarks.driver.training.settings import TrainingConfig

_TERA = 1e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Times:
    """Seconds since the training began: `raw` in total, then without evaluations and checkpoints, then forward to
    update alone.
    """

    raw: float
    no_eval: float
    pure_compute: float


class Meter:
    """Clocks of the training loop. On CUDA the computation is timed by events, which do not block.

    raw and no_eval are host times that end after a synchronization with the device. pure_compute is the sum over the
    steps of the time between begin and end of the computation on the device (communication of gradients included). All
    are in seconds.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._excluded = 0.0
        self._compute = 0.0
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._begin = self._step_begin = time.perf_counter()

    def start(self) -> None:
        """Start the clock of the training."""
        self.synchronize()
        self._begin = time.perf_counter()

    def begin_compute(self) -> None:
        """Mark that the step's data is on the device."""
        if self._is_cuda:
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            self._pending.append((begin, torch.cuda.Event(enable_timing=True)))  # type: ignore[no-untyped-call]
        else:
            self._step_begin = time.perf_counter()

    def end_compute(self) -> None:
        """Mark that the step's update is done, or queued."""
        if self._is_cuda:
            self._pending[-1][1].record()
        else:
            self._compute += time.perf_counter() - self._step_begin

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Exclude evaluations and checkpoints inside this context."""
        self.synchronize()
        begin = time.perf_counter()
        yield
        self.synchronize()
        self._excluded += time.perf_counter() - begin

    def read(self) -> Times:
        """The times so far, in seconds; waits for the device."""
        self.synchronize()
        raw = time.perf_counter() - self._begin
        milliseconds = sum(begin.elapsed_time(end) for begin, end in self._pending)
        self._pending.clear()
        self._compute += milliseconds / 1e3
        return Times(raw=raw, no_eval=raw - self._excluded, pure_compute=self._compute)

    def synchronize(self) -> None:
        """Wait until the device has done what was queued."""
        if self._is_cuda:
            torch.cuda.synchronize(self._device)


def peak_tflops(config: TrainingConfig, device: torch.device) -> float | None:
    """Peak rate of one device in 1e12 operations/s for the run's precision; None if it is unknown."""
    if config.peak_tflops is not None or device.type != "cuda":
        return config.peak_tflops
    sheet = datasheet(torch.cuda.get_device_name(device))
    dtype = "tf32" if config.precision == "fp32" and config.tf32 else config.precision
    return None if sheet is None else sheet.tflops[dtype]


def model_flops_utilization(
    config: TrainingConfig, *, samples: int, seconds: float, world_size: int, peak: float | None
) -> float | None:
    """MFU: fraction (0 to 1) of the peak of all devices that the model's own operations achieve; None without a peak.

    `seconds` is the time for `samples` samples of all ranks; `peak` is the peak of one device in 1e12 operations/s.

    Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B.
    """
    if peak is None or not samples:
        return None
    return config.flops_per_sample() * samples / seconds / (world_size * peak * _TERA)


def peak_memory_bytes(device: torch.device) -> int:
    """Largest memory of this rank so far, in bytes: allocated on the CUDA device, else resident on the host."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
