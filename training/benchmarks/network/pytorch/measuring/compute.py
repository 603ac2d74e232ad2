"""Keeps a device busy with matrix products for a chosen time."""

import time
from typing import Final

import torch

from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator

_SIDE_CPU, _SIDE = 192, 2048
_REHEARSED = 8


class MatrixProducts:
    """Products of square matrices: on the CPU until the time is over, on a device as many as take it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        side = _SIDE if is_accelerator(device) else _SIDE_CPU
        dtype = torch.bfloat16 if is_accelerator(device) else torch.float32
        self._left = torch.ones(side, side, dtype=dtype, device=device)
        self._right, self._result = torch.ones_like(self._left), torch.empty_like(self._left)
        self.product_s: Final = self._rehearse()

    def _rehearse(self) -> float:
        """Seconds of one product."""
        for _ in range(2):
            self.queue(_REHEARSED)
            self._wait()
            begin = time.perf_counter()
            self.queue(_REHEARSED)
            self._wait()
            seconds = (time.perf_counter() - begin) / _REHEARSED
        return seconds

    def queue(self, count: int) -> None:
        """Make `count` products; on an accelerator they are queued on the current stream."""
        for _ in range(count):
            torch.matmul(self._left, self._right, out=self._result)

    def run(self, milliseconds: float) -> None:
        """Compute for so many milliseconds; on an accelerator the products are queued."""
        if is_accelerator(self._device):
            self.queue(max(1, round(milliseconds / 1e3 / self.product_s)))
            return
        end = time.perf_counter() + milliseconds / 1e3
        while time.perf_counter() < end:
            self.queue(1)

    def _wait(self) -> None:
        if is_accelerator(self._device):
            accelerators(self._device).synchronize()
