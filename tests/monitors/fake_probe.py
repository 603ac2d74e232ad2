"""Accelerators for the monitors' tests: a probe at the vendor's edge that can be told to fail or to hang."""

import threading
from collections.abc import Mapping
from typing import Any

from vendors import AcceleratorSample
from vendors.base import AcceleratorHealth, AcceleratorProcess


class FakeProbe:
    """Two devices of 100 W and 200 W; the energy of those of `counting` rises by 50 J and 100 J between samples."""

    def __init__(self, *, counting: tuple[int, ...] = (0, 1), power: bool = True) -> None:
        self.counting = counting
        self.power = power
        self.error: Exception | None = None
        self.lost: int | None = None
        self.hang: threading.Event | None = None
        self.closed = False
        self._reads = 0

    def describe(self) -> dict[str, Any]:
        return {"driver": "1.0", "devices": [{"index": 0}, {"index": 1}]}

    def sample(self) -> list[AcceleratorSample]:
        if self.hang is not None:
            self.hang.wait()
        if self.error is not None:
            raise self.error
        return [self._device(index) for index in (0, 1)]

    def _device(self, index: int) -> AcceleratorSample:
        if index == self.lost:
            return AcceleratorSample(index=index, error="fell off the bus")
        return AcceleratorSample(
            index=index,
            utilization_percent=50.0,
            memory_used_bytes=1 << 30,
            memory_total_bytes=4 << 30,
            temperature_c=40,
            power_w=100.0 * (index + 1) if self.power else None,
            throttle_reasons=["sw_power_cap"],
        )

    def energy_joules(self) -> Mapping[int, float] | None:
        if not self.counting:
            return None
        self._reads += 1
        return {index: 1000.0 + 50 * (index + 1) * self._reads for index in self.counting if index != self.lost}

    def health(self) -> list[AcceleratorHealth]:
        if self.hang is not None:
            self.hang.wait()
        if self.error is not None:
            raise self.error
        return [AcceleratorHealth(index=index, counts={"pcie_replays": 3}) for index in (0, 1)]

    def processes(self) -> list[AcceleratorProcess]:
        if self.error is not None:
            raise self.error
        return [AcceleratorProcess(device=0, pid=1)]

    def close(self) -> None:
        self.closed = True
