"""Keeps a device busy with as many matrix products as take a chosen time."""

import time
from typing import Final

import numpy as np
import torch

from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.team import Team, slowest_rank

_SIDE_CPU, _SIDE = 192, 2048
_REHEARSED = 8


class MatrixProducts:
    """Products of square matrices. Work is chosen, not time: ranks that share a core end apart, as in a job."""

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

    def count(self, milliseconds: float, team: Team) -> int:
        """Products that take so many milliseconds on the fastest rank of the team, which all call it; at least one."""
        own = np.array([max(1, round(milliseconds / 1e3 / self.product_s))], dtype=np.float64)
        return int(slowest_rank(own, team)[0])

    def _wait(self) -> None:
        if is_accelerator(self._device):
            accelerators(self._device).synchronize()
