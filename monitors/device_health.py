"""Reads the error counters and states of the accelerators: at the begin of a round, every EVERY_S, and at its end."""

import time
from dataclasses import asdict
from typing import Any

from monitors.accelerator import AcceleratorSampler
from monitors.sampler import Sampler, Values

EVERY_S = 10.0  # eighteen links of eight devices have 720 counters: not at every tick


class DeviceHealthSampler(Sampler):
    """Looks at the health of all devices through the sampler's own driver thread."""

    source = "accelerator_health"
    is_rare = True

    def __init__(self, sampler: AcceleratorSampler) -> None:
        self._sampler = sampler
        self._due = time.monotonic() + EVERY_S
        self._first: Values | None = self._look()

    def sample(self) -> Values | None:
        """{"devices": [the fields of AcceleratorHealth]}, when due; the first look with the first sample."""
        first, self._first = self._first, None
        if first is not None:
            return first
        if time.monotonic() < self._due:
            return None
        self._due = time.monotonic() + EVERY_S
        return self._look()

    def sample_last(self) -> Values | None:
        """As sample(), always due."""
        return self._look()

    def _look(self) -> Values | None:
        found = self._sampler.health()
        return None if found is None else {"devices": [_device(asdict(each)) for each in found]}


def _device(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
