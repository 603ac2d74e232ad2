"""Samples the vendor's accelerators through its probe, in a thread of its own: a hanging driver delays nothing else."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from typing import Any, ClassVar

from monitors.power import PowerMeter, Reading
from monitors.sampler import Sampler, Unavailable, Values, Worker
from vendors.base import (
    AcceleratorHealth,
    AcceleratorProbe,
    AcceleratorProcess,
    AcceleratorSample,
    HealthReader,
    ProbeUnavailable,
    ProcessLister,
)

OPEN_DEADLINE_S = 10.0
SAMPLE_DEADLINE_S = 0.5
MIB = 1 << 20


class AcceleratorSampler(Sampler):
    """All devices of the host at every tick.

    Raises:
        Unavailable: the vendor's probe is unavailable.
    """

    source = "accelerator"
    columns: ClassVar[Sequence[str]] = (
        "device", "temperature_c", "power_w", "memory_used_mib", "memory_total_mib", "utilization_percent",
    )  # fmt: skip

    def __init__(self, open_probe: Callable[[], AcceleratorProbe], log: str, deadline_s: float) -> None:
        self.log = log
        self._deadline_s = deadline_s
        self._worker = Worker("accelerator")
        self.latest: list[AcceleratorSample] | None = None
        self.energy_j: dict[int, float] | None = None
        try:
            self._probe = self._worker.call(open_probe, OPEN_DEADLINE_S)
            energy = self._worker.call(self._probe.energy_joules, OPEN_DEADLINE_S)
        except ProbeUnavailable as error:
            raise Unavailable(error.reason) from error
        except Exception as error:
            raise Unavailable(f"the driver does not start: {type(error).__name__}: {error}") from error
        self._first = dict(energy or {})

    def describe(self) -> dict[str, Any]:
        """The probe's description of driver and devices; {"error": ...} if the driver does not answer."""
        try:
            return self._worker.call(self._probe.describe, OPEN_DEADLINE_S)
        except Exception as error:  # noqa: BLE001 - a vendor's probe may raise anything; the samples may still come
            return {"error": f"{type(error).__name__}: {error}"}

    def sample(self) -> Values:
        """{"devices": [the fields of AcceleratorSample, and "energy_j" since the start where there is a counter]}"""
        self.latest = None
        samples, energy = self._worker.call(self._read, self._deadline_s)
        if energy is not None:
            known = self.energy_j or {}
            self.energy_j = known | {i: joules - self._first.setdefault(i, joules) for i, joules in energy.items()}
        self.latest = samples
        return {"devices": [self._device(sample) for sample in samples]}

    def _read(self) -> tuple[list[AcceleratorSample], Mapping[int, float] | None]:
        return self._probe.sample(), self._probe.energy_joules()

    def _device(self, sample: AcceleratorSample) -> dict[str, Any]:
        device = asdict(sample)
        if device["error"] is None:
            del device["error"]
        if self.energy_j is not None and sample.index in self.energy_j:
            device["energy_j"] = round(self.energy_j[sample.index], 3)
        return device

    def processes(self) -> list[AcceleratorProcess] | None:
        """The processes that compute on the devices; None if the vendor cannot tell.

        Raises:
            Late: the driver does not answer in time.
            Exception: whatever the vendor's driver raises.
        """
        probe = self._probe
        return self._worker.call(probe.processes, self._deadline_s) if isinstance(probe, ProcessLister) else None

    def begin_health(self) -> Future[list[AcceleratorHealth]] | None:
        """Begins to read the counters of the devices; None if the vendor's probe cannot tell.

        Raises:
            Late: an earlier call still hangs.
        """
        probe = self._probe
        return self._worker.begin(probe.health) if isinstance(probe, HealthReader) else None

    def rows(self, values: Values) -> list[Sequence[Any]]:
        """One line per device in FlagPerf's order: temperature, power, memory used, memory size, utilization."""
        return [
            [
                device["index"],
                device["temperature_c"],
                device["power_w"],
                _mib(device["memory_used_bytes"]),
                _mib(device["memory_total_bytes"]),
                device["utilization_percent"],
            ]
            for device in values["devices"]
        ]

    def close(self) -> None:
        """Close the probe unless it hangs: the process ends in any case."""
        with contextlib.suppress(Exception):
            self._worker.call(self._probe.close, self._deadline_s)


class AcceleratorMeter(PowerMeter):
    """Total power of all accelerators, from the sample that the AcceleratorSampler took at the same tick."""

    meter = "accelerator"

    def __init__(self, sampler: AcceleratorSampler) -> None:
        super().__init__()
        self._sampler = sampler

    def read(self) -> Reading | None:
        """The sum over the devices that report it, in watts and joules, and how many of all these are.

        There are no joules unless each of these devices counts them.

        Raises:
            Unavailable: no device reports its power.
        """
        if self._sampler.latest is None:
            return None
        watts = [sample.power_w for sample in self._sampler.latest if sample.power_w is not None]
        if not watts:
            if any(sample.error is None for sample in self._sampler.latest):
                raise Unavailable("no device reports its power")
            return None
        energy = self._sampler.energy_j or {}
        are_counted = all(each.index in energy for each in self._sampler.latest if each.power_w is not None)
        of_devices = (len(watts), len(self._sampler.latest))
        return Reading(sum(watts), sum(energy.values()) if are_counted else None, of_devices)


def _mib(size: int | None) -> int | None:
    return None if size is None else size // MIB
