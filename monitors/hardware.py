"""Describes network ports and accelerators for sys_info.json: state, speed, PCIe link, NUMA node."""

from pathlib import Path
from typing import Any

from monitors.ports import INFINIBAND, NET, interfaces, ports

PCI = Path("/sys/bus/pci/devices")
# PCI classes of display and processing accelerators: VGA, 3D, other display, processing accelerator.
_ACCELERATOR_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
MAX_DEVICES = 64


def network(net: Path = NET, infiniband: Path = INFINIBAND) -> list[dict[str, Any]]:
    """Each port: `name`, `kind`, `state`, `speed_mbit_s`, `is_device` (not a virtual one), `numa_node` and `pcie`.

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
        rate = (_text(folder / "rate") or "").split()
        port = {
            "name": name,
            "kind": (_text(folder / "link_layer") or "InfiniBand").lower(),
            "state": (_text(folder / "state") or "").partition(": ")[2].lower() or None,
            "speed_mbit_s": _mbit(rate[0]) if rate else None,
            "is_device": True,
        }
        found.append(port | _slot(folder.parents[1] / "device"))
    return [{key: value for key, value in port.items() if value is not None} for port in found]


def accelerators(pci: Path = PCI) -> list[dict[str, Any]]:
    """Each accelerator or display device on PCI: `address`, `numa_node`, `pcie`."""
    devices = sorted(folder for folder in pci.glob("*") if (_text(folder / "class") or "")[:6] in _ACCELERATOR_CLASSES)
    return [{"address": folder.name, **_slot(folder)} for folder in devices[:MAX_DEVICES]]


def _slot(device: Path) -> dict[str, Any]:
    """The NUMA node (not of machines that have one) and the PCIe link: speeds in GT/s per lane, widths in lanes."""
    found: dict[str, Any] = {}
    node = _number(device / "numa_node")
    if node is not None and node >= 0:
        found["numa_node"] = node
    speeds = [_mbit((_text(device / f"{which}_link_speed") or "").split(" ")[0]) for which in ("current", "max")]
    widths = [_number(device / f"{which}_link_width") for which in ("current", "max")]
    if all(speeds) and all(widths):
        found["pcie"] = {
            "speed_gt_s": (speeds[0] or 0) / 1000,
            "max_speed_gt_s": (speeds[1] or 0) / 1000,
            "width": widths[0],
            "max_width": widths[1],
        }
    return found


def _mbit(giga: str) -> int | None:
    try:
        return round(float(giga) * 1000)
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
