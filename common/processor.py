"""Names the processor of a host, so that processors of different types have different names."""

import platform
from pathlib import Path

_NAMES = ("model name", "cpu model", "Model")
_ARM = ("implementer", "part", "variant")


def cpu_name(cpuinfo: Path) -> str:
    """The processor's name as its maker has it; on ARM, of which the kernel tells none, the numbers of its maker and
    type (Linux, arch/arm64/kernel/cpuinfo.c); the architecture where nothing is told.
    """
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        told.setdefault(key.strip(), value.strip())
    names = [told[key] for key in _NAMES if told.get(key)]
    numbers = [f"{key} {told[f'CPU {key}']}" for key in _ARM if told.get(f"CPU {key}")]
    return names[0] if names else ", ".join(numbers) or platform.machine()
