"""Summarizes a monitor.jsonl for round.json."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from run_benchmarks.results.samples.phase import PhaseReader, PhaseSummary
from run_benchmarks.results.samples.timeline import Timeline

# A host may send anything: more ports, counters or longer names than these are left out.
MAX_PORTS, MAX_COUNTERS, MAX_PORT_CHARACTERS = 256, 64, 64
# Counters whose increase says that the port, its cable or its peer is bad; drops and pauses tell of congestion.
ERRORS = ("symbol_errors", "link_downs", "link_recoveries", "rx_errors", "tx_errors", "ack_timeouts")


class PortIncreases:
    """Takes samples of counters in order; `found` has each counter's increase, by port and name.

    A sample holds the counters that changed. A counter that went back was reset: it counts from 0 again.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, int]] = {}
        self._last: dict[tuple[str, str], int] = {}

    def take(self, ports: Mapping[str, Mapping[str, Any]]) -> None:
        """Take one sample.

        Raises:
            AttributeError, TypeError, ValueError: it does not have the form of a sample.
        """
        for port, counters in ports.items():
            for name, value in counters.items():
                self._add(str(port)[:MAX_PORT_CHARACTERS], str(name)[:MAX_PORT_CHARACTERS], int(value))

    def _add(self, port: str, name: str, value: int) -> None:
        if port not in self.found and len(self.found) >= MAX_PORTS:
            return
        counters = self.found.setdefault(port, {})
        if name not in counters and len(counters) >= MAX_COUNTERS:
            return
        last = self._last.get((port, name), value)
        counters[name] = counters.get(name, 0) + (value - last if value >= last else value)
        self._last[port, name] = value


SCHEMA_VERSION = 1
# A host may send anything: names (meters, sources, reasons), devices and messages are limited to what any host has,
# and a text to what a person reads.
MAX_LINE_BYTES = 1 << 20
MAX_NAMES, MAX_MESSAGES, MAX_CHARACTERS = 1024, 100, 1000


class SummaryError(ValueError):
    """This version cannot read a monitor.jsonl; the message names the file, the line and the schema found."""


IDLE = "gpu_idle"


@dataclass(kw_only=True, slots=True)
class Statistic:
    """Mean and maximum of the samples, in their unit; both None without samples."""

    mean: float | None = None
    max: float | None = None
    count: int = 0

    def add(self, value: float | None) -> None:
        """Add a value, in the unit of the statistic; None stands for a device that did not report."""
        if value is None:
            return
        mean = value if self.mean is None else self.mean + (value - self.mean) / (self.count + 1)
        if not math.isfinite(mean):
            raise ValueError(f"{value!r}: no mean of such numbers can be told")
        self.count += 1
        self.mean = mean
        self.max = value if self.max is None else max(self.max, value)


@dataclass(kw_only=True, slots=True)
class PowerSummary:
    """One power meter: watts, and joules over the whole round by `method` ("counter" or "integrated power").

    devices: the fewest devices that a sum of theirs had, and how many there were; None for a whole machine.
    """

    watts: Statistic = field(default_factory=Statistic)
    joules: float | None = None
    method: str | None = None
    devices: list[int] | None = None


@dataclass(kw_only=True, slots=True)
class DeviceSummary:
    """One accelerator. ECC counts are the last ones read.

    first_counts, counts: its error counters at the first and the last look; states: those of the last
    (vendors.base.AcceleratorHealth). lost: it did not answer at its last sample.
    throttled: by reason, in how many of the `samples` with reasons it was present; of idle ones that they were alone.
    """

    index: int
    samples: int = 0
    utilization_percent: Statistic = field(default_factory=Statistic)
    memory_used_bytes: Statistic = field(default_factory=Statistic)
    memory_total_bytes: int | None = None
    temperature_c: Statistic = field(default_factory=Statistic)
    power_w: Statistic = field(default_factory=Statistic)
    sm_clock_mhz: Statistic = field(default_factory=Statistic)
    energy_j: float | None = None
    throttled: dict[str, int] = field(default_factory=dict)
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    first_counts: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    lost: bool = False
    errors: list[str] = field(default_factory=list)


@dataclass(kw_only=True, slots=True)
class MonitorSummary:
    """One host during one round.

    complete: the monitor ended by itself and wrote its own figures (`reason`, `lateness_ms`, `monitor_cpu_percent`).
    samples: ticks of the clock seen. damaged_lines: lines that are no record (a killed monitor tears at most the last).
    power: by meter, e.g. "rapl", "ipmi", "accelerator". unavailable and errors: by source, or "source/meter".
    ports: by port and counter, its increase over the round (monitors.ports).
    monitor_cpu_percent: CPU time of the monitor itself in percent of one core. phase: the figures of the measured work
    alone, if its begin and end were given.
    """

    vendor: str | None = None
    interval_s: float | None = None
    started_ms: int | None = None
    ended_ms: int | None = None
    samples: int = 0
    complete: bool = False
    reason: str | None = None
    damaged_lines: int = 0
    cpu_percent: Statistic = field(default_factory=Statistic)
    steal_percent: Statistic = field(default_factory=Statistic)
    cpu_mhz: Statistic = field(default_factory=Statistic)
    ports: dict[str, dict[str, int]] = field(default_factory=dict)
    memory_percent: Statistic = field(default_factory=Statistic)
    memory_used_bytes: Statistic = field(default_factory=Statistic)
    memory_total_bytes: int | None = None
    power: dict[str, PowerSummary] = field(default_factory=dict)
    devices: list[DeviceSummary] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    errors: dict[str, list[str]] = field(default_factory=dict)
    lateness_ms: dict[str, float] | None = None
    monitor_cpu_percent: float | None = None
    phase: PhaseSummary | None = None


def summarize(
    path: Path,
    *,
    phase_ms: tuple[int, int] | None = None,
    load: Callable[[bytes], object] = json.loads,
    timeline: Timeline | None = None,
) -> MonitorSummary:
    """Read a monitor.jsonl, also of a monitor that was killed. dataclasses.asdict makes the result JSON-able.

    `phase_ms`: begin and end of the measured work in epoch ms by the host's own clock, to summarize it separately.
    `load` reads the JSON of one line, and fails with a ValueError for anything else: the head node passes a reader that
    bounds what a host may send. `timeline` takes the samples, too: one reading, of bounded memory.

    Raises:
        OSError: the file cannot be read.
        SummaryError: the schema is unknown, or the file holds more names than any host has.
        KeyError, TypeError, ValueError, AttributeError: a record does not have the form of this schema.
    """
    summary = MonitorSummary()
    phase = None if phase_ms is None else PhaseReader(*phase_ms)
    increases = PortIncreases()
    for record in read_records(path, summary, load):
        source, moment = record["source"], record["t_ms"]
        summary.started_ms = moment if summary.started_ms is None else summary.started_ms
        summary.ended_ms = moment
        if source == "monitor":
            _take_monitor(summary, record)
        elif "values" in record:
            _TAKE.get(source, _take_nothing)(summary, record["values"])
            if source == "ports":
                increases.take(record["values"]["ports"])
            if phase is not None:
                phase.take(source, moment, record["values"])
            if timeline is not None:
                timeline.take(source, moment, record["values"])
        else:
            _take_lack(summary, record)
    summary.ports = increases.found
    summary.devices.sort(key=lambda device: device.index)
    if phase is not None:
        summary.phase = phase.summary
    return summary


def read_records(path: Path, summary: MonitorSummary, load: Callable[[bytes], object]) -> Iterator[dict[str, Any]]:
    """The records of a monitor.jsonl; other lines are counted in `summary`.

    Raises:
        OSError, SummaryError: as for `summarize`.
    """
    for number, line in enumerate(_lines(path), start=1):
        try:
            record = load(line)
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict) or not {"schema", "source", "t_ms"} <= record.keys():
            summary.damaged_lines += 1
            continue
        if record["schema"] != SCHEMA_VERSION:
            raise SummaryError(f"{path}, line {number}: schema {record['schema']!r:.100}, expected {SCHEMA_VERSION}")
        yield record


def _lines(path: Path) -> Iterator[bytes]:
    """The file's lines, cut at MAX_LINE_BYTES."""
    with path.open("rb") as file:
        while line := file.readline(MAX_LINE_BYTES):
            yield line
            while not line.endswith(b"\n") and len(line) == MAX_LINE_BYTES:
                line = file.readline(MAX_LINE_BYTES)


def _slot(known: Mapping[str, Any], name: Any) -> str:
    """`name` as a key of `known`, whose size is limited."""
    if not isinstance(name, str) or len(name) > MAX_CHARACTERS:
        raise SummaryError(f"a name of {MAX_CHARACTERS} characters at most is expected, found {name!r:.100}")
    if name not in known and len(known) >= MAX_NAMES:
        raise SummaryError(f"more than {MAX_NAMES} names of one kind, the last of them {name!r:.100}")
    return name


def _note(messages: list[str], message: Any) -> None:
    """Add a message that is not there yet, up to a limit."""
    text = str(message)[:MAX_CHARACTERS]
    if len(messages) < MAX_MESSAGES and text not in messages:
        messages.append(text)


def _take_monitor(summary: MonitorSummary, record: Mapping[str, Any]) -> None:
    if "start" in record:
        summary.vendor = record["start"]["vendor"]
        summary.interval_s = record["start"]["interval_s"]
    if "summary" in record:
        own = record["summary"]
        summary.complete = True
        summary.reason = own["reason"]
        summary.lateness_ms = own["lateness_ms"]
        summary.monitor_cpu_percent = own["cpu_percent_of_core"]


def _take_lack(summary: MonitorSummary, record: Mapping[str, Any]) -> None:
    name = f"{record['source']}/{record['meter']}" if "meter" in record else record["source"]
    if "unavailable" in record:
        summary.unavailable[_slot(summary.unavailable, name)] = str(record["unavailable"])[:MAX_CHARACTERS]
    if "error" in record:
        _note(summary.errors.setdefault(_slot(summary.errors, name), []), record["error"])


def _take_cpu(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    summary.samples += 1
    summary.cpu_percent.add(values["utilization_percent"])
    summary.steal_percent.add(values.get("steal_percent"))


def _take_frequency(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    summary.cpu_mhz.add(values["mhz"])


def _take_memory(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    summary.memory_percent.add(values["used_percent"])
    summary.memory_used_bytes.add(values["used_bytes"])
    summary.memory_total_bytes = values["total_bytes"]


def _take_power(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    meter = summary.power.setdefault(_slot(summary.power, values["meter"]), PowerSummary())
    meter.watts.add(values["watts"])
    meter.joules, meter.method = values["joules"], values["method"]
    if (devices := values.get("devices")) is not None:
        measured, there = (int(count) for count in devices)
        meter.devices = [min(measured, (meter.devices or [measured])[0]), there]


def _take_accelerator(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    for sample in values["devices"]:
        _take_device(_device_of(summary, sample["index"]), sample)


def _take_health(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    for look in values["devices"]:
        device = _device_of(summary, look["index"])
        is_first = not device.states and not device.counts
        for name, count in (look.get("counts") or {}).items():
            # What a later look counts for the first time, such as an XID, was 0 at the first.
            device.first_counts.setdefault(_slot(device.first_counts, name), int(count) if is_first else 0)
            device.counts[name] = int(count)
        for name, state in (look.get("states") or {}).items():
            device.states[_slot(device.states, name)] = int(state)


def _device_of(summary: MonitorSummary, index: Any) -> DeviceSummary:
    for device in summary.devices:
        if device.index == index:
            return device
    if len(summary.devices) >= MAX_NAMES:
        raise SummaryError(f"more than {MAX_NAMES} devices")
    summary.devices.append(DeviceSummary(index=int(index)))
    return summary.devices[-1]


def _take_device(device: DeviceSummary, sample: Mapping[str, Any]) -> None:
    error = sample.get("error")
    device.lost = error is not None
    if error is not None:
        _note(device.errors, error)
        return
    for name in ("utilization_percent", "memory_used_bytes", "temperature_c", "power_w", "sm_clock_mhz"):
        getattr(device, name).add(sample[name])
    device.memory_total_bytes = sample["memory_total_bytes"]
    device.energy_j = sample.get("energy_j", device.energy_j)
    device.ecc_corrected, device.ecc_uncorrected = sample["ecc_corrected"], sample["ecc_uncorrected"]
    if sample["throttle_reasons"] is not None:
        device.samples += 1
        reasons = sample["throttle_reasons"]
        for reason in [IDLE] if IDLE in reasons else reasons:
            name = _slot(device.throttled, reason)
            device.throttled[name] = device.throttled.get(name, 0) + 1


def _take_nothing(summary: MonitorSummary, values: Mapping[str, Any]) -> None:
    """Ignore a record of a later version within the same schema, which adds records and changes none."""


_TAKE = {
    "cpu_frequency": _take_frequency,
    "cpu": _take_cpu,
    "mem": _take_memory,
    "power": _take_power,
    "accelerator": _take_accelerator,
    "accelerator_health": _take_health,
}
