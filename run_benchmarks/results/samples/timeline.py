"""Aggregates the samples of a round while they are read, for drawing: a few hundred values a series, whatever comes.

The time since the first sample is cut into buckets of one width for all series; when there are too many, two become
one. A bucket holds the mean of its samples; of temperatures the highest, of clocks the lowest, which averages hide.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MOST_BUCKETS, FIRST_MS = 150, 1000
MAX_SERIES, MAX_CHARACTERS = 2000, 100
# By name: a device's field, and what a bucket keeps of its samples.
_DEVICE = {
    "utilization": ("utilization_percent", "mean"),
    "device_power": ("power_w", "mean"),
    "temperature": ("temperature_c", "max"),
    "clock": ("sm_clock_mhz", "min"),
    "device_memory": ("memory_used_bytes", "mean"),
}
_WORST: Mapping[str, Callable[[float, float], float]] = {"temperature": max, "clock": min}
_RATES = {"rx_bytes": "receive", "tx_bytes": "send"}
_PERCENTS = {"cpu": ("cpu", "utilization_percent"), "mem": ("memory", "used_percent")}


class Timeline:
    """The series of one host by (metric, member), "" where a metric has one; `started_ms`, epoch ms of that host.

    Metrics: cpu, memory, utilization in percent; power, device_power in watts; temperature in degrees Celsius; clock in
    MHz; device_memory in bytes; receive, send in bytes/s of all ports.
    """

    def __init__(self) -> None:
        self.started_ms: int | None = None
        self.bucket_ms = FIRST_MS
        self._series: dict[tuple[str, str], list[tuple[float, int]]] = {}
        self._counters: dict[tuple[str, str], tuple[int, float]] = {}
        self._upper: frozenset[str] = frozenset()

    def take(self, source: str, moment_ms: int, values: Mapping[str, Any]) -> None:
        """Take the next sample of that source.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: the values are not of the monitor's form.
        """
        self.started_ms = moment_ms if self.started_ms is None else self.started_ms
        while (at := max(0, moment_ms - self.started_ms) // self.bucket_ms) >= MOST_BUCKETS:
            self._halve()
        for metric, member, value in self._found(source, moment_ms, values):
            self._add((metric, member[:MAX_CHARACTERS]), at, value)

    def values(self) -> Iterator[tuple[str, str, list[float | None]]]:
        """Metric, member and its values by bucket, None in those without a sample; all in the metric's unit."""
        for (metric, member), buckets in self._series.items():
            yield metric, member, [value if count else None for value, count in buckets]

    def _found(self, source: str, moment_ms: int, values: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
        if source in _PERCENTS:
            metric, field = _PERCENTS[source]
            yield from _number(metric, "", values[field])
        elif source == "power":
            yield from _number("power", str(values["meter"]), values["watts"])
        elif source == "accelerator":
            for device in values["devices"]:
                for metric, (field, _) in _DEVICE.items():
                    yield from _number(metric, str(device["index"]), device.get(field))
        elif source == "ports":
            self._upper = self._upper or frozenset(values.get("upper", ()))
            yield from self._rates(moment_ms, values["ports"])

    def _rates(self, moment_ms: int, ports: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, float]]:
        """Bytes/s of all ports together since each port's last record; a port that did not change is not in it.

        Bonds and others whose bytes their lower ports count are left out.
        """
        rates: dict[str, float] = {}
        for port, counters in ports.items():
            if port in self._upper:
                continue
            for counter, metric in _RATES.items():
                for _, _, now in _number(metric, "", counters.get(counter)):
                    if len(self._counters) >= MAX_SERIES:
                        return
                    before = self._counters.get((port, counter))
                    self._counters[port, counter] = moment_ms, now
                    if before is not None and moment_ms > before[0] and now >= before[1]:
                        rate = 1000 * (now - before[1]) / (moment_ms - before[0])
                        rates[metric] = rates.get(metric, 0.0) + rate
        yield from ((metric, "", rate) for metric, rate in rates.items())

    def _add(self, key: tuple[str, str], at: int, value: float) -> None:
        buckets = self._series.get(key)
        if buckets is None:
            if len(self._series) >= MAX_SERIES:
                return
            buckets = self._series.setdefault(key, [])
        buckets.extend([(0.0, 0)] * (at + 1 - len(buckets)))
        buckets[at] = _merged(key[0], buckets[at], (value, 1))

    def _halve(self) -> None:
        self.bucket_ms *= 2
        for key, buckets in self._series.items():
            pairs = zip(buckets[::2], [*buckets[1::2], (0.0, 0)], strict=False)
            self._series[key] = [_merged(key[0], first, second) for first, second in pairs]


def _merged(metric: str, first: tuple[float, int], second: tuple[float, int]) -> tuple[float, int]:
    """Value and number of samples of two buckets together."""
    if not first[1] or not second[1]:
        return second if second[1] else first
    count = first[1] + second[1]
    if metric in _WORST:
        return _WORST[metric](first[0], second[0]), count
    return first[0] + (second[0] - first[0]) * second[1] / count, count


def _number(metric: str, member: str, value: object) -> Iterator[tuple[str, str, float]]:
    """The sample, if it is a finite number; None stands for a device that did not report."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        yield metric, member, float(value)
