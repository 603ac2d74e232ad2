"""Describes network ports and accelerators for sys_info.json: state, speed, PCIe link, NUMA node."""

from pathlib import Path
from typing import Any

from monitors.ports import INFINIBAND, NET, interfaces, ports

PCI = Path("/sys/bus/pci/devices")
# PCI classes of display and processing accelerators: VGA, 3D, other display, processing accelerator.
_ACCELERATOR_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
MAX_DEVICES = 64


def network(net: Path = NET, infiniband: Path = INFINIBAND) -> list[dict[str, Any]]:
    """Each port: `name`, `kind`, `state`, `speed_mbit_s`, `is_device` (not a virtual one), and what `_slot` says.

    Unknown values are left out. The kind of an RDMA device's port is its link layer: "infiniband" or "ethernet".
    """
    found: list[dict[str, Any]] = []
    for folder in interfaces(net):
        speed = _number(folder / "speed")
        port: dict[str, Any] = {
            "name": folder.name,
            "kind": "interface",
            "state": _text(folder / "operstate"),
            "speed_mbit_s": speed if speed and speed > 0 else None,
            "is_device": (folder / "device").exists(),
        }
        found.append(port | _slot(folder / "device"))
    for name, folder in ports(infiniband):
        port = {
            "name": name,
            "kind": (_text(folder / "link_layer") or "InfiniBand").lower(),
            "state": (_text(folder / "state") or "").partition(": ")[2].lower() or None,
            "speed_mbit_s": _mbit_of(folder / "rate"),
            "is_device": True,
        }
        found.append(port | _slot(folder.parents[1] / "device"))
    return [{key: value for key, value in port.items() if value is not None} for port in found]


def accelerators(pci: Path = PCI) -> list[dict[str, Any]]:
    """Each accelerator or display device on PCI: `address`, and what `_slot` says."""
    devices = sorted(folder for folder in pci.glob("*") if (_text(folder / "class") or "")[:6] in _ACCELERATOR_CLASSES)
    return [{"address": folder.name, **_slot(folder)} for folder in devices[:MAX_DEVICES]]


def _slot(device: Path) -> dict[str, Any]:
    """`model` (PCI numbers of device and board), `numa_node` (not of machines that have one), and `pcie`."""
    found: dict[str, Any] = {}
    numbers = [_text(device / name) for name in ("vendor", "device", "subsystem_vendor", "subsystem_device")]
    if numbers[0] and numbers[1]:
        found["model"] = ":".join(number or "" for number in numbers)
    node = _number(device / "numa_node")
    if node is not None and node >= 0:
        found["numa_node"] = node
    return found | _link(device)


def _link(device: Path) -> dict[str, Any]:
    """`pcie`, where the device tells of its link: speeds in GT/s per lane, widths in lanes.

    The most that a link can be is what both its ends can: the device and the port above it, its parent in sysfs
    (Linux, Documentation/ABI/testing/sysfs-bus-pci).
    """
    speed, width = _mbit_of(device / "current_link_speed"), _number(device / "current_link_width")
    ends = (device, device.resolve().parent)
    speeds = [most for end in ends if (most := _mbit_of(end / "max_link_speed"))]
    widths = [most for end in ends if (most := _number(end / "max_link_width"))]
    if not (speed and width and speeds and widths):
        return {}
    of_speed = {"speed_gt_s": speed / 1000, "max_speed_gt_s": min(speeds) / 1000}
    return {"pcie": {**of_speed, "width": width, "max_width": min(widths)}}


def _mbit_of(file: Path) -> int | None:
    """Thousand times the number that a file such as "32.0 GT/s PCIe" begins with."""
    try:
        return round(float((_text(file) or "").partition(" ")[0]) * 1000)
    except (ValueError, OverflowError):
        return None


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(file: Path) -> int | None:
    text = _text(file)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
