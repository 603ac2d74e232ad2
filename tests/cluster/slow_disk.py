"""Holds the disk of a test host to a rate: its sshd, and all that it starts, in a control group of the machine."""

import os
from pathlib import Path

from tests.cluster.engine import CGROUP_ROOT
from tests.cluster.host import ClusterHost

CGROUPS = Path("/sys/fs/cgroup")


def hold_disk(host: ClusterHost, rate: int) -> None:
    """Hold what the host reads and writes past the page cache to `rate` bytes a second each, from its next login on.

    The groups of a bed are removed with it.

    Raises:
        OSError: the machine's kernel has no such limit.
    """
    disk = _disk_of(host.folder)
    first = CGROUPS / "blkio"
    group = (first if first.is_dir() else CGROUPS) / CGROUP_ROOT / host._network.bed / f"{host.name}-disk"
    group.mkdir(parents=True, exist_ok=True)
    if first.is_dir():
        for kind in ("read", "write"):
            (group / f"blkio.throttle.{kind}_bps_device").write_text(f"{disk} {rate}")
    else:
        for parent in (CGROUPS, CGROUPS / CGROUP_ROOT, group.parent):
            (parent / "cgroup.subtree_control").write_text("+io")
        (group / "io.max").write_text(f"{disk} rbps={rate} wbps={rate}")
    for pid in host.pids("sshd"):
        (group / "cgroup.procs").write_text(str(pid))


def _disk_of(folder: Path) -> str:
    """Major and minor number of the whole disk that a folder is on."""
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    place = Path("/sys/dev/block") / number
    return (place.resolve().parent / "dev").read_text().strip() if (place / "partition").exists() else number
