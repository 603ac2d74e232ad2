"""Finds bad devices, ports and transports in what the monitor of a host saw."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from monitors.ports import ERRORS
from protocol.finding import MAX_CHARACTERS, PartFinding
from run_benchmarks.results.device_findings import device_findings
from run_benchmarks.results.monitor_readings import number

MAX_OF_A_HOST = 50
SOCKETS = "Socket"


def host_findings(host: str, info: Mapping[str, Any], monitor: Mapping[str, Any] | None) -> list[PartFinding]:
    """The findings of one host of a round; `info` is its sys_info.json, `monitor` is its summary.

    Values of another form than the monitor's are passed over: a host may send anything.
    """
    found = [
        *device_findings(host, monitor),
        *_transport(host, info),
        *_port_errors(host, info, monitor or {}),
        *_slow_links(host, info),
    ]
    return found[:MAX_OF_A_HOST]


def _ports(info: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The ports of real devices; a veth or a bridge has no cable."""
    found = info.get("network")
    ports = [port for port in found if isinstance(port, dict)] if isinstance(found, list) else []
    return [port for port in ports if port.get("is_device") is True and isinstance(port.get("name"), str)]


def _is_rdma(port: Mapping[str, Any]) -> bool:
    return port.get("kind") in ("infiniband", "ethernet") and port.get("state") == "active"


def _transport(host: str, info: Mapping[str, Any]) -> Iterator[PartFinding]:
    """NCCL uses sockets although the host has a port for RDMA that is up."""
    nccl = info.get("nccl")
    networks = nccl.get("networks") if isinstance(nccl, dict) else None
    devices = [str(port["name"]) for port in _ports(info) if _is_rdma(port)]
    if isinstance(networks, dict) and set(networks) == {SOCKETS} and devices:
        evidence = f"NCCL uses NET/{SOCKETS}, although {', '.join(devices[:8])} is active"
        action = "check NCCL_IB_DISABLE, NCCL_IB_HCA and NCCL_NET, libibverbs in the image, and /dev/infiniband"
        yield _finding(host, "", "transport", "fault", evidence, action)


def _port_errors(host: str, info: Mapping[str, Any], monitor: Mapping[str, Any]) -> Iterator[PartFinding]:
    """Errors that a port of a real device counted during the round."""
    counted = monitor.get("ports")
    by_port = counted if isinstance(counted, dict) else {}
    for port in _ports(info):
        counters = by_port.get(port["name"])
        errors = {name: counters.get(name) for name in ERRORS} if isinstance(counters, dict) else {}
        said = [f"{n} {name.replace('_', ' ')}" for name, n in errors.items() if isinstance(n, int) and n > 0]
        if said:
            evidence = f"{', '.join(said)} during the round"
            yield _finding(host, port["name"], "link_errors", "warning", evidence, "check the cable and both its ends")


def _slow_links(host: str, info: Mapping[str, Any]) -> Iterator[PartFinding]:
    """Ports slower than the fastest of their kind, and PCIe links below what slot and device can do."""
    fastest: dict[object, float] = {}
    for port in _ports(info):
        speed = number(port.get("speed_mbit_s"))
        fastest[port.get("kind")] = max(fastest.get(port.get("kind"), 0.0), speed)
    for port in _ports(info):
        speed, best = number(port.get("speed_mbit_s")), fastest[port.get("kind")]
        if _is_rdma(port) and 0 < speed < best:
            evidence = f"its link runs at {speed / 1000:g} Gbit/s, others of this host at {best / 1000:g}"
            yield _finding(host, port["name"], "link_speed", "warning", evidence, "check the cable and the switch port")
        slot = port.get("pcie")
        values = {key: number(value) for key, value in slot.items()} if isinstance(slot, dict) else {}
        now = values.get("speed_gt_s", 0.0), values.get("width", 0.0)
        most = values.get("max_speed_gt_s", 0.0), values.get("max_width", 0.0)
        if all(now) and (now[0] < most[0] or now[1] < most[1]):
            evidence = f"its PCIe link is {now[0]:g} GT/s x{now[1]:g}; it can be {most[0]:g} GT/s x{most[1]:g}"
            yield _finding(host, port["name"], "link_speed", "warning", evidence, "check the slot, riser and BIOS")


def _finding(host: str, device: str, kind: Any, severity: Any, evidence: str, action: str) -> PartFinding:
    subject = f"{host} {device[:100]}" if device else f"host {host}"
    return PartFinding(
        part="device" if device else "host",
        hosts=(host,),
        device=device[:100],
        kind=kind,
        severity=severity,
        evidence=evidence[:MAX_CHARACTERS],
        suggested_action=action,
        sentence=f"{subject}: {evidence}"[:MAX_CHARACTERS],
    )
