"""Reads the error counters and states of the accelerators: at the begin of a round, every EVERY_S, and at its end."""

import contextlib
import time
from concurrent.futures import Future, wait
from dataclasses import asdict
from typing import Any

from monitors.accelerator import SAMPLE_DEADLINE_S, AcceleratorSampler
from monitors.sampler import Late, Sampler, Values
from vendors.base import AcceleratorHealth

LAST_DEADLINE_S = 2.0
EVERY_S = 10.0  # eighteen links of eight devices have 720 counters: not at every tick


class DeviceHealthSampler(Sampler):
    """Looks at the health of all devices through the sampler's own driver thread.

    A look that takes longer than SAMPLE_DEADLINE_S is fetched at a later tick, so that the other samplers do not wait.
    """

    source = "accelerator_health"
    is_rare = True

    def __init__(self, sampler: AcceleratorSampler) -> None:
        self._sampler = sampler
        self._looking: Future[list[AcceleratorHealth]] | None = None
        self._due = time.monotonic()
        try:
            self._begin()
        except Late:  # the driver still answers an earlier question: the first tick looks
            return
        self._wait(time.monotonic() + SAMPLE_DEADLINE_S)

    def sample(self) -> Values | None:
        """{"devices": [the fields of AcceleratorHealth]}, of the look that has ended; begins one when it is due.

        Raises:
            Late: the driver still answers an earlier question.
            Exception: whatever the vendor's driver raises.
        """
        if self._looking is None and time.monotonic() >= self._due:
            self._begin()
            self._wait(time.monotonic() + SAMPLE_DEADLINE_S)
        return self._taken()

    def sample_last(self) -> Values | None:
        """As sample(), always due, within LAST_DEADLINE_S; the look that went on if no new one comes in that time."""
        end = time.monotonic() + LAST_DEADLINE_S
        self._wait(end)
        earlier = None
        with contextlib.suppress(Exception):  # the new look tells what is wrong with the driver
            earlier = self._taken()
        try:
            self._begin()
            self._wait(end)
            return self._taken() or earlier
        except Exception:
            if earlier is None:
                raise
            return earlier

    def _begin(self) -> None:
        self._looking = self._sampler.begin_health()

    def _wait(self, end: float) -> None:
        if self._looking is not None:
            wait([self._looking], max(0.0, end - time.monotonic()))

    def _taken(self) -> Values | None:
        look = self._looking
        if look is None or not look.done():
            return None
        self._looking, self._due = None, time.monotonic() + EVERY_S
        return {"devices": [_device(asdict(each)) for each in look.result()]}


def _device(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
