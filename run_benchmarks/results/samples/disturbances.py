"""Finds disturbances in a monitor.jsonl: clock steps, throttling, other users."""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from run_benchmarks.results.samples.summary import MonitorSummary, read_records

STEP_S = 0.1
# Clocks that are lowered by a power limit, by the application or in idleness are normal for these devices.
DISTURBING = frozenset({"hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown"})


# A host may send anything: more steps, devices, processes than these are only counted; samples are thinned to so many.
MAX_KEPT, MAX_SAMPLES = 10_000, 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClockStep:
    """A jump of the wall clock by `seconds` against the monotonic one, between two samples."""

    from_ms: int
    to_ms: int
    seconds: float


@dataclass(kw_only=True, slots=True)
class Throttling:
    """A device (None: the processors) was throttled: first and last time in epoch ms, number of `samples`."""

    device: int | None
    reason: str
    from_ms: int
    to_ms: int
    samples: int = 0


@dataclass(kw_only=True, slots=True)
class ForeignProcess:
    """A process on a device, not of the round, while it was seen; `is_before`: already at the first look."""

    device: int
    pid: int
    memory_bytes: int | None
    from_ms: int
    to_ms: int
    is_before: bool


@dataclass(kw_only=True, slots=True)
class Disturbances:
    """All disturbances of one host in one round. Times are the host's epoch milliseconds.

    process_s: (time, seconds of all processes since boot over all cores), one per sample. used_bytes: memory in use on
    each device at its first sample, with its time. left_out: number of disturbances beyond MAX_KEPT of one kind.
    """

    clock_steps: list[ClockStep] = field(default_factory=list)
    throttling: dict[tuple[int | None, str], Throttling] = field(default_factory=dict)
    foreign: dict[tuple[int, int], ForeignProcess] = field(default_factory=dict)
    used_bytes: dict[int, tuple[int, int]] = field(default_factory=dict)
    process_s: list[tuple[int, float]] = field(default_factory=list)
    cores: int = 0
    left_out: int = 0
    _every: int = 1
    _seen: int = 0
    _last: tuple[int, float] | None = None

    def take(self, record: Mapping[str, Any]) -> None:
        """Take one record of a monitor.jsonl.

        Raises:
            KeyError, TypeError, ValueError: the record does not have the form of its source.
        """
        moment = int(record["t_ms"])
        self._compare_clocks(moment, float(record["monotonic_s"]))
        values = record.get("values")
        if values is None:
            return
        source = record["source"]
        if source == "cpu" and "process_s" in values:
            self._take_process_seconds(moment, float(values["process_s"]))
            self.cores = int(values["cores"])
        elif source == "cpu_throttle":
            self._throttled(None, "heat", moment)
        elif source == "accelerator":
            for device in values["devices"]:
                if device.get("memory_used_bytes") is not None and self._has_room(
                    self.used_bytes, int(device["index"])
                ):
                    self.used_bytes.setdefault(int(device["index"]), (moment, int(device["memory_used_bytes"])))
                for reason in DISTURBING.intersection(device.get("throttle_reasons") or ()):
                    self._throttled(int(device["index"]), reason, moment)
        elif source == "accelerator_processes":
            self._take_processes(values, moment)

    def _compare_clocks(self, moment: int, monotonic: float) -> None:
        """Find steps: slewed clocks stay together; only a step (or a suspended machine) separates them."""
        if self._last is not None:
            step = (moment - self._last[0]) / 1000 - (monotonic - self._last[1])
            if abs(step) > STEP_S and self._has_room(self.clock_steps):
                self.clock_steps.append(ClockStep(from_ms=self._last[0], to_ms=moment, seconds=round(step, 3)))
        self._last = (moment, monotonic)

    def _take_process_seconds(self, moment: int, seconds: float) -> None:
        """Keep every n-th sample, n being doubled whenever there are too many."""
        self._seen += 1
        if self._seen % self._every:
            return
        self.process_s.append((moment, seconds))
        if len(self.process_s) >= MAX_SAMPLES:
            del self.process_s[1::2]
            self._every *= 2

    def _has_room(self, kept: Collection[object], key: object = None) -> bool:
        """Whether `kept` takes another one, or has `key` already; else it is counted as left out."""
        if len(kept) < MAX_KEPT or (key is not None and key in kept):
            return True
        self.left_out += 1
        return False

    def _throttled(self, device: int | None, reason: str, moment: int) -> None:
        if not self._has_room(self.throttling, (device, reason)):
            return
        known = self.throttling.setdefault(
            (device, reason), Throttling(device=device, reason=reason, from_ms=moment, to_ms=moment)
        )
        known.to_ms, known.samples = moment, known.samples + 1

    def _take_processes(self, values: Mapping[str, Any], moment: int) -> None:
        is_first = bool(values["first"])
        for each in values["foreign"]:
            device, pid, memory = int(each["device"]), int(each["pid"]), each["memory_bytes"]
            process = ForeignProcess(
                device=device, pid=pid, memory_bytes=memory, from_ms=moment, to_ms=moment, is_before=is_first
            )
            if self._has_room(self.foreign, (device, pid)):
                self.foreign.setdefault((device, pid), process).to_ms = moment


def read_disturbances(path: Path, *, load: Callable[[bytes], object] = json.loads) -> Disturbances:
    """Read a monitor.jsonl; `load` as for `summarize`.

    Raises:
        OSError, SummaryError: as for `summarize`.
        KeyError, TypeError, ValueError, AttributeError: for values that are none of a monitor.
    """
    found = Disturbances()
    for record in read_records(path, MonitorSummary(), load):
        found.take(record)
    return found


def process_seconds(samples: list[tuple[int, float]], from_ms: int, to_ms: int) -> float | None:
    """CPU seconds of all processes between two times in epoch ms, interpolated; None: samples do not cover them."""
    if len(samples) < 2 or samples[0][0] > from_ms or samples[-1][0] < to_ms:
        return None
    return _at(samples, to_ms) - _at(samples, from_ms)


def _at(samples: list[tuple[int, float]], moment: int) -> float:
    for (before, low), (after, high) in pairwise(samples):
        if before <= moment <= after:
            return low + (high - low) * (moment - before) / max(1, after - before)
    return samples[-1][1]
