"""Adds to a finding what the monitors saw on its hosts, and not on the others: counters, links, clocks, NCCL's network.

The rules are plain comparisons with the peers: the hosts of the round that no finding on a host or link names. What a
peer shows as well is no explanation and is left out. An observation proves no cause: it tells where to look first.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from protocol.finding import MAX_CHARACTERS, MAX_OBSERVATIONS, PartFinding
from run_benchmarks.results.monitor_readings import PortLink, Sight
from run_benchmarks.results.remarks import Remark
from run_benchmarks.results.samples.summary import ERRORS

# A finding of more hosts is about a group, whose peers are unknown.
MOST_HOSTS = 2
# A counter stands out if it grew by so many times the most of any peer's port, and by this much at least.
TIMES, LEAST = 3, 20
# One of these is enough: a sound link has none for days.
_LEAST_ERRORS = 1
_SUSPICIOUS = (
    *ERRORS,
    *("rx_dropped", "tx_dropped", "retransmits", "out_of_sequence"),
    *("cnp_handled", "ecn_marked", "pause_rx", "pause_tx", "xmit_wait"),
)
# Points of percent above the peers' highest mean, and MHz below their lowest one.
_STEAL_POINTS, _CPU_POINTS = 2.0, 25.0
_SLOW_CLOCK = 0.9
_WARMER_C = 10.0
# Remarks on a host that explain why it is slow.
_REMARKS = ("throttled", "foreign load", "foreign accelerator process", "load before start", "clock step")

V = TypeVar("V")


def with_observations(
    findings: Sequence[PartFinding], sights: Sequence[Sight], remarks: Sequence[Remark] = ()
) -> list[PartFinding]:
    """The findings, each on a host, a device or a link with what was seen there and at no peer."""
    if not findings:
        return []
    known = {sight.host: sight for sight in sights}
    accused = {host for finding in findings if _is_local(finding) for host in finding.hosts}
    peers = _Peers([sight for sight in sights if sight.host not in accused], remarks)
    return [
        finding.model_copy(update={"observations": tuple(_observed(finding, known, peers, remarks))})
        if _is_local(finding)
        else finding
        for finding in findings
    ]


def _is_local(finding: PartFinding) -> bool:
    return 0 < len(finding.hosts) <= MOST_HOSTS


class _Peers:
    """The common values of the hosts that no finding names."""

    def __init__(self, sights: Sequence[Sight], remarks: Sequence[Remark]) -> None:
        self.count = len(sights)
        grown = _by_name(counters for sight in sights for counters in sight.counters.values())
        figures = _by_name(sight.figures for sight in sights)
        self.grown = {name: max(0, *values) for name, values in grown.items()}
        self.links = _usual(_by_name(sight.links for sight in sights))
        self.lanes = _usual(_by_name(sight.lanes for sight in sights))
        self.lowest = {name: min(values) for name, values in figures.items()}
        self.highest = {name: max(values) for name, values in figures.items()}
        networks = _usual(_by_name({"NCCL": sight.networks} for sight in sights if sight.networks))
        self.networks = networks.get("NCCL", ())
        hosts = {sight.host for sight in sights}
        self.remarked = {remark.kind for remark in remarks if remark.host in hosts}


def _by_name(seen: Iterable[Mapping[str, V]]) -> dict[str, list[V]]:
    """The values of each name."""
    values: dict[str, list[V]] = {}
    for each in seen:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return values


def _usual(values: Mapping[str, list[V]]) -> dict[str, V]:
    """The most frequent value of each name."""
    return {name: Counter(found).most_common(1)[0][0] for name, found in values.items()}


def _observed(
    finding: PartFinding, known: Mapping[str, Sight], peers: _Peers, remarks: Sequence[Remark]
) -> Iterator[str]:
    """The observations on each host of a finding, at most MAX_OBSERVATIONS; of a device its own port alone."""
    left = MAX_OBSERVATIONS
    for host in finding.hosts:
        sight = known.get(host)
        if sight is None or not peers.count:
            continue
        name = f"{host}: " if len(finding.hosts) > 1 else ""
        own = [remark for remark in remarks if remark.host == host]
        for text in list(_of_host(sight, finding.device, peers, own))[:left]:
            left -= 1
            yield f"{name}{text}"[:MAX_CHARACTERS]


def _of_host(sight: Sight, device: str, peers: _Peers, remarks: Sequence[Remark]) -> Iterator[str]:
    yield from _counters(sight, device, peers)
    yield from _links(sight, device, peers)
    if sight.networks and peers.networks and sight.networks != peers.networks:
        yield f"NCCL uses {_nets(sight.networks)}, at the peers {_nets(peers.networks)}"
    yield from _clocks(sight, peers)
    seen: set[str] = set()
    for remark in remarks:
        if remark.kind in _REMARKS and remark.kind not in peers.remarked | seen:
            seen.add(remark.kind)
            yield f"{remark.kind}: {remark.detail}"


def _counters(sight: Sight, device: str, peers: _Peers) -> Iterator[str]:
    ports = [port for port in sight.counters if _is_port_of(port, device)]
    # A device whose port the monitor does not know, such as "rail 4", is one of all.
    for port in ports or list(sight.counters):
        for name in _SUSPICIOUS:
            value, most = sight.counters[port].get(name, 0), peers.grown.get(name)
            if most is None:
                continue
            if value >= (_LEAST_ERRORS if name in ERRORS else LEAST) and value > TIMES * most:
                yield f"{port}: {value} {name.replace('_', ' ')}, at most {most} at the peers"


def _is_port_of(port: str, device: str) -> bool:
    """Whether "mlx5_4/1" is a port of "mlx5_4", or the same interface."""
    return not device or port.partition("/")[0] == device


def _links(sight: Sight, device: str, peers: _Peers) -> Iterator[str]:
    ports = [port for port in sight.links if _is_port_of(port, device)]
    for port in ports or list(sight.links):
        own, usual = sight.links[port], peers.links.get(port)
        if usual is None:
            continue
        if 0 < own.speed_mbit_s < usual.speed_mbit_s:
            yield f"{port}: its link runs at {_gbit(own)} Gbit/s, at the peers at {_gbit(usual)}"
        if 0 < own.pcie_gt_s < usual.pcie_gt_s or 0 < own.pcie_width < usual.pcie_width:
            yield f"{port}: its PCIe link is {_pcie(own)}, at the peers {_pcie(usual)}"
    for address, width in sight.lanes.items():
        if width < peers.lanes.get(address, 0.0):
            yield f"accelerator {address}: its PCIe link is x{width:g}, at the peers x{peers.lanes[address]:g}"


def _gbit(link: PortLink) -> str:
    return f"{link.speed_mbit_s / 1000:g}"


def _pcie(link: PortLink) -> str:
    return f"{link.pcie_gt_s:g} GT/s x{link.pcie_width:g}"


def _nets(names: Sequence[str]) -> str:
    return ", ".join(f"NET/{name}" for name in names)


def _clocks(sight: Sight, peers: _Peers) -> Iterator[str]:
    for name, words, points in (
        ("steal_percent", "steal", _STEAL_POINTS),
        ("cpu_percent", "use", _CPU_POINTS),
    ):
        if name in peers.highest and sight.figures.get(name, 0.0) >= peers.highest[name] + points:
            yield f"CPU {words} {sight.figures[name]:.1f} %, at most {peers.highest[name]:.1f} % at the peers"
    for name, words in (("cpu_mhz", "CPU frequency"), ("clock_mhz", "clock of the slowest accelerator")):
        if name in peers.lowest and 0 < sight.figures.get(name, 0.0) < _SLOW_CLOCK * peers.lowest[name]:
            yield f"{words} {sight.figures[name]:.0f} MHz, at least {peers.lowest[name]:.0f} MHz at the peers"
    heat = sight.figures.get("temperature_c", 0.0)
    if "temperature_c" in peers.highest and heat >= peers.highest["temperature_c"] + _WARMER_C:
        yield f"hottest accelerator {heat:.0f} C, at most {peers.highest['temperature_c']:.0f} C at the peers"
    errors = sight.figures.get("ecc_uncorrected", 0.0)
    if errors > peers.highest.get("ecc_uncorrected", errors):
        yield f"{errors:.0f} uncorrected ECC errors, at most {peers.highest['ecc_uncorrected']:.0f} at the peers"
