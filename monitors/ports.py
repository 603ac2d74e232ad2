"""Samples the counters of network ports, Ethernet and InfiniBand: bytes, packets, drops, errors, congestion."""

import ctypes
import fcntl
import os
import re
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from monitors.sampler import Sampler, Unavailable, Values

# Source: Linux, include/uapi/linux/sockios.h and ethtool.h.
_SIOCETHTOOL, _GSTRINGS, _GSTATS, _GSSET_INFO, _SS_STATS = 0x8946, 0x1B, 0x1D, 0x37, 1
_NAME_BYTES, _MAX_STATISTICS = 32, 20_000
# mlx5, ice, i40e, ixgbe, bnxt and ena agree on this much of the names: rx_prio3_pause, rx_pause_ctrl_phy, pause.rx.
PAUSE = re.compile(r"^(rx|tx)_(?:prio\d_)?pause(?:_ctrl_phy|_frames)?$|^(rx|tx)_pfc_ena_frames_pri\d$")
_PLACES: dict[str, tuple[int, list[tuple[int, str]]]] = {}  # by interface: number of statistics, and index and side


def pause_counts(interface: str) -> dict[str, int]:
    """{"pause_rx", "pause_tx"}: pause frames since the boot; empty where the driver counts none."""
    try:
        if interface not in _PLACES:
            names = statistic_names(interface)
            matches = ((index, PAUSE.match(name)) for index, name in enumerate(names))
            _PLACES[interface] = len(names), [(index, m[1] or m[2]) for index, m in matches if m]
        count, places = _PLACES[interface]
        if not places:
            return {}
        data = _call(interface, struct.pack("II", _GSTATS, count) + bytes(8 * count))
    except OSError:
        _PLACES[interface] = 0, []
        return {}
    found = {"pause_rx": 0, "pause_tx": 0}
    for index, side in places:
        found[f"pause_{side}"] += struct.unpack_from("Q", data, 8 + 8 * index)[0]
    return found


def statistic_names(interface: str) -> list[str]:
    """The names of a driver's statistics, as `ethtool -S` shows them.

    Raises:
        OSError: there is no such interface, or its driver has no statistics.
    """
    asked = _call(interface, struct.pack("IIQI", _GSSET_INFO, 0, 1 << _SS_STATS, 0) + bytes(4))
    count = min(struct.unpack_from("I", asked, 16)[0], _MAX_STATISTICS)
    data = _call(interface, struct.pack("III", _GSTRINGS, _SS_STATS, count) + bytes(_NAME_BYTES * count))
    raw = (data[12 + _NAME_BYTES * index : 12 + _NAME_BYTES * (index + 1)] for index in range(count))
    return [name.split(b"\0", 1)[0].decode("utf-8", "replace").strip() for name in raw]


def _call(interface: str, request: bytes) -> bytes:
    buffer = ctypes.create_string_buffer(request, len(request))
    argument = struct.pack("16sP16x", interface.encode()[:15], ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        fcntl.ioctl(connection.fileno(), _SIOCETHTOOL, argument)
    return buffer.raw


NET, INFINIBAND, SNMP = Path("/sys/class/net"), Path("/sys/class/infiniband"), Path("/proc/net/snmp")
# A NIC's firmware answers for each of its hardware counters: they are read less often than the processors'.
PERIOD_S = 5.0
MAX_PORTS = 64
_WORD_BYTES = 4  # InfiniBand counts data in words

# Our name of a counter: its file below an interface. Source: Linux, Documentation/ABI/testing/sysfs-class-net*.
_ETHERNET = {
    **{name: f"statistics/{name}" for name in ("rx_bytes", "tx_bytes", "rx_packets", "tx_packets")},
    **{name: f"statistics/{name}" for name in ("rx_dropped", "tx_dropped", "rx_errors", "tx_errors")},
    "link_downs": "carrier_down_count",
}
# Below a port of an InfiniBand or RoCE device; the first that exists counts.
# Source: Linux, Documentation/ABI/stable/sysfs-class-infiniband; NVIDIA, "Understanding mlx5 Linux counters".
_INFINIBAND = {
    "rx_bytes": "counters/port_rcv_data", "tx_bytes": "counters/port_xmit_data",
    "rx_packets": "counters/port_rcv_packets", "tx_packets": "counters/port_xmit_packets",
    "tx_dropped": "counters/port_xmit_discards", "rx_errors": "counters/port_rcv_errors",
    "symbol_errors": "counters/symbol_error", "link_downs": "counters/link_downed",
    "link_recoveries": "counters/link_error_recovery", "xmit_wait": "counters/port_xmit_wait",
    "cnp_sent": "hw_counters/np_cnp_sent", "cnp_handled": "hw_counters/rp_cnp_handled",
    "ecn_marked": "hw_counters/np_ecn_marked_roce_packets", "out_of_sequence": "hw_counters/out_of_sequence",
    "ack_timeouts": "hw_counters/local_ack_timeout_err", "retransmits": "hw_counters/roce_adp_retrans",
}  # fmt: skip
_IN_WORDS = ("rx_bytes", "tx_bytes")


@dataclass(frozen=True, slots=True)
class _Counter:
    descriptor: int
    factor: int

    def read(self) -> int | None:
        """Its value now; None if it cannot be read, as of a port that went away."""
        try:
            return int(os.pread(self.descriptor, 64, 0)) * self.factor
        except (OSError, ValueError):
            return None


class PortSampler(Sampler):
    """Counters of all ports since the boot, every PERIOD_S and at the end; after the first record those that changed.

    A port of an InfiniBand or RoCE device is named "mlx5_0/1", an interface "eth0"; "tcp" has the host's retransmits.
    `pause_rx` and `pause_tx` are the frames by which the peer, or this port, was asked to wait (PFC, global pause).

    Raises:
        Unavailable: the host has no port besides loopback.
    """

    source = "ports"
    log = ""
    is_rare = True

    def __init__(self, net: Path = NET, infiniband: Path = INFINIBAND, snmp: Path = SNMP) -> None:
        self._snmp, self._due = snmp, 0.0
        self._interfaces = [folder.name for folder in interfaces(net)]
        self._ports = {folder.name: _opened(folder, _ETHERNET, 1) for folder in interfaces(net)}
        self._ports |= {name: _opened(folder, _INFINIBAND, _WORD_BYTES) for name, folder in ports(infiniband)}
        if not self._ports:
            raise Unavailable(f"no network port below {net} and {infiniband}")
        self._last: dict[str, dict[str, int]] = {}
        self._upper: list[str] | None = [folder.name for folder in interfaces(net) if is_upper(folder)]

    def sample(self) -> Values | None:
        """{"ports": {port: {counter: number}}} of those that changed; None before PERIOD_S have passed.

        The first has "upper", too: the ports whose bytes others of this host count as well.
        """
        if time.monotonic() < self._due:
            return None
        return self.sample_last()

    def sample_last(self) -> Values | None:
        """As sample() gives them, but at once: for the end of a round, however recent the last sample is."""
        self._due = time.monotonic() + PERIOD_S
        found = {name: _numbers(counters) for name, counters in self._ports.items()}
        for name in self._interfaces:
            found[name] |= pause_counts(name)
        found["tcp"] = _tcp(self._snmp)
        changed = {
            name: {key: value for key, value in numbers.items() if self._last.get(name, {}).get(key) != value}
            for name, numbers in found.items()
        }
        self._last = found
        changed = {name: numbers for name, numbers in changed.items() if numbers}
        if not changed:
            return None
        upper, self._upper = self._upper, None
        return {"ports": changed, **({"upper": upper} if upper else {})}

    def close(self) -> None:
        for counters in self._ports.values():
            for counter in counters.values():
                os.close(counter.descriptor)
        self._ports = {}


def interfaces(net: Path) -> list[Path]:
    """The interfaces but loopback, at most MAX_PORTS, those of real devices first."""
    found = [folder for folder in net.glob("*") if folder.name != "lo" and (folder / "statistics").is_dir()]
    return sorted(found, key=lambda folder: (not (folder / "device").exists(), folder.name))[:MAX_PORTS]


def is_upper(interface: Path) -> bool:
    """Whether other ports count its bytes, too: a bond, VLAN or bridge, or IP over InfiniBand.

    Source: Linux, Documentation/ABI/testing/sysfs-class-net: lower_<name>, and type 32, ARPHRD_INFINIBAND.
    """
    if any(interface.glob("lower_*")):
        return True
    try:
        return (interface / "type").read_text().strip() == "32"
    except OSError:
        return False


def ports(infiniband: Path) -> list[tuple[str, Path]]:
    """(name, folder) of the ports of InfiniBand and RoCE devices, at most MAX_PORTS."""
    found = sorted(infiniband.glob("*/ports/*"))
    return [(f"{folder.parents[1].name}/{folder.name}", folder) for folder in found][:MAX_PORTS]


def _opened(folder: Path, names: Mapping[str, str], factor: int) -> dict[str, _Counter]:
    found = {}
    for name, file in names.items():
        try:
            descriptor = os.open(folder / file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # no driver has all counters
        found[name] = _Counter(descriptor, factor if name in _IN_WORDS else 1)
    return found


def _numbers(counters: Mapping[str, _Counter]) -> dict[str, int]:
    read = {name: counter.read() for name, counter in counters.items()}
    return {name: value for name, value in read.items() if value is not None}


def _tcp(snmp: Path) -> dict[str, int]:
    """Segments that TCP sent again; empty if the kernel does not tell."""
    try:
        names, values = (line.split() for line in snmp.read_text().splitlines() if line.startswith("Tcp:"))
        return {"retransmits": int(values[names.index("RetransSegs")])}
    except (OSError, ValueError, IndexError):
        return {}
