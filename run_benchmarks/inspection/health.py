"""Judges the health of hosts, each by itself and beside the others: findings of the check with evidence and action.

What cannot be looked at is a finding, too, a warning: it passes nothing.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import vendors
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.outages import IMPATIENT, Patience, across_outages
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.frames import lost_frames
from run_benchmarks.inspection.health_of_devices import device_state, health_checks
from run_benchmarks.inspection.health_script import LASTING, health_script
from run_benchmarks.inspection.resolving import odd_answers
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.host_findings import FEWEST
from vendors.health import Found, HealthCheck, HostHealth, Severity, is_below

SECONDS = 180.0
"""More than a sound host and one tool that hangs take."""
WARN_PERCENT, FULL_PERCENT = 95.0, 99.0
INSTALL = "install the tool or give permission"
FREE_SOME, MOUNT_AGAIN = "free some", "look for disk errors in the kernel log; check and mount again"
LEAST_FILES = 4096
SHOWN, MOST_CHARACTERS = 3, 160
MOST_OF_LINE = 1000
ENDLESS = re.compile(r"\d{30,}")
"""No number of a host: to convert one of thousands of digits is an error."""
MOST_PEERS = 32
"""Hosts that one host sends its largest frame to, and whose names it resolves."""
GOLDEN = (5**0.5 - 1) / 2
"""Of which multiples, as many as there may be, lie evenly between whole numbers (Steinhaus)."""
_LASTING = re.compile(LASTING, re.IGNORECASE)
"""Of what the kernel logs: what does not go away by itself."""
T = TypeVar("T")


def examine_health(
    hosts: Mapping[str, Host],
    reports: Mapping[str, HostReport],
    plan: Plan,
    more_data: Collection[str] = (),
    patience: Patience = IMPATIENT,
) -> None:
    """Look at all hosts whose report has no finding yet or that told their facts, and add what is wrong with each.

    more_data: folders of data beside those of the plan's cases. patience: with a link that breaks meanwhile.

    Each host resolves the names of the others and sends them the largest frame, of many MOST_PEERS of them, which is
    told.
    """
    folders = ("/", "/tmp", "/var", str(Path(plan.code_dir_host).parent), str(Path(plan.log_root_host).parent))
    data = {case.data_dir_host for case in plan.cases if case.data_dir_host}
    data = (data | {*more_data}) - {*folders}
    names = [name for name in hosts if reports[name].facts is not None or not reports[name].findings]
    asked = [[*folders, *sorted(data), "--", *others] for others in peers_of(names)]
    peers = peers_of([hosts[name].address for name in names])
    arguments = {name: [*asked[place], "--", *peers[place]] for place, name in enumerate(names)}
    script = health_script()
    result = for_each(
        {name: hosts[name] for name in names},
        lambda host: across_outages(host, lambda: _look(host, script, arguments[host.name]), patience),
    )
    healths = dict(result.succeeded)
    for name, error in result.failed.items():
        said = str(error).removeprefix(f"{name}: ")[:MOST_CHARACTERS]
        reports[name].add("health", said, "an answer", "log in and look", "blind")
    addresses = {hosts[name].address: name for name in names}
    tried = {name: len(own) for name, own in zip(names, peers, strict=True) if name in healths}
    found_of = [*_unasked(healths, plan.vendor), *_untried(tried, len(names) - 1), *judged(healths, addresses, data)]
    _add_new(reports, found_of)


def _add_new(reports: Mapping[str, HostReport], found_of: Iterable[tuple[str, Found]]) -> None:
    for name, found in found_of:
        if (found[0], found[1]) not in {(each.subject, each.found) for each in reports[name].findings}:
            reports[name].add(*found)


def _unasked(healths: Mapping[str, HostHealth], name: str) -> Iterator[tuple[str, Found]]:
    """The hosts of a vendor with accelerators of whose state no tool was asked."""
    vendor = vendors.load(name)
    if vendor.monitor_name:
        why, action = f"the check asks no tool of {name}", "ask the vendor's own tool"
        severity: Severity = "not seen"
        if vendor.health is not None:
            why, action = f"no device of {name} is found", "look whether lspci shows it and its driver is loaded"
            severity = "blind"
        for host in (each for each, health in healths.items() if not _are_devices_asked(health, vendor.health)):
            yield host, ("state of the accelerators", why, "an answer", action, severity)


def _are_devices_asked(health: HostHealth, check: HealthCheck | None) -> bool:
    """Whether accelerators were asked for their state, or the vendor's own script says that they do not answer."""
    if check is None or not health.is_whole:
        return not health.is_whole
    silent = (
        what for key in ("cannot", "blind") for what, _ in health.of(key, 2) if f'say {key} "{what}\t' in check.script
    )
    return check.key in health.lines or any(what.endswith(check.kind) for what in silent)


def peers_of(addresses: Sequence[str]) -> list[list[str]]:
    """To whom each host sends: few to all others; many to the next, and to others at distances that its neighbours have
    not, so that some hosts of every two racks meet.
    """
    count = len(addresses)
    steps = range(1, count)

    def far(place: int) -> list[int]:
        turns = (GOLDEN * turn % 1 for turn in range(place * MOST_PEERS, (place + 1) * MOST_PEERS - 1))
        return list(dict.fromkeys([1, *(1 + int(turn * (count - 1)) for turn in turns)]))

    return [
        [addresses[(place + step) % count] for step in (steps if count <= MOST_PEERS + 1 else far(place))]
        for place in range(count)
    ]


def _untried(tried: Mapping[str, int], others: int) -> Iterator[tuple[str, Found]]:
    """The hosts, where they are too many to send to all others. tried: by host to how many it sent."""
    least = min(tried.values(), default=others)
    if least < others:
        found, action = (
            f"tried with {least} or more of {others} other hosts",
            "test the rest in smaller groups: --hosts",
        )
        for name in tried:
            yield name, ("largest frame, names", found, "all of them", action, "in part")


def _look(host: Host, script: str, arguments: Sequence[str]) -> HostHealth:
    """A host's own view of its links, devices and clock, by one run of the script."""
    argv = ["sh", "-c", script, "sh", "", *arguments]
    return parsed(host.run(argv, deadline=SECONDS, check=False).stdout)


def parsed(text: str) -> HostHealth:
    """The lines of the script by key."""
    lines: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            lines[key].append(ENDLESS.sub("(endless)", value[:MOST_OF_LINE]))
    return HostHealth(lines=lines, is_whole=lines.get("end") == ["ok"])


def judged(
    healths: Mapping[str, HostHealth],
    names: Mapping[str, str] = MappingProxyType({}),
    data: Collection[str] = frozenset(),
) -> Iterator[tuple[str, Found]]:
    """The findings of all hosts, each with its host; names: of hosts, by address; data: folders that are but read."""
    checks = health_checks()
    for name, health in healths.items():
        for found in (
            *_kernel_log(health, checks),
            *_of_host(health),
            *_names_and_clocks(health),
            *device_state(health, checks),
            *_storage(health, data),
        ):
            yield name, found
        yield from ((name, found) for found in _untold(health))
        if not health.is_whole:
            yield name, ("health", "not looked at to the end", "an answer", "log in and look", "blind")
    yield from odd_answers(
        {
            name: {asked: frozenset(filter(None, told.split(","))) for asked, told in health.of("resolved", 2)}
            for name, health in healths.items()
        }
    )
    yield from lost_frames({name: [*health.of("frame", 5)] for name, health in healths.items()}, names)
    for check in checks:
        if check.beside is not None:
            yield from check.beside(healths, FEWEST)
    yield from _beside_the_others(healths)
    for folder in sorted(data):
        yield from _unlike_data(healths, folder)


def _untold(health: HostHealth) -> Iterator[Found]:
    for what, why in health.of("cannot", 2):
        is_part = what == "largest frame" and "frame" in health.lines  # of one peer; others were reached
        action = "look whether its server answers" if why == "no answer" else INSTALL
        yield what, why, "an answer", action, "in part" if is_part else "not seen"
    for what, why in health.of("blind", 2):
        yield what, why, "an answer", INSTALL, "blind"


def _kernel_log(health: HostHealth, checks: Iterable[HealthCheck]) -> Iterator[Found]:
    explained = [check.judged_log for check in checks if check.judged_log is not None]
    other = [
        line.strip()[:MOST_CHARACTERS] + (f", {times} times" if times.isdecimal() and int(times) > 1 else "")
        for times, line in health.of("log_line", 2)
        if not any(each.search(line) for each in explained)
    ]
    other.sort(key=lambda line: bool(_LASTING.search(line)))
    if other:
        more = f"; {len(other) - SHOWN} more" if len(other) > SHOWN else ""
        action = "look at the disk, memory or device that the kernel names"
        is_lasting = bool(_LASTING.search(other[-1]))
        yield "kernel log", "; ".join(other[-SHOWN:]) + more, "no hardware errors", action, _severity(is_lasting)
    for (count,) in health.of("log_cut", 1):
        found = f"{count[:MOST_CHARACTERS]} lines more, of other kinds than the first 64"
        yield "kernel log", found, "fewer kinds", "read them there: dmesg, journalctl -k", "in part"


def _of_host(health: HostHealth) -> Iterator[Found]:
    has_rdma = bool(health.lines.get("rdma"))
    for (limit,) in health.of("memlock", 1):
        if has_rdma and limit != "unlimited":
            action = "set memlock to unlimited in /etc/security/limits.conf and sshd's unit"
            yield "ulimit", f"{limit} KiB of locked memory beside RDMA devices", "unlimited", action, "warning"
    for (limit,) in health.of("files", 1):
        if limit.isdecimal() and int(limit) < LEAST_FILES:
            yield "ulimit", f"{limit} open files", f"{LEAST_FILES} or more", "raise nofile in limits.conf", "warning"
    for (groups,) in health.of("iommu", 1):
        if has_rdma and groups.isdecimal() and int(groups):
            action = "boot with iommu=pt: copies between devices go around the host's memory then"
            one = "translates for 1 group of devices"
            found = one if int(groups) == 1 else f"translates for {groups} groups of devices"
            yield "IOMMU", found, "pass-through", action, "warning"


def _names_and_clocks(health: HostHealth) -> Iterator[Found]:
    for host, told in health.of("own_name", 2):
        if not told:
            found, action = f"{host} does not resolve", "add it to /etc/hosts or DNS: libraries look it up"
            yield "own name", found, "an address", action, "warning"
    for (line,) in health.of("cpu", 1):
        now, _, most = line.partition(" ")
        if is_below(now, most):
            capped, usual = (f"{float(each) / 1000:.0f}" for each in (now, most))
            action = "cpupower frequency-set -u, unless this is meant"
            yield "CPU", f"its clock is capped at {capped} MHz", f"{usual} MHz, its default", action, "warning"
    for (answer,) in health.of("synced", 1):
        if answer not in ("yes", "1"):
            yield "clock", "is not synchronised", "NTP or PTP", "start chronyd or systemd-timesyncd", "warning"


def used_percents(health: HostHealth) -> Iterator[tuple[str, str, float]]:
    """How much of `space` and `inodes` of each folder's file system is used."""
    for what in ("space", "inodes"):
        for folder, total, free in health.of(what, 3):
            if total.isdecimal() and free.isdecimal() and int(total):
                yield what, folder, 100 * (1 - int(free) / int(total))


def _storage(health: HostHealth, data: Collection[str]) -> Iterator[Found]:
    for what, folder, used in used_percents(health):
        if used >= WARN_PERCENT:
            severity = _severity(used >= FULL_PERCENT and folder not in data)
            yield (
                "file system",
                f"{used:.0f} % of the {what} of {folder} is used",
                f"below {WARN_PERCENT:g} %",
                FREE_SOME,
                severity,
            )
    for (folder,) in health.of("readonly", 1):
        if folder not in data:
            yield _read_only(folder, "failure")


def _read_only(folder: str, severity: Severity) -> Found:
    return "file system", f"{folder} is mounted read-only", "writable", MOUNT_AGAIN, severity


def _unlike_data(healths: Mapping[str, HostHealth], folder: str) -> Iterator[tuple[str, Found]]:
    """The hosts where a folder of data is read-only, which it may be on all: failures where most can write there."""
    locked = [name for name, health in healths.items() if folder in health.lines.get("readonly", ())]
    writable = [name for name, health in healths.items() if any(each[0] == folder for each in health.of("space", 3))]
    is_odd = len(locked) + len(writable) >= FEWEST and len(writable) > len(locked)
    for name in locked if writable else ():
        yield name, _read_only(folder, _severity(is_odd))


def _beside_the_others(healths: Mapping[str, HostHealth]) -> Iterator[tuple[str, Found]]:
    """The differences from most hosts: versions, settings, RDMA ports, widths of PCIe devices."""
    yield from _unlike(healths)
    yield from _ports(healths)
    yield from _narrow(healths)
    yield from _slow_slots(healths)


def _ports(healths: Mapping[str, HostHealth]) -> Iterator[tuple[str, Found]]:
    """RDMA ports unlike those of most hosts; of one that is lost its state alone."""
    ports = {name: {port: rest for port, *rest in health.of("rdma", 4)} for name, health in healths.items()}
    usual = _usual_rates(ports)
    for place, (what, is_failure) in enumerate((("state", True), ("rate", True), ("P_Keys", False))):
        values = {name: {port: found[place] for port, found in own.items()} for name, own in ports.items()}
        for name, odd in _odd(values):
            if odd.most and (odd.key in ports[name] or place == 0):
                action = "check cable, switch port and subnet manager"
                is_proven = odd.is_rare and _is_broken(odd.key, ports[name], usual)
                severity = _severity(is_failure and is_proven)
                yield name, (f"RDMA {odd.key}", f"{what} {odd.own or 'none'}", odd.expected, action, severity)


def _usual_rates(ports: Mapping[str, Mapping[str, Sequence[str]]]) -> dict[str, str]:
    """The usual rate of each port that most hosts have. ports: by host and port, state, rate and P_Keys."""
    counted = Counter(port for own in ports.values() for port in own)
    rates = _usual((port, rate) for own in ports.values() for port, (_, rate, _) in own.items())
    return {port: rates[port] for port, count in counted.items() if 2 * count > len(ports)}


def _is_broken(port: str, own: Collection[str], usual: Mapping[str, str]) -> bool:
    """Whether an odd port is there, or lost: no sign of another kind of host, which has all others that are usual but
    of its device, among them one of its rate, and none that is not usual. usual: rates by port.
    """
    lacking = {each.partition("/")[0] for each in usual if each not in own}
    alike = (each for each, rate in usual.items() if each in own and rate == usual.get(port))
    return port in own or (len(lacking) == 1 and any(alike) and all(each in usual for each in own))


def _unlike(healths: Mapping[str, HostHealth]) -> Iterator[tuple[str, Found]]:
    for name, odd in _odd(_versions(healths)):
        yield name, (f"version of {odd.key}", odd.own or "none", odd.expected, "install the same everywhere", "warning")
    for name, odd in _odd({n: _firmware(h) for n, h in healths.items()}, lacking=False):
        yield name, (f"version of {odd.key}", odd.own, odd.expected, "install the same everywhere", "warning")
    for name, odd in _odd({n: dict(h.of("setting", 2)) for n, h in healths.items()}):
        yield name, (odd.key, odd.own or "none", odd.expected, "set the same everywhere", "warning")


def _severity(is_failure: bool) -> Severity:
    return "failure" if is_failure else "warning"


def _versions(healths: Mapping[str, HostHealth]) -> dict[str, dict[str, str]]:
    return {
        name: {line.partition(" ")[0]: line.partition(" ")[2] for line in health.lines.get("version", ())}
        for name, health in healths.items()
    }


def _firmware(health: HostHealth) -> dict[str, str]:
    """The versions of the parts that the host has, by kind of part."""
    found: dict[str, set[str]] = defaultdict(set)
    for part, version in health.of("firmware", 2):
        found[part.strip()].add(version.strip())
    return {part: ", ".join(sorted(versions)) for part, versions in found.items()}


class _Odd(NamedTuple):
    """A value that differs from that of the largest group of hosts. is_rare: that group is most of three or more."""

    key: str
    own: str
    most: str
    expected: str
    is_rare: bool


def _odd(every: Mapping[str, Mapping[str, str]], *, lacking: bool = True) -> Iterator[tuple[str, _Odd]]:
    """Each host whose value of a key is not that of the largest group of hosts; of two groups alike the first.

    lacking: whether one without the key counts, too.
    """
    for key in dict.fromkeys(key for own in every.values() for key in own):
        values = {name: own for name, own in every.items() if lacking or key in own}
        counted = Counter(own.get(key, "") for own in values.values())
        ((most, count),) = counted.most_common(1)
        is_rare = len(values) >= FEWEST and 2 * count > len(values)
        expected = f"{most}, as most hosts" if is_rare else f"the same everywhere: {count} of {len(values)} have {most}"
        for name, own in values.items():
            if own.get(key, "") != most:
                yield name, _Odd(key, own.get(key, ""), most, expected, is_rare)


def _narrow(healths: Mapping[str, HostHealth]) -> Iterator[tuple[str, Found]]:
    """PCIe devices with fewer lanes than they can have: failures where most of their kind have more.

    One that has all lanes of its port, which a BIOS may have split, is held to the same one of other hosts; where few
    have as many, that most of its kind have more is a warning.
    """
    devices = [
        (name, words[0], words[1], int(words[2]), int(words[3]))
        for name, health in healths.items()
        for (line,) in health.of("pci", 1)
        if len(words := line.split()) == 4 and words[2].isdecimal() and words[3].isdecimal()
    ]
    lanes = _lanes(devices)
    usual = {kind: max(own, key=lambda width: (own.count(width), width)) for kind, own in lanes.items()}
    elsewhere = _at_other_hosts(devices)
    for name, device, kind, now, most in devices:
        best = usual[kind] if now < most else elsewhere.get((name, device), usual[kind])
        if now < max(most, best):
            is_odd = now < best and (_have_most_more(lanes[kind], now) or (name, device) in elsewhere)
            expected = _expected_lanes(now, most, best, is_odd=is_odd)
            action = "reseat it; check slot, riser and bifurcation"
            is_proven = is_odd and (now < most or (name, device) in elsewhere)
            yield name, (f"PCIe {device}", f"x{now} of x{max(most, best)}", expected, action, _severity(is_proven))


def _lanes(devices: Iterable[tuple[str, str, str, int, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for _, _, kind, now, _ in devices:
        found[kind].append(now)
    return found


def _have_most_more(values: Sequence[float], own: float) -> bool:
    """Whether more than half of three or more values are above one's own."""
    return len(values) >= FEWEST and 2 * sum(value > own for value in values) > len(values)


def _expected_lanes(now: int, most: int, best: int, *, is_odd: bool) -> str:
    if is_odd:
        return f"x{best}, as most of its kind"
    return f"x{most}, unless its slot has fewer" if now < most else f"x{best}, as others of its kind"


def _at_other_hosts(devices: Iterable[tuple[str, str, str, int, int]]) -> dict[tuple[str, str], int]:
    """By host and device the lanes that all but a tenth of the hosts, or but one, have at it.

    Of FEWEST hosts or more with as many devices of the kind; where more differ, they may be of another board. The nth
    narrowest port of a kind on a host is held to the nth of the others: addresses change where a port is split.
    """
    own: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    for name, device, kind, now, most_lanes in devices:
        own[name, kind].append((most_lanes, now, device))
    alike: dict[tuple[str, int, int], list[tuple[str, str, int]]] = defaultdict(list)
    for (name, kind), found in own.items():
        for place, (_, now, device) in enumerate(sorted(found)):
            alike[kind, len(found), place].append((name, device, now))
    most: dict[tuple[str, str], int] = {}
    for same in alike.values():
        ((width, count),) = Counter(now for *_, now in same).most_common(1)
        if len(same) >= FEWEST and len(same) - count <= max(1, len(same) // 10):
            most |= {(name, device): width for name, device, _ in same}
    return most


def _slow_slots(healths: Mapping[str, HostHealth]) -> Iterator[tuple[str, Found]]:
    """NICs and disks with a PCIe link slower than both its ends can be: failures where most hosts have faster ones."""
    devices = [
        (name, words[0], words[1], now, min(ends))
        for name, health in healths.items()
        for (line,) in health.of("pcie_speed", 1)
        if len(words := line.split()) in (4, 5)
        and (now := _speed(words[2]))
        and (ends := [most for word in words[3:] if (most := _speed(word))])
    ]
    slowest: dict[str, dict[str, float]] = defaultdict(dict)
    for name, _, kind, now, _ in devices:
        slowest[kind][name] = min(now, slowest[kind].get(name, now))
    for name, device, kind, now, most in devices:
        if now < most:
            speeds = [*slowest[kind].values()]
            is_odd = _have_most_more(speeds, now)
            usual = Counter(filter(now.__lt__, speeds)).most_common(1)[0][0] if is_odd else most
            expected = f"{usual:g} GT/s, as most of its kind" if is_odd else f"{most:g} GT/s, as it and its slot can"
            action = "reseat it; check slot and riser"
            yield name, (f"PCIe {device}", f"{now:g} of {most:g} GT/s", expected, action, _severity(is_odd))


def _speed(word: str) -> float:
    """In GT/s; 0 where the kernel tells none, as by "Unknown"."""
    return float(word) if re.fullmatch(r"[0-9]{1,4}(\.[0-9])?", word) else 0.0


def _usual(pairs: Iterable[tuple[str, T]]) -> dict[str, T]:
    found: dict[str, Counter[T]] = defaultdict(Counter)
    for kind, now in pairs:
        found[kind][now] += 1
    return {kind: counted.most_common(1)[0][0] for kind, counted in found.items()}
