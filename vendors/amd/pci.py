"""Lists AMD's devices by PCI address, as the kernel's driver amdgpu shows them in /sys."""

from pathlib import Path


def devices(root: Path) -> dict[str, str]:
    """The PCI addresses of the devices in the order of ROCm's numbers; ROCm's UUIDs are not in /sys.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c: properties of a node; a node without SIMDs is a CPU.
    """
    found = {}
    for path in sorted((root / "sys/class/kfd/kfd/topology/nodes").glob("*/properties"), key=_number):
        try:
            facts = dict(line.split(maxsplit=1) for line in path.read_text(encoding="ascii").splitlines())
            simds, location, domain = (int(facts[key]) for key in ("simd_count", "location_id", "domain"))
        except (OSError, ValueError, KeyError):
            continue
        if simds:
            bus, device, function = location >> 8, location >> 3 & 31, location & 7
            found[f"{domain:04x}:{bus & 255:02x}:{device:02x}.{function}"] = ""
    return found


def _number(path: Path) -> int:
    name = path.parent.name
    return int(name) if name.isdecimal() else 0
