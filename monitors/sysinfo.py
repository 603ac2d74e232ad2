"""Collects sys_info.json: the host, its network ports and accelerators, and its Python, as provenance of a round."""

import importlib.metadata
import importlib.util
import json
import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from monitors.ports import INFINIBAND, NET, interfaces, ports
from vendors import Vendor
from vendors.processor import cpu_name

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


FILE = "sys_info.json"
SCHEMA_VERSION = 1
# What the launch of the workload writes at its end (protocol.node_record).
LAUNCH_FILE, MAX_LAUNCH_BYTES = "node_exit.json", 4 << 20

# Facts that the controller passes in and the host cannot see: CLUSTERDYNO_SYS_IMAGE_ID becomes "image_id".
CONTROLLER_PREFIX = "CLUSTERDYNO_SYS_"

PACKAGES = ("torch", "numpy", "pydantic", "psutil", "triton", "flash-attn", "apex", "transformer-engine")
# Base images put the versions of libraries outside pip into their environment.
IMAGE_VARIABLES = ("PYTORCH_BUILD_VERSION",)


def collect(accelerator: Mapping[str, Any], environment: Mapping[str, str], vendor: Vendor) -> dict[str, Any]:
    """All facts of this host. Imports neither torch nor any other package that it reports.

    accelerator: the probe's description, or {"unavailable": reason}. environment: of this process.
    """
    memory = psutil.virtual_memory()
    info: dict[str, Any] = {
        "schema": SCHEMA_VERSION,
        "hostname": socket.gethostname(),
        "os": _os_name(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu": {
            "model": cpu_name(Path("/proc/cpuinfo")),
            "cores": psutil.cpu_count(logical=False),
            "threads": psutil.cpu_count(logical=True),
        },
        "memory_bytes": memory.total,
        "interfaces": {name: _interface(stats) for name, stats in sorted(psutil.net_if_stats().items())},
        "network": network(),
        "accelerator": dict(accelerator),
        "pci_accelerators": accelerators(),
        "python": platform.python_version(),
        "packages": {
            name: version for name in (*PACKAGES, *vendor.packages) if (version := _version(name)) is not None
        },
        "features": features(),
        "image": {
            name: environment[name] for name in (*IMAGE_VARIABLES, *vendor.image_variables) if name in environment
        },
    }
    given = {key: value for key, value in environment.items() if key.startswith(CONTROLLER_PREFIX)}
    return info | {key.removeprefix(CONTROLLER_PREFIX).lower(): value for key, value in given.items()}


def features() -> dict[str, bool]:
    """Which optional kernels are installed. Presence only: whether they import is what the launch finds out.

    apex counts only if it is NVIDIA's: the distribution of that name on PyPI is another project.
    """
    apex = importlib.util.find_spec("apex")
    folders = list(apex.submodule_search_locations or []) if apex else []
    return {
        "flash_attn": importlib.util.find_spec("flash_attn") is not None,
        "flash_attn_3": importlib.util.find_spec("flash_attn_interface") is not None,
        "apex": any((Path(folder) / "optimizers").is_dir() for folder in folders),
        "transformer_engine": importlib.util.find_spec("transformer_engine") is not None,
    }


class Launched(NamedTuple):
    """The traces of the workload's launch: its libraries of fused kernels, and the environment of its ranks."""

    fused: dict[str, str | None]
    environment: dict[str, str]


def launched(directory: Path) -> Launched:
    """The fused kernels and the environment of the launch in a folder; both are empty if it left no record."""
    try:
        with (directory / LAUNCH_FILE).open("rb") as file:
            record = json.loads(file.read(MAX_LAUNCH_BYTES))
        fused = {name: value for name, value in record["fused"].items() if value is None or isinstance(value, str)}
        given = {name: value for name, value in record["environment"].items() if isinstance(value, str)}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Launched({}, {})
    return Launched(fused, given)


def write(directory: Path, info: Mapping[str, Any]) -> None:
    """Write sys_info.json atomically."""
    temporary = directory / f".{FILE}.{os.getpid()}"
    try:
        temporary.write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(directory / FILE)
    finally:
        temporary.unlink(missing_ok=True)


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _interface(stats: Any) -> dict[str, Any]:
    """Facts of an interface. psutil's speed 0, of virtual devices, means unknown: it is left out."""
    return {"up": stats.isup, "mtu": stats.mtu} | ({"speed_mbit_s": stats.speed} if stats.speed else {})


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
