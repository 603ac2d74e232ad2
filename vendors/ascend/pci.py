"""Lists Ascend's devices by PCI address, as the kernel shows them in /sys."""

from pathlib import Path

HUAWEI = "0x19e5"
_DEVICES = ("0xd801", "0xd802", "0xd803")
"""Identities of the 910A, 910B and 910C in pci.ids."""


def devices(root: Path) -> dict[str, str]:
    """The PCI addresses of the devices in their own order; they have no UUIDs in /sys."""
    found = []
    for path in sorted((root / "sys/bus/pci/devices").glob("*")):
        try:
            vendor, device = ((path / name).read_text(encoding="ascii").strip() for name in ("vendor", "device"))
        except OSError:
            continue
        if vendor == HUAWEI and device in _DEVICES:
            found.append(path.name)
    return dict.fromkeys(found, "")
