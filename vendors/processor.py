"""Names the processor of a host, as far as its kernel tells it."""

import platform
from pathlib import Path

_NAMES = ("model name", "Model Name", "cpu model", "cpu", "Model")
_ARM = ("implementer", "part", "variant")
_X86 = ("vendor_id", "cpu family", "model")


def cpu_name(cpuinfo: Path) -> str:
    """The processor's name as its maker has it; on ARM, of which the kernel tells none, the numbers of its maker and
    type (Linux, arch/arm64/kernel/cpuinfo.c); the architecture where nothing is told.
    """
    told = _told(cpuinfo)
    names = [told[key] for key in _NAMES if told.get(key)]
    numbers = [f"{key} {told[f'CPU {key}']}" for key in _ARM if told.get(f"CPU {key}")]
    return names[0] if names else ", ".join(numbers) or platform.machine()


def cpu_type(cpuinfo: Path) -> str:
    """The processor's name with its maker and the numbers of its type: those of some virtual machines are named alike
    on processors of different makers.
    """
    told = _told(cpuinfo)
    return ", ".join([cpu_name(cpuinfo), *(f"{key} {told[key]}" for key in _X86 if told.get(key))])


def _told(cpuinfo: Path) -> dict[str, str]:
    """The fields of the first processor; none where they cannot be read."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    told: dict[str, str] = {}
    for line in lines:
        key, _, value = line.partition(":")
        told.setdefault(key.strip(), value.strip())
    return told
