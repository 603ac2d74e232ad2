"""Reads how often an Ethernet port was told to pause, from its driver's statistics (ethtool -S)."""

import ctypes
import fcntl
import re
import socket
import struct

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
