"""Finds bad devices, ports and transports in what the monitor of a host saw."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from protocol.finding import PartFinding
from run_benchmarks.results.device_findings import device_findings
from run_benchmarks.results.monitor_readings import PortLink, Sight, mapping, number
from run_benchmarks.results.samples.summary import ERRORS

MAX_OF_A_HOST = 50
FEWEST = 3  # hosts among which most can agree against one
SOCKETS = "Socket"


def usual_links(sights: Iterable[Sight]) -> dict[str, PortLink]:
    """By port the link of more than half of the hosts that have it, where these are FEWEST or more."""
    seen: defaultdict[str, Counter[PortLink]] = defaultdict(Counter)
    for sight in sights:
        for name, link in sight.links.items():
            seen[name][link] += 1
    most = {name: (*links.most_common(1)[0], links.total()) for name, links in seen.items()}
    return {name: link for name, (link, hosts, all_hosts) in most.items() if FEWEST <= all_hosts < 2 * hosts}


def host_findings(
    host: str, info: Mapping[str, Any], monitor: Mapping[str, Any] | None, usual: Mapping[str, PortLink] | None = None
) -> list[PartFinding]:
    """The findings of one host of a round; `info` is its sys_info.json, `monitor` is its summary.

    `usual`: what `usual_links` says; the speed of a port without one is compared with its host's others.
    Values of another form than the monitor's are passed over: a host may send anything.
    """
    found = [
        *device_findings(host, monitor, mapping(info.get("accelerator")).get("devices")),
        *_transport(host, info),
        *_port_errors(host, info, monitor or {}),
        *_slow_links(host, info, usual or {}),
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


def _speed(port: Mapping[str, Any]) -> float:
    return number(port.get("speed_mbit_s")) if _is_rdma(port) else 0.0


def _slow_links(host: str, info: Mapping[str, Any], usual: Mapping[str, PortLink]) -> Iterator[PartFinding]:
    """Ports slower than at most hosts or, where these are few, than others of their model; and PCIe links below what
    both their ends can, unless they are so at most hosts, or with fewer lanes than these have.
    """
    fastest: dict[str, float] = {}
    for port in _ports(info):
        if isinstance(model := port.get("model"), str):
            fastest[model] = max(fastest.get(model, 0.0), _speed(port))
    for port in _ports(info):
        speed, known = _speed(port), usual.get(port["name"])
        best = fastest.get(str(port.get("model")), 0.0) if known is None else known.speed_mbit_s
        if 0 < speed < best:
            own, more = f"{speed / 1000:g}", f"{best / 1000:g}"
            evidence = f"its link runs at {own} Gbit/s, that of most hosts at {more}"
            if known is None:
                evidence = f"its link runs at {own} Gbit/s, others of its model on this host at {more}"
            yield _finding(host, port["name"], "link_speed", "warning", evidence, "check the cable and the switch port")
        yield from _slow_slot(host, port, known)


def _slow_slot(host: str, port: Mapping[str, Any], known: PortLink | None) -> Iterator[PartFinding]:
    slot = port.get("pcie")
    values = {key: number(value) for key, value in slot.items()} if isinstance(slot, dict) else {}
    now = values.get("speed_gt_s", 0.0), values.get("width", 0.0)
    most = values.get("max_speed_gt_s", 0.0), values.get("max_width", 0.0)
    if not all(now) or (known is not None and now == (known.pcie_gt_s, known.pcie_width)):
        return
    if now[0] < most[0] or now[1] < most[1]:
        evidence = f"its PCIe link is {now[0]:g} GT/s x{now[1]:g}; it can be {most[0]:g} GT/s x{most[1]:g}"
    elif known is not None and now[1] < known.pcie_width:
        evidence = f"its PCIe link is x{now[1]:g}, that of most hosts x{known.pcie_width:g}"
    else:
        return
    yield _finding(host, port["name"], "link_speed", "warning", evidence, "check the slot, riser and BIOS")


def _finding(host: str, device: str, kind: Any, severity: Any, evidence: str, action: str) -> PartFinding:
    subject = f"{host} {device[:100]}" if device else f"host {host}"
    return PartFinding(
        part="device" if device else "host",
        hosts=(host,),
        device=device[:100],
        kind=kind,
        severity=severity,
        evidence=evidence,
        suggested_action=action,
        sentence=f"{subject}: {evidence}",
    )
