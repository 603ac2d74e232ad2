"""Lists NVIDIA's devices by PCI address, as the driver shows them in /proc."""

from pathlib import Path


def devices(root: Path) -> dict[str, str]:
    """UUIDs of the devices by PCI address, in the order of the addresses, which is CUDA's for equal devices."""
    found = {}
    for path in sorted((root / "proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        facts = dict(line.partition(":")[::2] for line in lines)
        found[path.parent.name.lower()] = facts.get("GPU UUID", "").strip()
    return found
