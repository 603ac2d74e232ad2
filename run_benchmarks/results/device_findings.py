"""Judges the accelerators of a host by what the monitor read of them: lost, memory errors, XIDs, links, heat."""

import functools
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Literal

from protocol.finding import FindingKind, FindingSeverity, PartFinding
from run_benchmarks.results.monitor_readings import mapping, number
from vendors import working

ASSUMED_LIMIT_C = 95.0
"""Where a device does not tell at which temperature it slows down: the highest of H100, A100 and B200."""
BROKEN: tuple[FindingKind, ...] = ("lost", "memory_errors", "device_errors", "file_system")
"""Kinds whose faults explain a round that failed."""
_Found = tuple[FindingKind, FindingSeverity, str, str]
_COUNTERS: Mapping[str, tuple[str, FindingKind, FindingSeverity, str]] = {
    "nvlink_errors": (
        "errors on NVLink",
        "link_errors",
        "warning",
        "reseat the board; look at the counters of each link",
    ),
    "pcie_replays": ("replays on PCIe", "link_errors", "warning", "check the slot, riser and cable"),
}
_LINKS = {
    "nvlinks": ("NVLinks", "reset the host; check NVSwitches"),
    "xgmi_links": ("XGMI links", "reset the host; check the board"),
}
_JOIN = "look at the fabric manager of the host, or of the NVLink switches; then reset the device"
_FABRIC: Mapping[str, tuple[FindingKind, FindingSeverity, str]] = {
    "fabric_waits": ("device_errors", "fault", "it has not joined the fabric of its NVLinks"),
    "fabric_failed": ("device_errors", "fault", "it could not join the fabric of its NVLinks: error {}"),
    "fabric_misconfigured": ("device_errors", "fault", "the fabric of its NVLinks is misconfigured: code {}"),
    "fabric_unhealthy": ("link_speed", "fault", "its route through the fabric of its NVLinks is unhealthy"),
    "fabric_degraded": ("link_speed", "fault", "the fabric of its NVLinks gives it a part of its bandwidth"),
    "fabric_recovering": ("link_errors", "warning", "its route through the fabric of its NVLinks recovers"),
}
_TOLD: Mapping[str, str] = {
    "ecc_uncorrected": "memory errors",
    "rows_failed": "remapped rows",
    "pcie_replays": "replays on PCIe",
    "pcie_width": "PCIe width",
    "nvlinks_up": "NVLinks",
    "xgmi_links_up": "XGMI links",
    "fabric_waits": "NVLink fabric",
    "alarm": "its health",
}
"""Parts of a device that are judged, by a name that its counters or states have then."""
FEW_REPLAYS = 10
"""PCIe replays of a round that are no finding: links correct single ones by themselves."""


def device_findings(host: str, monitor: Mapping[str, Any] | None, told: object = None) -> Iterator[PartFinding]:
    """The findings of a host's devices; `monitor` is the summary of its monitor, `told` its sys_info.json's devices,
    whose names tell which are alike.

    Values of another form than the monitor's are passed over: a host may send anything.
    """
    devices = _devices(monitor)
    active = {links: [int(_state(each, f"{links}_up")) for each in devices] for links in _LINKS}
    named = {each.get("index"): str(each.get("name")) for each in _mappings(told) if _is_index(each)}
    models = [named.get(each["index"], "") if _is_index(each) else "" for each in devices]
    telling: dict[str, set[str]] = {model: set() for model in models}
    for model, device in zip(models, devices, strict=True):
        telling[model].update(name for name in _TOLD if _tells(device, name))
    for model, device in zip(models, devices, strict=True):
        if _is_index(device):
            for found in [*_of_device(device), *_lost_links(device, active), *_untold(device, telling[model])]:
                yield _finding(host, f"accelerator {device['index']}", found)


def unseen_hosts(monitors: Mapping[str, Mapping[str, Any] | None], *, are_used: bool = True) -> Iterator[PartFinding]:
    """Hosts whose accelerators, or counters and states of them, their monitor did not see, where those of other hosts
    were seen: nothing of that passes. monitors: the summary of each host's, None where there is none. are_used: the
    ranks use accelerators; else a host may have none.
    """
    devices = {host: _devices(monitor) for host, monitor in monitors.items()}
    telling = {host for host, own in devices.items() if _is_telling(own)}
    for host, own in devices.items():
        said = ""
        if not own and are_used and any(devices.values()):
            said = "its accelerators were not seen, those of other hosts were"
        elif own and telling and host not in telling:
            said = "the state of its accelerators was not seen, that of other hosts' was"
        if said:
            evidence = ": ".join(filter(None, [said, _why_unseen(monitors[host])]))
            yield _finding(host, "", ("not_run", "warning", evidence, "look into its monitor's log"))


def unlinked_hosts(
    monitors: Mapping[str, Mapping[str, Any] | None], models: Mapping[str, str]
) -> Iterator[PartFinding]:
    """Hosts that tell of their accelerators and of no active link between them, where those of most hosts with the same
    models have some. monitors: the summary of each host's; models: by host.
    """
    devices = {host: own for host, each in monitors.items() if _is_telling(own := _devices(each))}
    for links in _LINKS:
        linked = {host: any(_state(each, f"{links}_up") for each in own) for host, own in devices.items()}
        hosts = Counter(models.get(host, "") for host in linked)
        having = Counter(models.get(host, "") for host, is_linked in linked.items() if is_linked)
        for host in (host for host, is_linked in linked.items() if not is_linked):
            model = models.get(host, "")
            if 2 * having[model] > hosts[model]:
                yield _finding(host, "", _without_links(devices[host], links, having[model], hosts[model]))


def _without_links(devices: Sequence[Mapping[str, Any]], links: str, having: int, hosts: int) -> _Found:
    """The finding of a host whose devices have no active links, or do not tell of them, where those of `having` of
    `hosts` hosts have some.
    """
    what, action = _LINKS[links]
    if any(_tells(each, f"{links}_up") for each in devices):
        said = f"its accelerators have no active {what}, those of {having} of {hosts} hosts do"
        return "link_speed", "warning", said, action
    said = f"its accelerators tell of no {what}, those of {having} of {hosts} hosts do"
    return "link_speed", "warning", said, "ask the vendor's tool"


def models_of(info: Mapping[str, Any]) -> str:
    """The models of a host's accelerators by its sys_info.json, each once; empty where it tells none."""
    devices = _mappings(mapping(info.get("accelerator")).get("devices"))
    return ", ".join(sorted({str(each.get("name"))[:100] for each in devices}))


def _is_telling(devices: Sequence[Mapping[str, Any]]) -> bool:
    return any(_tells(each, name) for each in devices for name in _TOLD)


def _devices(monitor: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return _mappings((monitor or {}).get("devices"))


def _mappings(listed: object) -> list[Mapping[str, Any]]:
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _is_index(device: Mapping[str, Any]) -> bool:
    return isinstance(device.get("index"), int)


def _why_unseen(monitor: Mapping[str, Any] | None) -> str:
    """The reasons that the monitor gave; empty without one."""
    reasons: list[str] = []
    for key in ("unavailable", "errors"):
        told = (monitor or {}).get(key)
        for source in ("accelerator", "accelerator_health"):
            reason = told.get(source) if isinstance(told, dict) else None
            reasons += [str(reason[-1] if isinstance(reason, list) else reason)[:200]] if reason else []
    return "; ".join(dict.fromkeys(reasons))


def _tells(device: Mapping[str, Any], name: str) -> bool:
    """Whether a device tells a counter or state; of links, whether it has some."""
    if name.endswith("links_up"):
        return _state(device, name) + _state(device, name.replace("_up", "_down")) > 0
    parts = (device.get(which) for which in ("counts", "states"))
    return any(isinstance(part, dict) and name in part for part in parts)


def _untold(device: Mapping[str, Any], told: Container[str]) -> Iterator[_Found]:
    """The parts of which others of its host and name tell and it does not: none passes. A lost device tells nothing."""
    lacking = [what for name, what in _TOLD.items() if name in told and not _tells(device, name)]
    if lacking and device.get("lost") is not True:
        said = f"others of its host tell, it does not: {', '.join(lacking)}"
        yield "not_run", "warning", said, "ask the vendor's tool about it; reset the device"


def are_links_lost(active: int, inactive: int, active_on_host: Sequence[int]) -> bool:
    """Whether inactive links of a device to others of its host are a fault: it has active ones, or most of them have.

    On a host of cards that bridges join by twos, or none, links are inactive in health. `active_on_host`: the number
    of active links of each device there.
    """
    are_linked = 2 * sum(count > 0 for count in active_on_host) > len(active_on_host)
    return inactive > 0 and (active > 0 or are_linked)


def is_broken(finding: PartFinding) -> bool:
    """Whether it is an accelerator or a file system that broke, so that a round on it may fail."""
    return finding.kind in BROKEN and finding.severity == "fault"


@functools.cache
def _by_programs() -> frozenset[str]:
    """The counts that a program causes, and no broken device, of all vendors."""
    return frozenset(name for vendor in working() if vendor.health is not None for name in vendor.health.by_programs)


def _of_device(device: Mapping[str, Any]) -> Iterator[_Found]:
    if device.get("lost") is True:
        errors = device.get("errors")
        said = str(errors[-1]) if isinstance(errors, list) and errors else "no answer"
        yield "lost", "fault", f"lost during the round: {said[:200]}", "reset the device or restart the host"
    yield from _memory(device)
    yield from _events(device)
    yield from _links(device)
    yield from _fabric(device)
    yield from _heat(device)
    yield from _held_clocks(device)
    if _state(device, "mig"):
        said = "it is divided: ranks had a part of it"
        yield "device_errors", "warning", said, "end its division, unless this is meant"
    if _state(device, "alarm"):
        yield "device_errors", "warning", "the vendor's tool calls its health other than OK", "ask it for the alarm"


def _memory(device: Mapping[str, Any]) -> Iterator[_Found]:
    new, old = _rise(device, "ecc_uncorrected"), _count(device, "first_counts", "ecc_uncorrected")
    if new:
        yield "memory_errors", "fault", f"{new:g} uncorrected ECC errors during the round", "replace the device"
    elif old:
        text = f"{old:g} uncorrected ECC errors since the driver was loaded, before the round"
        yield "memory_errors", "warning", text, "reset the device; replace it if they come again"
    if _state(device, "rows_failed"):
        yield "memory_errors", "fault", "remapping of a row of its memory failed", "replace the device"
    elif _state(device, "rows_pending"):
        yield "memory_errors", "warning", "a row of its memory waits to be remapped", "reset the device"


def _events(device: Mapping[str, Any]) -> Iterator[_Found]:
    counts = device.get("counts")
    for name in sorted(counts) if isinstance(counts, dict) else []:
        code = str(name).removeprefix("xid_")
        times = _rise(device, name)
        if str(name).startswith("xid_") and code.isdigit() and times:
            by_program = name in _by_programs()
            text = f"XID {code}{f', {times:g} times' if times > 1 else ''}"
            action = (
                "look into the program's log" if by_program else "look the XID up in the driver's list; test the device"
            )
            yield "device_errors", "warning" if by_program else "fault", text, action


def _links(device: Mapping[str, Any]) -> Iterator[_Found]:
    for name, (what, kind, severity, action) in _COUNTERS.items():
        rise = _rise(device, name)
        if rise > (FEW_REPLAYS if name == "pcie_replays" else 0):
            yield kind, severity, f"{rise:g} {what} during the round", action
    width, most = _state(device, "pcie_width"), _state(device, "pcie_width_max")
    if 0 < width < most:
        yield "link_speed", "warning", f"its PCIe link is x{width:g}; it can be x{most:g}", "check the slot and riser"
    now, best = _state(device, "pcie_generation"), _state(device, "pcie_generation_max")
    if 0 < now < best:
        said = f"its PCIe link is of generation {now:g} under load; it can be of {best:g}"
        yield "link_speed", "warning", said, "check the slot and riser"


def _lost_links(device: Mapping[str, Any], active_on_host: Mapping[str, Sequence[int]]) -> Iterator[_Found]:
    """Of each kind of links between devices. active_on_host: by kind, of each device."""
    for links, (what, action) in _LINKS.items():
        up, down = int(_state(device, f"{links}_up")), int(_state(device, f"{links}_down"))
        if are_links_lost(up, down, active_on_host[links]):
            is_proven = links == "nvlinks" or up < max(active_on_host[links])  # a board may lack some XGMI links
            severity: FindingSeverity = "fault" if is_proven else "warning"
            yield "link_speed", severity, f"{down} of {down + up} {what} are down", action


def _fabric(device: Mapping[str, Any]) -> Iterator[_Found]:
    for name, (kind, severity, said) in _FABRIC.items():
        if state := _state(device, name):
            yield kind, severity, said.format(f"{state:g}"), _JOIN


def _heat(device: Mapping[str, Any]) -> Iterator[_Found]:
    temperature = device.get("temperature_c")
    hottest = number(temperature.get("max")) if isinstance(temperature, dict) else 0.0
    limit = _state(device, "slowdown_c")
    if hottest >= (limit or ASSUMED_LIMIT_C):
        says = f"it slows down from {limit:g}" if limit else f"{ASSUMED_LIMIT_C:g} is assumed to be too hot"
        yield "heat", "warning", f"{hottest:g} degrees Celsius; {says}", "check fans, airflow and coolant"


def _held_clocks(device: Mapping[str, Any]) -> Iterator[_Found]:
    """Clocks that a setting held while the device worked: an idle one does not tell that they are locked."""
    told = device.get("throttled")
    by_reason = told if isinstance(told, dict) else {}
    held = number(by_reason.get("applications_clocks_setting"))
    busy = number(device.get("samples")) - number(by_reason.get("gpu_idle"))
    if 0 < busy <= 2 * held:
        said = f"a setting held its clocks in {held:g} of {busy:g} samples"
        yield "device_errors", "warning", said, "reset locked and application clocks, unless this is meant"


def _count(device: Mapping[str, Any], which: Literal["counts", "first_counts"], name: str) -> float:
    counts = device.get(which)
    return number(counts.get(name)) if isinstance(counts, dict) else 0.0


def _rise(device: Mapping[str, Any], name: str) -> float:
    """By how much a counter rose during the round."""
    return max(0.0, _count(device, "counts", name) - _count(device, "first_counts", name))


def _state(device: Mapping[str, Any], name: str) -> float:
    states = device.get("states")
    return number(states.get(name)) if isinstance(states, dict) else 0.0


def _finding(host: str, name: str, found: _Found) -> PartFinding:
    """A finding on a device of a host, or on the host."""
    kind, severity, evidence, action = found
    return PartFinding(
        part="device" if name else "host",
        hosts=(host,),
        device=name,
        kind=kind,
        severity=severity,
        evidence=evidence,
        suggested_action=action,
        drained_hosts=(host,) if severity == "fault" else (),
        sentence=f"{f'{host} {name}' if name else f'host {host}'}: {evidence}",
    )
