"""Reads from this process's control group how many processes the kernel ended for lack of memory.

The parent of such a process sees an ordinary SIGKILL; only the control group's counter identifies it (`oom_kill`,
linux/Documentation/admin-guide/cgroup-v2.rst; for version 1 in memory.oom_control).
"""

from pathlib import Path
from typing import NamedTuple

_MOUNT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
# Version 1 writes "no limit" as the largest number of whole pages in a signed 64-bit count of bytes.
_UNLIMITED = 1 << 62


class MemoryGroup(NamedTuple):
    """A memory control group: the file with its counter, and the file with its limit in bytes."""

    counter: Path
    limit_file: Path

    def kills(self) -> int:
        """Number of processes in the group that the kernel ended for lack of memory; 0 where it does not count them."""
        try:
            lines = self.counter.read_text(encoding="ascii").splitlines()
        except OSError:
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)

    def limit(self) -> int | None:
        """The group's own limit in bytes, None where it has none."""
        try:
            text = self.limit_file.read_text(encoding="ascii").strip()
        except OSError:
            return None
        return int(text) if text.isdecimal() and int(text) < _UNLIMITED else None


def own_group(membership: Path = _MEMBERSHIP, mount: Path = _MOUNT) -> MemoryGroup | None:
    """The memory control group of this process, None where the kernel shows none.

    In a container the group's folder is at the root of the mount, independent of its path on the host.
    """
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for _, controllers, path in sorted(
        (line.split(":", 2) for line in lines), key=lambda parts: parts[1], reverse=True
    ):
        if "memory" in controllers.split(","):
            root, names = mount / "memory", ("memory.oom_control", "memory.limit_in_bytes")
        elif controllers == "":
            root, names = mount, ("memory.events", "memory.max")
        else:
            continue
        for folder in (root / path.lstrip("/"), root):
            if (folder / names[0]).is_file():
                return MemoryGroup(counter=folder / names[0], limit_file=folder / names[1])
    return None
