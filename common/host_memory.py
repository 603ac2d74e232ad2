"""Reads how much memory this host has, and how much of it is free, within the limit of this process's control group."""

from pathlib import Path

from common.memory_group import own_group

_MEMINFO = Path("/proc/meminfo")


def total_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """Bytes that programs here may take together, used ones included; None where the kernel does not tell."""
    return _within_limit(_entry(meminfo, "MemTotal"))


def available_bytes(meminfo: Path = _MEMINFO) -> int | None:
    """Bytes that programs here may still take; None where the kernel does not tell."""
    return _within_limit(_entry(meminfo, "MemAvailable"))


def _entry(meminfo: Path, name: str) -> int | None:
    """The bytes of one line of /proc/meminfo, which counts in 1024 bytes."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)
    except (OSError, ValueError, IndexError):
        return None


def _within_limit(found: int | None) -> int | None:
    group = own_group()
    limit = None if group is None else group.limit()
    return found if found is None or limit is None else min(found, limit)
