"""Reads what the monitor of each host saw of a round: counters of ports, links, clocks, NCCL's transport."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from protocol import safe_json

SYS_INFO_FILE = "sys_info.json"
MAX_NAME_CHARACTERS = 100
MAX_PARTS = 1000  # ports or accelerators of a host
MAX_COUNT = 1 << 70  # counters have 64 bits; some count words of 4 bytes


def read_sys_info(folder: Path) -> dict[str, Any]:
    """The sys_info.json of a node's folder; empty if there is none that can be read: a host may send anything."""
    try:
        found = safe_json.read(folder / SYS_INFO_FILE)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PortLink:
    """The link of a port: its speed in Mbit/s, and its PCIe link in GT/s a lane and lanes; 0 is not known."""

    speed_mbit_s: float
    pcie_gt_s: float
    pcie_width: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Sight:
    """The observations of one host's monitor. Values of another form than the monitor's are left out.

    `counters`: increases over the round by port and name. `links` by port, `lanes`: PCIe lanes of each accelerator by
    address. `figures` by name: steal_percent, cpu_percent, cpu_mhz, clock_mhz (of the slowest accelerator),
    temperature_c (of the hottest), ecc_uncorrected. `networks`: what NCCL uses, such as "Socket" or "IB".
    """

    host: str
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    links: Mapping[str, PortLink] = field(default_factory=dict)
    lanes: Mapping[str, float] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    networks: tuple[str, ...] = ()


def sight_of(host: str, info: Mapping[str, Any], monitor: Mapping[str, Any] | None) -> Sight:
    """The sight of a host from its sys_info.json and the summary of its monitor."""
    seen = monitor or {}
    return Sight(
        host=host,
        counters={
            port: {name: value for name, value in mapping(own).items() if _is_count(value)}
            for port, own in mapping(seen.get("ports")).items()
        },
        links={name: _link(port) for port in _list(info.get("network")) if (name := _name(port.get("name")))},
        lanes={
            name: width
            for each in _list(info.get("pci_accelerators"))
            if (name := _name(each.get("address"))) and (width := number(mapping(each.get("pcie")).get("width")))
        },
        figures=_figures(seen),
        networks=tuple(sorted(mapping(mapping(info.get("nccl")).get("networks"))))[:8],
    )


def number(value: object) -> float:
    """A finite number as a float, in its own unit; 0 for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        found = float(value) if is_number else 0.0  # type: ignore[arg-type]
    except OverflowError:
        return 0.0
    return found if math.isfinite(found) else 0.0


def _link(port: Mapping[str, Any]) -> PortLink:
    slot = mapping(port.get("pcie"))
    return PortLink(
        speed_mbit_s=number(port.get("speed_mbit_s")),
        pcie_gt_s=number(slot.get("speed_gt_s")),
        pcie_width=number(slot.get("width")),
    )


def _figures(monitor: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, float | None] = {
        "steal_percent": _mean(monitor.get("steal_percent")),
        "cpu_percent": _mean(monitor.get("cpu_percent")),
        "cpu_mhz": _mean(monitor.get("cpu_mhz")),
    }
    devices = _list(monitor.get("devices"))
    clocks = [clock for each in devices if (clock := _mean(each.get("sm_clock_mhz"))) is not None]
    heat = [value for each in devices if (value := _mean(each.get("temperature_c"))) is not None]
    found["clock_mhz"] = min(clocks, default=None)
    found["temperature_c"] = max(heat, default=None)
    if devices:
        found["ecc_uncorrected"] = sum(number(each.get("ecc_uncorrected")) for each in devices)
    return {name: value for name, value in found.items() if value is not None}


def _mean(statistic: object) -> float | None:
    mean = mapping(statistic).get("mean")
    return None if mean is None or isinstance(mean, bool | str) else number(mean)


def mapping(value: object) -> Mapping[str, Any]:
    """A mapping that a host sent, its keys cut; empty for anything else."""
    return {key[:MAX_NAME_CHARACTERS]: each for key, each in value.items()} if isinstance(value, dict) else {}


def _list(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value[:MAX_PARTS] if isinstance(each, dict)] if isinstance(value, list) else []


def _name(value: object) -> str:
    return value[:MAX_NAME_CHARACTERS] if isinstance(value, str) else ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_COUNT
