"""Makes hosts' /sys and /proc as trees of files, and runs the script of health in them."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from run_benchmarks.inspection.health import judged, parsed
from run_benchmarks.inspection.health_script import health_script
from vendors.health import HostHealth

POSIX = ("awk", "cat", "date", "grep", "ls", "printf", "sed", "sh", "sort", "tail", "timeout")


def tree(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def host_files(
    width: int = 16, state: str = "4: ACTIVE", keys: str = "0xffff", firmware: str = "28.43"
) -> dict[str, str]:
    """What a host with one accelerator, one NIC on InfiniBand and pass-through has in /sys and /proc."""
    gpu, port = "sys/bus/pci/devices/0000:3b:00.0", "sys/class/infiniband/mlx5_0/ports/1"
    return {
        f"{gpu}/class": "0x030200\n", f"{gpu}/vendor": "0x10de\n", f"{gpu}/device": "0x2330\n",
        f"{gpu}/current_link_width": f"{width}\n", f"{gpu}/max_link_width": "16\n",
        "sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
        f"{port}/state": f"{state}\n", f"{port}/rate": "400 Gb/sec (4X NDR)\n",
        f"{port}/pkeys/0": f"{keys}\n", f"{port}/pkeys/1": "0x0000\n",
        "sys/class/infiniband/mlx5_0/fw_ver": f"{firmware}\n", "sys/module/nvidia/version": "570.124.06\n",
        "sys/kernel/iommu_groups/1/type": "identity\n", "proc/sys/kernel/osrelease": "6.8.0-generic\n",
        "proc/meminfo": "MemTotal:  1024 kB\nHugePages_Total:       8\n",
        "sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
        "proc/kallsyms": "0000 T ib_umem_dmabuf_get\t[ib_uverbs]\n",
        "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06\n",
    }  # fmt: skip


def looked(
    root: Path,
    log: str | None = "",
    *folders: str,
    names: Sequence[str] = (),
    peers: Sequence[str] = (),
    programs: Mapping[str, str] | None = None,
    alone: bool = False,
) -> HostHealth:
    """The script's answer in that tree; `log`: what dmesg prints, None if it may not be read.

    `programs`: what others of the host's programs do, in shell; `alone`: it has but these and POSIX's.
    """
    tools = root / "tools"
    tools.mkdir(exist_ok=True)
    healthy = {
        "nvidia-smi": "case $* in *query-gpu=index*)"
        " echo '0, Enabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, 0' ;;"
        " *vbios*) echo 'NVIDIA H100 80GB HBM3, 96.00.30.00.01' ;; esac"
    }
    for name, text in (healthy | dict(programs or {})).items():
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    for name in ("dmesg", "journalctl", "timedatectl", "chronyc"):
        if name in (programs or {}):
            continue
        text = "exit 1" if name != "dmesg" or log is None else f"cat <<'END'\n[    0.0] Linux version 6.8\n{log}END"
        (tools / name).write_text(f"#!/bin/sh\n{text}\n")
        (tools / name).chmod(0o755)
    for name in POSIX if alone else ():
        (tools / name).symlink_to(str(shutil.which(name)))
    argv = ["sh", "-c", health_script(), "sh", str(root), *folders, "--", *names, "--", *peers]
    env = {"PATH": str(tools) if alone else f"{tools}:/usr/bin:/bin:/usr/sbin:/sbin"}
    return parsed(subprocess.run(argv, capture_output=True, text=True, check=True, env=env).stdout)


def said(healths: Mapping[str, HostHealth]) -> dict[tuple[str, str, str], str]:
    """By host, subject and what was found, the severity."""
    return {(host, subject, found): severity for host, (subject, found, _, _, severity) in judged(healths)}
