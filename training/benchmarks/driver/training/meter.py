"""Times of a run (all of it, without evaluation, the computation alone), and what follows: MFU, memory."""

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
    """Seconds since the training began: all, all but evaluations and checkpoints, and forward to update alone."""

    raw: float
    no_eval: float
    pure_compute: float


class Meter:
    """Clocks of the training loop. On CUDA the computation is timed by events, which wait for nothing.

    raw and no_eval are host times; their ends lie behind a synchronisation with the device. pure_compute is the time
    between begin and end of each step's computation on the device (gradients' communication included).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._is_cuda = device.type == "cuda"
        self._excluded = 0.0
        self._compute = 0.0
        self._pending: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []
        self._begin = self._step_begin = time.perf_counter()

    def start(self) -> None:
        """The training begins."""
        self.synchronize()
        self._begin = time.perf_counter()

    def begin_compute(self) -> None:
        """The step's data is there."""
        if self._is_cuda:
            begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            self._pending.append((begin, torch.cuda.Event(enable_timing=True)))  # type: ignore[no-untyped-call]
        else:
            self._step_begin = time.perf_counter()

    def end_compute(self) -> None:
        """The step's update is done, or queued."""
        if self._is_cuda:
            self._pending[-1][1].record()
        else:
            self._compute += time.perf_counter() - self._step_begin

    @contextlib.contextmanager
    def excluded(self) -> Iterator[None]:
        """Around evaluations and checkpoints."""
        self.synchronize()
        begin = time.perf_counter()
        yield
        self.synchronize()
        self._excluded += time.perf_counter() - begin

    def read(self) -> Times:
        """The times so far; waits for the device."""
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
    """Peak of one device in 1e12 operations a second for the run's precision; None where it is not known."""
    if config.peak_tflops is not None or device.type != "cuda":
        return config.peak_tflops
    sheet = datasheet(torch.cuda.get_device_name(device))
    dtype = "tf32" if config.precision == "fp32" and config.tf32 else config.precision
    return None if sheet is None else sheet.tflops[dtype]


def model_flops_utilization(
    config: TrainingConfig, *, samples: int, seconds: float, world_size: int, peak: float | None
) -> float | None:
    """Part of all devices' peak (in 1e12/s each) that the model's own operations take up, 0 to 1."""
    if peak is None or not samples:
        return None
    return config.flops_per_sample() * samples / seconds / (world_size * peak * _TERA)


def peak_memory_bytes(device: torch.device) -> int:
    """Most memory this rank has held: allocated on the CUDA device, else resident on the host."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux counts KiB
