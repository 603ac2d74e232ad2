"""Summarizes the samples of one phase of a round, the measured work, without start-up, loading and shutdown.

A sample stands for the time since the previous one: its weight is the part of that time that lies in the phase.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True, slots=True)
class Weighted:
    """Time-weighted mean and maximum of the samples; None without any. `seconds`: the covered part of the phase."""

    mean: float | None = None
    max: float | None = None
    seconds: float = 0.0

    def add(self, value: float | None, seconds: float) -> None:
        """Add a value that held for `seconds`; None stands for a device that did not report."""
        if value is None or seconds <= 0:
            return
        self.seconds += seconds
        self.mean = value if self.mean is None else self.mean + (value - self.mean) * seconds / self.seconds
        self.max = value if self.max is None else max(self.max, value)


@dataclass(kw_only=True, slots=True)
class PhasePower:
    """One power meter: watts, and joules of the phase; samples at its edges count with the part that lies in it."""

    watts: Weighted = field(default_factory=Weighted)
    joules: float | None = None


@dataclass(kw_only=True, slots=True)
class PhaseDevice:
    """One accelerator in the phase."""

    index: int
    utilization_percent: Weighted = field(default_factory=Weighted)
    memory_used_bytes: Weighted = field(default_factory=Weighted)
    power_w: Weighted = field(default_factory=Weighted)
    energy_j: float | None = None


@dataclass(kw_only=True, slots=True)
class PhaseSummary:
    """One host from `started_ms` to `ended_ms`, epoch milliseconds of its own clock."""

    started_ms: int
    ended_ms: int
    cpu_percent: Weighted = field(default_factory=Weighted)
    memory_percent: Weighted = field(default_factory=Weighted)
    memory_used_bytes: Weighted = field(default_factory=Weighted)
    power: dict[str, PhasePower] = field(default_factory=dict)
    devices: list[PhaseDevice] = field(default_factory=list)


class PhaseReader:
    """Takes the samples of a whole round in order, and keeps those of the phase."""

    def __init__(self, started_ms: int, ended_ms: int) -> None:
        self.summary = PhaseSummary(started_ms=started_ms, ended_ms=ended_ms)
        self._last_ms: dict[str, int] = {}
        self._last_joules: dict[str, float] = {}
        self._devices: dict[int, PhaseDevice] = {}
        self._take: Mapping[str, Callable[[Mapping[str, Any], int], None]] = {
            "cpu": self._take_cpu,
            "mem": self._take_memory,
            "power": self._take_power,
            "accelerator": self._take_accelerator,
        }

    def take(self, source: str, moment_ms: int, values: Mapping[str, Any]) -> None:
        """Take a sample of that source.

        Raises:
            KeyError, TypeError: the values are not of the monitor's form.
        """
        take = self._take.get(source)
        if take is not None:
            take(values, moment_ms)

    def _share(self, key: str, moment_ms: int) -> tuple[float, float]:
        """(seconds of the phase, part of the sample's own time) that this sample of `key` stands for."""
        before = self._last_ms.get(key)
        self._last_ms[key] = moment_ms
        if before is None or moment_ms <= before:
            return 0.0, 0.0
        inside_ms = min(moment_ms, self.summary.ended_ms) - max(before, self.summary.started_ms)
        return max(inside_ms, 0) / 1000, max(inside_ms, 0) / (moment_ms - before)

    def _joules(self, key: str, total: float | None, part: float, before: float | None) -> float | None:
        """The phase's joules with this sample; `total` are the joules since the monitor's start."""
        if total is None:
            return before
        last = self._last_joules.get(key)
        self._last_joules[key] = total
        return before if last is None or part == 0 else (before or 0.0) + (total - last) * part

    def _take_cpu(self, values: Mapping[str, Any], moment_ms: int) -> None:
        seconds, _ = self._share("cpu", moment_ms)
        self.summary.cpu_percent.add(values["utilization_percent"], seconds)

    def _take_memory(self, values: Mapping[str, Any], moment_ms: int) -> None:
        seconds, _ = self._share("mem", moment_ms)
        self.summary.memory_percent.add(values["used_percent"], seconds)
        self.summary.memory_used_bytes.add(values["used_bytes"], seconds)

    def _take_power(self, values: Mapping[str, Any], moment_ms: int) -> None:
        key = f"power/{values['meter']}"
        seconds, part = self._share(key, moment_ms)
        meter = self.summary.power.setdefault(values["meter"], PhasePower())
        meter.watts.add(values["watts"], seconds)
        meter.joules = self._joules(key, values["joules"], part, meter.joules)

    def _take_accelerator(self, values: Mapping[str, Any], moment_ms: int) -> None:
        seconds, part = self._share("accelerator", moment_ms)
        for sample in values["devices"]:
            index = sample["index"]
            if index not in self._devices:
                self._devices[index] = PhaseDevice(index=index)
                self.summary.devices.append(self._devices[index])
            device = self._devices[index]
            if sample.get("error") is not None:
                continue
            for name in ("utilization_percent", "memory_used_bytes", "power_w"):
                getattr(device, name).add(sample[name], seconds)
            device.energy_j = self._joules(f"device {index}", sample.get("energy_j"), part, device.energy_j)
