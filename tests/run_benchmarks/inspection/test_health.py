"""Health of hosts: the script on made-up sysfs trees and kernel logs, and what is said of a host beside the others."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from run_benchmarks.commands.check_view import not_seen, show_reports
from run_benchmarks.inspection import health
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.health import examine_health, judged, parsed, peers_of
from run_benchmarks.inspection.health_script import health_script
from vendors.health import HostHealth

# Lines as the drivers write them: NVIDIA, "XID Errors"; Linux, drivers/edac, fs/ext4, block.
LOG = """\
[   12.5] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06
[ 1042.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 1043.1] NVRM: Xid (PCI:0000:86:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault
[ 1044.1] NVRM: Xid (PCI:0000:86:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault
[ 1050.0] I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
"""


POSIX = ("awk", "cat", "date", "grep", "ls", "printf", "sed", "sh", "sort", "tail", "timeout")
# The size that ping was asked for, among its words.
SIZE = "while [ $1 != -s ]; do shift; done; size=$2"
# As `nvidia-smi nvlink -s` prints it.
NVLINKS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5f)
\t Link 0: 26.562 GB/s
\t Link 1: <inactive>
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-6a)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
GPU 2: NVIDIA H100 80GB HBM3 (UUID: GPU-7b)
\t Link 0: <inactive>
\t Link 1: <inactive>
GPU 3: NVIDIA H100 80GB HBM3 (UUID: GPU-8c)
GPU 4: NVIDIA H100 80GB HBM3 (UUID: GPU-9d)
\t Link 0: 26.562 GB/s
\t Link 1: 26.562 GB/s
"""
# As `nvidia-smi nvlink -e` prints it; a few CRC errors are usual, what is sent again is not.
NVLINK_ERRORS = """\
GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5f)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 3
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-6a)
\t Link 0: Replay Errors: 4
\t Link 0: Recovery Errors: 0
\t Link 0: CRC Errors: 0
\t Link 1: Replay Errors: 0
\t Link 1: Recovery Errors: 1
\t Link 1: CRC Errors: 0
"""


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


def test_a_healthy_host_has_no_finding_but_what_could_not_be_looked_at(tmp_path: Path) -> None:
    found = said({"n0": looked(tree(tmp_path, host_files()), "", "/")})
    ours = {key: severity for key, severity in found.items() if key[1] not in ("ulimit", "file system")}
    assert ours == {("n0", "clock synchronisation", "neither timedatectl nor chronyc answers"): "not seen"}


def test_what_cannot_be_read_passes_nothing(tmp_path: Path) -> None:
    found = said({"n0": looked(tree(tmp_path, host_files()), None)})
    (severity,) = [
        value for key, value in found.items() if key[1] == "kernel log" and key[2].startswith("no permission")
    ]
    assert severity == "blind"
    assert ("n0", "health", "not looked at to the end") in said({"n0": parsed("log\tread\n")})


def test_a_kernel_log_that_has_lost_its_beginning_is_read_from_the_journal_or_not_all_seen(tmp_path: Path) -> None:
    root = tree(tmp_path, host_files())
    late = {"dmesg": f"cat <<'END'\n[864000.5] eth0: link up\n{LOG}END"}
    xids = ("n0", "XID", "79 of 0000:3b:00, 1 times since the boot")
    lost = ("n0", "kernel log", "its beginning is overwritten, and there is no journal")
    found = said({"n0": looked(root, programs=late)})
    assert found[xids] == "failure" and found[lost] == "not seen"
    whole = "cat <<'END'\nLinux version 6.8\nNVRM: Xid (PCI:0000:5e:00): 48, DBE\nEND"
    found = said({"n0": looked(root, programs=late | {"journalctl": whole})})
    assert found["n0", "XID", "48 of 0000:5e:00, 1 times since the boot"] == "failure" and lost not in found
    assert lost not in said({"n0": looked(root, LOG)})


def test_a_journal_that_is_not_whole_does_not_hide_what_dmesg_has(tmp_path: Path) -> None:
    """One that lost its beginning, too, and one that ended before the newest lines; what both have counts once."""
    root = tree(tmp_path, host_files())
    late = {"dmesg": f"cat <<'END'\n[864000.5] eth0: link up\n{LOG}END"}
    only = said({"n0": looked(root, programs=late)})
    lost = ("n0", "kernel log", "its beginning is overwritten, in the journal, too")
    both = "\n".join(line.partition("] ")[2] for line in LOG.splitlines())
    for begin, is_lost in (("usb 1-1: new device", True), ("Linux version 6.8.0", False)):
        for more in ("", f"\n{both}"):
            journal = f"cat <<'END'\n{begin}\nNVRM: Xid (PCI:0000:5e:00): 48, DBE{more}\nEND"
            found = said({"n0": looked(root, programs=late | {"journalctl": journal})})
            assert found["n0", "XID", "48 of 0000:5e:00, 1 times since the boot"] == "failure"
            assert {key for key in only if key[1] == "XID"} < found.keys() and (lost in found) is is_lost


def test_what_no_tool_tells_is_not_passed(tmp_path: Path) -> None:
    files = host_files() | {"sys/class/net/eth9/mtu": "9000\n"}
    programs = {"findmnt": "exit 1", "ping": "exit 0", "ip": "exit 2", "getent": "exit 2"}
    programs["nvidia-smi"] = (
        "case $* in *query-gpu*) echo '0, Enabled, 7, 7, 1, 1, Not Active, Not Active, 0' ;; *) exit 2 ;; esac"
    )
    found = said({"n0": looked(tree(tmp_path, files), "", str(tmp_path), peers=["n7"], programs=programs)})
    assert {(key[1], key[2]) for key, severity in found.items() if severity in ("not seen", "blind")} == {
        (f"mount options of {tmp_path}", "no findmnt, or no answer"),
        ("largest frame", "no address of n7, or no route to it"),
        ("remapped rows of the GPUs", "nvidia-smi does not tell"),
        ("NVLinks", "nvidia-smi nvlink -s does not answer"),
        ("errors of NVLinks", "nvidia-smi nvlink -e does not answer"),
        ("VBIOS of the GPUs", "nvidia-smi does not tell"),
        ("clock synchronisation", "neither timedatectl nor chronyc answers"),
    }
    assert {key[1] for key, severity in found.items() if severity == "blind"} == {
        "remapped rows of the GPUs",
        "NVLinks",
    }


def test_xids_and_hardware_errors_of_the_kernel_log_are_told(tmp_path: Path) -> None:
    lines = LOG + "[ 2000.1] EXT4-fs (nvme0n1p2): Remounting filesystem read-only\n"
    found = said({"n0": looked(tree(tmp_path, host_files()), lines)})
    assert found["n0", "XID", "79 of 0000:3b:00, 1 times since the boot"] == "failure"
    assert found["n0", "XID", "31 of 0000:86:00, 2 times since the boot"] == "warning", "a program's own mistake"
    ((line, severity),) = [(key[2], value) for key, value in found.items() if key[1] == "kernel log"]
    assert severity == "failure" and line == "[ 2000.1] EXT4-fs (nvme0n1p2): Remounting filesystem read-only"


def test_lines_alike_hide_no_other_line_of_the_kernel_log(tmp_path: Path) -> None:
    """Dozens by one crashed program, and by one bad sector; kinds that are left out are said."""
    lines = f"{LOG}[ 2000.1] EXT4-fs (nvme0n1p2): Remounting filesystem read-only\n"
    for n in range(70):
        lines += (
            f"[ {3000 + n}.5] NVRM: Xid (PCI:0000:86:00): 13, pid={n}, name=a,b, Graphics SM\tException on GPC {n}\n"
        )
        lines += f"[ {3000 + n}.6] Buffer I/O error on dev sda1, logical block {8 * n}, async page read\n"
    root = tree(tmp_path, host_files())
    found = said({"n0": looked(root, lines)})
    ours = {key[2]: severity for key, severity in found.items() if key[1] in ("XID", "kernel log")}
    read_only, block = lines.splitlines()[5], lines.splitlines()[7]
    assert ours == {
        "79 of 0000:3b:00, 1 times since the boot": "failure",
        "31 of 0000:86:00, 2 times since the boot": "warning",
        "13 of 0000:86:00, 70 times since the boot": "warning",
        f"{block}, 70 times; {read_only}": "failure",
    }
    disks = "".join(f"[ 9.{n}] I/O error, dev sd_{n % 80}x, sector {n}\n" for n in range(160))
    found = said({"n0": looked(root, f"{disks}{LOG}")})
    assert found["n0", "kernel log", "32 lines more, of other kinds than the first 64"] == "not seen"
    assert found["n0", "XID", "79 of 0000:3b:00, 1 times since the boot"] == "failure"


def test_many_kinds_of_lines_hide_no_grave_one_and_no_second_cpu(tmp_path: Path) -> None:
    """70 disks' errors, then what lasts; with the caller that a kernel may write, which makes no kinds."""
    lines = "".join(f"[ 9.{n}][  T{n}] I/O error, dev sd_{n}x, sector {n}\n" for n in range(70))
    grave = ["EXT4-fs (nvme0n1p2): Remounting filesystem read-only"]
    grave += [f"mce: [Hardware Error]: CPU {cpu}: Machine Check: 0 Bank {cpu}: b2" for cpu in (3, 9)]
    lines += "".join(f"[ 10.{n}][  T{n}] {grave[n % 3]}\n" for n in range(6))
    found = said({"n0": looked(tree(tmp_path, host_files()), lines)})
    (told,) = [key[2] for key, severity in found.items() if key[1] == "kernel log" and severity == "failure"]
    assert all(f"] {line}, 2 times" in told for line in grave) and told.endswith("; 64 more")
    assert found["n0", "kernel log", "6 lines more, of other kinds than the first 64"] == "not seen"


def test_what_differs_from_most_hosts_is_named_and_nobody_else(tmp_path: Path) -> None:
    trees = {f"n{n}": host_files() for n in range(4)}
    trees["n1"] = host_files(width=8)
    trees["n2"] = host_files(state="1: DOWN", firmware="28.39")
    trees["n3"] = host_files(keys="0x7fff") | {"sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never\n"}
    found = said({name: looked(tree(tmp_path / name, files)) for name, files in trees.items()})
    odd = {key: severity for key, severity in found.items() if key[1] not in ("ulimit", "clock synchronisation")}
    assert odd == {
        ("n1", "PCIe 0000:3b:00.0", "x8 of x16"): "failure",
        ("n2", "RDMA mlx5_0/1", "state DOWN"): "failure",
        ("n2", "version of mlx5_0", "28.39"): "warning",
        ("n3", "RDMA mlx5_0/1", "P_Keys 0x7fff"): "warning",
        ("n3", "transparent huge pages", "always"): "warning",
    }


def test_a_host_that_lost_a_port_is_bad_and_one_without_rdma_or_with_other_names_is_another_kind() -> None:
    whole = "".join(f"rdma\tmlx5_{n}/1\tACTIVE\t400\t0xffff\n" for n in range(4))
    kinds = {
        "lost": whole.replace("rdma\tmlx5_3/1\tACTIVE\t400\t0xffff\n", ""),
        "half": "".join(whole.splitlines(True)[:2]),
        "bond": "".join(whole.splitlines(True)[:3]) + "rdma\tmlx5_bond_0/1\tACTIVE\t400\t0xffff\n",
        "no storage": whole,
        "none": "",
        "renamed": whole.replace("mlx5_", "rocep"),
    }
    for kind, text in kinds.items():
        storage = "rdma\tmlx5_4/1\tACTIVE\t200\t0xffff\n" if kind == "no storage" else ""
        texts = {f"n{n}": whole + storage for n in range(3)} | {"odd": text}
        found = said({name: parsed(f"{each}end\tok\n") for name, each in texts.items()})
        states = {how for (host, _, was), how in found.items() if host == "odd" and was == "state none"}
        assert states == {"failure" if kind == "lost" else "warning"}, kind
        assert {host for host, *_ in found} == {"odd"}
        assert {was for _, _, was in found} == {"state none"}, "not its rate, too"


def test_a_narrow_slot_of_every_host_is_no_failure(tmp_path: Path) -> None:
    healths = {f"n{n}": looked(tree(tmp_path / f"{n}", host_files(8, firmware=f"{n}"))) for n in range(2)}
    found = said(healths)
    assert found["n0", "PCIe 0000:3b:00.0", "x8 of x16"] == found["n1", "PCIe 0000:3b:00.0", "x8 of x16"] == "warning"


@pytest.mark.parametrize("count", [2, 4, 6])
def test_where_half_of_the_hosts_differ_it_is_said_and_nobody_fails(count: int, tmp_path: Path) -> None:
    kinds = [host_files(firmware="28.39"), host_files(state="1: DOWN", keys="0x7fff")]
    healths = {f"n{n}": looked(tree(tmp_path / f"{n}", kinds[n % 2])) for n in range(count)}
    found = [each for each in judged(healths) if each[1][0].startswith(("version", "RDMA"))]
    assert {(host, subject, was) for host, (subject, was, *_) in found} == {
        (f"n{n}", *said)
        for n in range(1, count, 2)
        for said in [
            ("version of mlx5_0", "28.43"),
            ("RDMA mlx5_0/1", "state DOWN"),
            ("RDMA mlx5_0/1", "P_Keys 0x7fff"),
        ]
    }
    assert {severity for _, (*_, severity) in found} == {"warning"}
    (firmware,) = {expected for _, (subject, _, expected, *_) in found if subject.startswith("version")}
    assert firmware == f"the same everywhere: {count // 2} of {count} have 28.39"


def test_a_card_with_more_lanes_than_the_port_above_it_is_no_finding(tmp_path: Path) -> None:
    root = tree(tmp_path, host_files(8))
    split(root)
    assert not any(key[1].startswith("PCIe") for key in said({"n0": looked(root)}))


@pytest.mark.parametrize(("width", "is_function"), [(0, False), (255, False), (0, True)])
def test_a_card_whose_width_the_kernel_does_not_tell_is_not_passed(
    width: int, is_function: bool, tmp_path: Path
) -> None:
    """A virtual function has no link of its own."""
    of_parent = {"sys/bus/pci/devices/0000:3b:00.0/physfn/class": "0x030200\n"} if is_function else {}
    found = said({"n0": looked(tree(tmp_path, host_files(width) | of_parent))})
    told = ("n0", "PCIe links", "the kernel does not tell the width of 0000:3b:00.0")
    assert {key: how for key, how in found.items() if "PCIe" in key[1]} == ({} if is_function else {told: "not seen"})


def split(root: Path) -> None:
    """Hang the GPU below a port of eight lanes, as a BIOS does that splits the slot's sixteen."""
    device, port = root / "sys/bus/pci/devices/0000:3b:00.0", root / "sys/devices/0000:3a:01.0"
    tree(port, {"max_link_width": "8\n"})
    device.rename(port / device.name)
    device.symlink_to(port / device.name)


def test_a_port_split_on_one_host_is_a_failure_and_one_that_is_so_everywhere_is_not(tmp_path: Path) -> None:
    split(tree(tmp_path / "odd", host_files(8)))
    for hosts, severity in ((2, "failure"), (1, "warning")):
        healths = {f"n{n}": looked(tree(tmp_path / f"{n}", host_files())) for n in range(hosts)}
        found = {key: how for key, how in said(healths | {"odd": looked(tmp_path / "odd")}).items() if "PCIe" in key[1]}
        assert found == {("odd", "PCIe 0000:3b:00.0", "x8 of x16"): severity}
    usual = [("3b", 16, 16), ("5e", 16, 16), ("9a", 8, 8)]
    assert widths([usual] * 4) == {}, "a board that gives one of three the half"
    assert widths([usual] * 3 + [[("3b", 8, 8), ("5f", 16, 16), ("9b", 8, 8)]]) == {"n3 9b": "failure"}
    other_board = [("3b", 8, 8), ("5f", 16, 16), ("9b", 8, 8)]
    assert widths([usual] * 3 + [other_board] * 2) == {"n3 9b": "warning", "n4 9b": "warning"}, "perhaps another board"
    slow = [("3b", 16, 16), ("5e", 16, 4), ("9a", 8, 8)]
    assert widths([usual] * 3 + [[(bus, now, most) for bus, most, now in slow]]) == {"n3 5e": "failure"}
    assert widths([usual] * 3 + [usual[1:]]) == {"n3 9a": "warning"}, "no other host has as many"
    wide, narrow = [("3b", 16, 16)], [("3b", 8, 16)]
    assert widths([wide, narrow]) == {"n1 3b": "warning"} and widths([narrow, wide]) == {"n0 3b": "warning"}
    assert widths([narrow, wide, wide]) == {"n0 3b": "failure"}


def widths(hosts: Sequence[Sequence[tuple[str, int, int]]]) -> dict[str, str]:
    """By host and bus of a device the severity of what is said of its lanes: what it has, and can have."""
    lines = [[f"pci\t{bus} 0x10de:0x2330 {now} {most}\n" for bus, now, most in each] for each in hosts]
    found = said({f"n{number}": parsed("".join(each) + "end\tok\n") for number, each in enumerate(lines)})
    return {f"{host} {subject.removeprefix('PCIe ')}": severity for (host, subject, _), severity in found.items()}


def test_a_translating_iommu_and_a_missing_fabric_manager_are_told(tmp_path: Path) -> None:
    files = host_files() | {"sys/kernel/iommu_groups/2/type": "DMA-FQ\n"}
    found = said({"n0": looked(tree(tmp_path, files))})
    assert found["n0", "IOMMU", "translates for 1 groups of devices"] == "warning"
    assert said({"n0": parsed("fabric\tdown\nend\tok\n")}) == {("n0", "fabric manager", "does not run"): "failure"}


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("space\t/data\t1000\t5", "failure"),
        ("space\t/data\t1000\t40", "warning"),
        ("inodes\t/data\t1000\t0", "failure"),
        ("readonly\t/data", "failure"),
        ("frame\tn1\teth0\t9000\tlost\t1500", "failure"),
        ("gpu\t0, Disabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, 0", "warning"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, [N/A]", "not seen"),
        ("gpu\t0, [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]", "not seen"),
        ("rows\t00000000:3B:00.0, [N/A], [N/A]", "not seen"),
        ("rows\t00000000:3B:00.0, [Unknown Error], [Unknown Error]", "blind"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, [GPU requires reset]", "blind"),
        ("gpu\t0, Enabled, 500.00, 700.00, 1980, 1980, Not Active, Not Active, 0", "warning"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1200, 1980, Not Active, Not Active, 0", "warning"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1980, 1980, Active, Not Active, 0", "failure"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, 2", "warning"),
        ("gpu\t0, Enabled, 700.00, 700.00, 1980, 1980, Not Active, Active, 0", "warning"),
        ("own_name\tn0\t", "warning"),
        ("cpu\t1200000 3500000", "warning"),
        ("rows\t00000000:3B:00.0, Yes, No", "warning"),
        ("rows\t00000000:3B:00.0, Yes, Yes", "failure"),
        ("nvlinks\t3\t17\t1", "failure"),
        ("nvlinks\t2\t18\t0\nnvlinks\t3\t0\t0", "not seen"),
        ("nvlinks\t1\t18\t0\nnvlinks\t2\t18\t0\nnvlinks\t3\t0\t0", "blind"),
        ("nvlink_errors\t3\t2", "warning"),
        ("rdma_memory\tnvidia_peermem", "warning"),
        ("rdma_memory\tkernel", "warning"),
        ("rdma_memory\tdriver", "warning"),
        ("synced\tno", "warning"),
        ("files\t1024", "warning"),
        ("ascend\t0\talarm\tAlarm: 80E01801", "failure"),
        ("ascend\t0\talarm\tWarning: 80E01801", "warning"),
        ("ascend\t0\talarm\tUNKNOWN", "warning"),
    ],
)
def test_a_host_is_judged_by_each_line(line: str, severity: str) -> None:
    (found,) = said({"n0": parsed(f"{line}\nend\tok\n")}).values()
    assert found == severity


def test_gpus_without_nvlinks_are_bad_only_where_most_have_some() -> None:
    """Bridges join PCIe cards by twos; on a board of NVSwitches each GPU has links."""
    for idle, bad in ((1, 1), (2, 0)):
        lines = [f"nvlinks\t{gpu}\t{0 if gpu < idle else 12}\t{12 if gpu < idle else 0}\n" for gpu in range(4)]
        assert list(said({"n0": parsed("".join(lines) + "end\tok\n")}).values()) == ["failure"] * bad


@pytest.mark.parametrize("line", ["cpu\t1e3 2e6", "ascend\t0\talarm\t" + 999 * "x"])
def test_what_a_host_makes_up_ends_no_check(line: str) -> None:
    ((key, severity),) = said({"n0": parsed(f"{line}\nend\tok\n")}).items()
    assert severity in ("warning", "failure") and len(key[2]) < 200


@pytest.mark.parametrize(
    "line",
    [
        "gpu\t0, Enabled",
        "rows\tx",
        "nvlinks\t0\t0\t18",
        "nvlink_errors\t0\tx",
        "nvlink_errors\t0\t0",
        "rdma_memory\tdma_buf",
        "pcie_speed\tx",
        "pcie_speed\t1 2 Unknown 32.0",
        "pcie_speed\t1 2 16.0 Unknown x",
        f"log_line\tx\t{LOG.splitlines()[1]}",
        "cpu\t 3500000",
        "cpu\tx y",
        "cpu\t1 inf",
        "cpu\t-inf 5",
        "amd\t0\tpower\t1 inf",
        f"files\t{5000 * '9'}",
        f"space\t/\t1\t{999 * '9'}",
        f"space\t/\t{5000 * '9'}\t0",
        f"nvlinks\t0\t{5000 * '9'}\t1",
        f"nvlink_errors\t0\t{5000 * '9'}",
        f"iommu\t{5000 * '9'}",
        f"gpu\t0, Enabled, 7, 7, 1, 1, Not Active, Not Active, {5000 * '9'}",
        "own_name\tn0\t10.0.0.1",
        "resolved\tn1\t",
        "resolved\tn1\tx,,y",
        "amd\t0\tx\ty",
        "amd\t0\tpages\tx y",
        "amd\t0\tpower\t",
        "ascend\t0\tmemory_errors\t0",
        "ascend\t0\tlink\tUP",
        "space\t/\tx\ty",
        "space\t/",
        "pci\t1 2 3",
        "rdma\ta",
        "frame\t",
        "files\tunlimited",
        "space\t/\t0\t0",
        "\t",
    ],
)
def test_what_a_host_makes_up_is_passed_over(line: str) -> None:
    assert said({"n0": parsed(f"{line}\nend\tok\n")}) == {}


def test_a_root_that_is_an_image_is_neither_full_nor_damaged_and_a_data_path_that_is_read_only_is(
    tmp_path: Path,
) -> None:
    programs = {"findmnt": "echo ro,relatime", "df": "printf 'head\\nimage 100 100 0 100%% /\\n'"}
    health = looked(tree(tmp_path, host_files()), "", "/", str(tmp_path), programs=programs)
    assert health.lines.get("readonly") == [str(tmp_path)]
    assert "space" not in health.lines and "inodes" not in health.lines
    writable = looked(
        tree(tmp_path, host_files()), "", "/", programs=programs | {"findmnt": "echo rw,errors=remount-ro"}
    )
    assert writable.lines.get("space") == ["/\t100\t0"] and "readonly" not in writable.lines


@pytest.mark.parametrize(
    ("locked", "hosts", "severity"), [(1, 4, "failure"), (1, 2, "warning"), (2, 4, "warning"), (4, 4, ""), (1, 1, "")]
)
def test_a_folder_of_data_that_is_read_only_is_a_failure_where_most_hosts_can_write_and_none_where_nobody_can(
    locked: int, hosts: int, severity: str
) -> None:
    """The script is given all folders of data, also those of no case, and one that is full may still be read."""
    names = [f"n{n}" for n in range(hosts)]

    def answers(name: str, argv: Sequence[str]) -> SimpleNamespace:
        assert argv[4:12] == ["", "/", "/tmp", "/var", "/a", "/a", "/data", "/more"]
        lines = "readonly\t/data\n" if name in names[:locked] else "space\t/data\t100\t0\n"
        return SimpleNamespace(stdout=f"{lines}end\tok\n")

    cases = [SimpleNamespace(data_dir_host=folder) for folder in ("/data", None)]
    plan: Any = SimpleNamespace(vendor="cpu", code_dir_host="/a/b", log_root_host="/a/c", cases=cases)
    made: Any = {
        name: SimpleNamespace(name=name, address=name, run=lambda argv, name=name, **_: answers(name, argv))
        for name in names
    }
    reports = {name: HostReport(host=name) for name in names}
    examine_health(made, reports, plan, ["/more"])
    told = [(each.found, each.severity) for report in reports.values() for each in report.findings]
    read_only = [how for what, how in told if "read-only" in what]
    assert read_only == ([severity] * locked if severity else [])
    assert [how for what, how in told if "is used" in what] == ["warning"] * (hosts - locked)


CHRONYC = "echo 'Reference ID : A9FEA97B (169.254.169.123)'; echo 'Leap status     : "


@pytest.mark.parametrize(
    ("programs", "expected"),
    [
        ({"chronyc": f"{CHRONYC}Normal'", "timedatectl": "echo no"}, []),
        ({"chronyc": f"{CHRONYC}Insert second'"}, []),
        ({"chronyc": f"{CHRONYC}Not synchronised'"}, ["is not synchronised"]),
        ({"chronyc": "echo '506 Cannot talk to daemon'; exit 1", "timedatectl": "echo yes"}, []),
        ({"timedatectl": "echo no"}, ["is not synchronised"]),
    ],
)
def test_chronyd_knows_better_than_the_kernels_mark_whether_the_clock_is_synchronised(
    programs: Mapping[str, str], expected: list[str], tmp_path: Path
) -> None:
    found = said({"n0": looked(tree(tmp_path, host_files()), programs=programs)})
    assert [key[2] for key in found if key[1].startswith("clock")] == expected


def test_a_host_without_tools_or_folders_passes_nothing_and_accuses_nobody(tmp_path: Path) -> None:
    files = host_files() | {"dev/nvidia-nvswitchctl": "", "proc/kallsyms": "", "proc/sys/kernel/hostname": "n0\n"}
    root = tree(tmp_path, files)
    folders = (str(tmp_path / "none/of/them"), str(tmp_path))
    found = said({"n0": looked(root, "", *folders, names=["n1"], peers=["n1"], programs={"df": ""}, alone=True)})
    assert {(key[1], key[2]) for key, severity in found.items() if severity == "not seen"} >= {
        ("fabric manager", "no pgrep"),
        ("RDMA to GPU memory", "no /proc/kallsyms"),
        ("names", "no getent"),
        ("largest frame", "no ping or no ip command"),
        (f"space of {tmp_path}", "no answer of df"),
    }
    assert "failure" not in found.values()
    assert ("n0", "PCIe links", "no /sys/bus/pci") in said({"n0": looked(tree(tmp_path / "no", {"x": ""}))})


def test_a_host_resolves_its_own_name_and_those_of_others_as_they_do(tmp_path: Path) -> None:
    def answers(own: str, other: str) -> dict[str, str]:
        lines = {"n0": own, "n1": other, "n2": "10.0.0.2 10.0.0.3"}
        cases = (
            f"{name}) printf '%s STREAM x\\n%s DGRAM\\n' {' '.join(a + ' ' + a for a in told.split())} ;;"
            for name, told in lines.items()
            if told
        )
        return {"getent": f"case $2 in {' '.join(cases)} *) exit 2 ;; esac"}

    root = tree(tmp_path, host_files() | {"proc/sys/kernel/hostname": "n0\n"})
    health = looked(root, names=["n1", "n2"], programs=answers("127.0.1.1", "10.0.0.1"))
    assert list(health.of("own_name", 2)) == [["n0", "127.0.1.1"]]
    assert sorted(health.lines["resolved"]) == ["n1\t10.0.0.1", "n2\t10.0.0.2,10.0.0.3"]
    mute = looked(root, names=["n1", "n2"], programs=answers("", ""))
    found = {key: how for key, how in said({"n0": mute, "n3": health}).items() if key[1] in ("own name", "names")}
    assert found == {
        ("n0", "own name", "n0 does not resolve"): "warning",
        ("n0", "names", "n1 do not resolve"): "warning",
    }


def test_firmware_of_the_same_parts_is_compared_and_a_part_that_others_lack_is_not(tmp_path: Path) -> None:
    disk, board = "sys/class/nvme/nvme0", "sys/class/dmi/id"

    def files(revision: str, bios: str) -> dict[str, str]:
        own = {f"{disk}/model": "SAMSUNG MZQL2   \n", f"{disk}/firmware_rev": f"{revision}  \n"}
        return host_files() | own | {f"{board}/product_name": "G593\n", f"{board}/bios_version": f"{bios}\n"}

    trees = [files("GDC5", "F31"), files("GDC5", "F31"), files("GDC4", "F31"), host_files()]
    healths = {f"n{n}": looked(tree(tmp_path / f"{n}", each)) for n, each in enumerate(trees)}
    found = {key: how for key, how in said(healths).items() if key[1].startswith("version")}
    assert found == {("n2", "version of SAMSUNG MZQL2", "GDC4"): "warning"}


@pytest.mark.parametrize(
    ("ping", "expected"),
    [
        ("exit 0", {"frame": ["10.9.0.2\teth9\t9000\tpasses\t9000"]}),
        (f"{SIZE}; [ $size -le 1472 ]", {"frame": ["10.9.0.2\teth9\t9000\tlost\t1500"]}),
        (f"{SIZE}; [ $size -le 100 ]", {"frame": ["10.9.0.2\teth9\t9000\tlost\t128"]}),
        ("exit 1", {"cannot": ["largest frame\t10.9.0.2 answers no ping"]}),
    ],
    ids=["passes", "smaller ones pass", "only the smallest pass", "no answer"],
)
def test_the_largest_frame_is_sent_to_the_peer(ping: str, expected: dict[str, list[str]], tmp_path: Path) -> None:
    programs = {"ping": ping, "ip": "echo '10.9.0.2 dev eth9 src 10.9.0.1 uid 0'", "getent": "echo '10.9.0.2 STREAM'"}
    files = host_files() | {"sys/class/net/eth9/mtu": "9000\n"}
    health = looked(tree(tmp_path, files), "", peers=["10.9.0.2"], programs=programs)
    found = {key: [line for line in health.lines.get(key, ()) if "10.9.0.2" in line] for key in ("frame", "cannot")}
    assert {key: lines for key, lines in found.items() if lines} == expected


def test_the_state_of_gpus_is_read_from_the_drivers_tool_and_its_absence_passes_nothing(tmp_path: Path) -> None:
    state = "0, Disabled, 700.00, 700.00, 1980, 1980, Not Active, Not Active, 0"
    state += "\\n1, Enabled, 700.00, 700.00, 1980, 1980, Active, Not Active, 0"
    tool = f"""case "$*" in
    *--query-gpu=index,persistence_mode,power.limit,*) printf '{state}\\n' ;;
    *--query-remapped-rows=*) printf '00000000:3B:00.0, No, No\\n00000000:86:00.0, Yes, No\\n' ;;
    'nvlink -s') cat <<'END'\n{NVLINKS}END\n;;
    *vbios*) echo 'H100, 96.00' ;;
    'nvlink -e') cat <<'END'\n{NVLINK_ERRORS}END\n;; esac"""
    health = looked(tree(tmp_path, host_files()), programs={"nvidia-smi": tool})
    found = {(key[1], key[2]): severity for key, severity in said({"n0": health}).items() if "GPU" in key[1]}
    assert found == {
        ("GPU 0", "persistence mode is off"): "warning",
        ("GPU 1", "the hardware holds its clocks down: heat, power brake or supply"): "failure",
        ("GPU 00000000:86:00.0", "a row of its memory waits to be remapped"): "warning",
        ("GPU 0", "1 of 2 NVLinks are inactive"): "failure",
        ("GPU 2", "2 of 2 NVLinks are inactive"): "failure",
        ("GPU 3", "no link of it is shown"): "blind",
        ("GPU 1", "5 replays and recoveries of its NVLinks since the driver was loaded"): "warning",
    }
    bare = looked(tmp_path, programs={"nvidia-smi": tool.replace("Link ", "Nothing ")})
    others = said({"n0": health, "n1": health, "n2": bare})
    assert others["n2", "GPUs with NVLinks", "0"] == "warning", "none of its devices shows what those of others do"
    without = said({"n0": looked(tmp_path, programs={"nvidia-smi": "exit 9"})})
    assert without["n0", "NVLinks", "nvidia-smi nvlink -s does not answer"] == "blind"
    assert without["n0", "state of the GPUs", "nvidia-smi is not installed, or does not answer"] == "blind"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "dma_buf"),
        ({"sys/module/nvidia_peermem/version": "1"}, "nvidia_peermem"),
        ({"proc/kallsyms": "0000 T ib_umem_get\t[ib_uverbs]\n"}, "kernel"),
        ({"proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.127.05\n"}, "driver"),
    ],
)
def test_gpudirect_by_dma_buf_is_told_and_what_a_host_lacks_for_it(
    files: dict[str, str], expected: str, tmp_path: Path
) -> None:
    assert looked(tree(tmp_path, host_files() | files)).lines["rdma_memory"] == [expected]


def nics(root: Path, *speeds: float) -> Path:
    """A host with a NIC at each speed in GT/s, of the 32 GT/s that it can be."""
    for number, speed in enumerate(speeds):
        nic = root / f"sys/bus/pci/devices/0000:8{number}:00.0"
        found = {"class": "0x020700", "vendor": "0x15b3", "device": "0x1021", "max_link_speed": "32.0 GT/s PCIe"}
        tree(nic, {key: f"{value}\n" for key, value in (found | {"current_link_speed": f"{speed} GT/s PCIe"}).items()})
    return tree(root, host_files())


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ([[32.0]] * 3 + [[16.0]], {"n3 80": "failure"}),
        ([[16.0]] + [[32.0]] * 3, {"n0 80": "failure"}),
        ([[32.0, 32.0]] * 3 + [[32.0, 16.0]], {"n3 81": "failure"}),
        ([[16.0]], {"n0 80": "warning"}),
        ([[16.0]] * 4, {f"n{n} 80": "warning" for n in range(4)}),
        ([[16.0, 32.0]], {"n0 80": "warning"}),
        ([[16.0], [32.0]], {"n0 80": "warning"}),
        ([[32.0], [16.0]], {"n1 80": "warning"}),
    ],
)
def test_a_nic_slower_than_its_slot_can_be_is_told_and_fails_where_those_of_most_hosts_are_faster(
    hosts: Sequence[Sequence[float]], expected: dict[str, str], tmp_path: Path
) -> None:
    healths = {f"n{n}": looked(nics(tmp_path / f"{n}", *speeds)) for n, speeds in enumerate(hosts)}
    found = {key: severity for key, severity in said(healths).items() if key[1].startswith("PCIe")}
    assert {f"{host} {subject[10:12]}": severity for (host, subject, _), severity in found.items()} == expected
    assert {what for *_, what in found} == {"16 of 32 GT/s"}


def test_a_slower_nic_is_told_the_speed_that_most_have(tmp_path: Path) -> None:
    healths = {f"n{n}": looked(nics(tmp_path / f"{n}", speed)) for n, speed in enumerate([16.0, 16.0, 16.0, 8.0])}
    expected = {host: wanted for host, (subject, _, wanted, _, _) in judged(healths) if subject.startswith("PCIe")}
    slot = "32 GT/s, as it and its slot can"
    assert expected == {"n0": slot, "n1": slot, "n2": slot, "n3": "16 GT/s, as most of its kind"}


def test_a_nic_as_fast_as_the_port_above_it_is_no_finding(tmp_path: Path) -> None:
    root = nics(tmp_path, 16.0)
    device, port = root / "sys/bus/pci/devices/0000:80:00.0", root / "sys/devices/0000:7f:01.0"
    tree(port, {"max_link_speed": "16.0 GT/s PCIe\n"})
    device.rename(port / device.name)
    device.symlink_to(port / device.name)
    health = looked(root)
    assert health.lines["pcie_speed"] == ["0000:80:00.0 0x15b3:0x1021 16.0 32.0 16.0"]
    assert not any(key[1].startswith("PCIe") for key in said({"n0": health}))


def test_a_folder_that_is_not_made_yet_is_looked_at_where_it_will_be(tmp_path: Path) -> None:
    health = looked(tree(tmp_path, host_files()), "", str(tmp_path / "code/of/me"), str(tmp_path / "logs"), "none")
    assert [line.split("\t")[0] for line in health.lines["space"]] == [str(tmp_path), "/"]
    assert not any("such folder" in line or "space of" in line for line in health.lines.get("cannot", ()))


def test_a_tool_that_hangs_costs_a_minute_at_most_and_what_others_tell_is_kept(tmp_path: Path) -> None:
    """Each of its calls waits for as long as it may; the clock of this host is ahead by that."""
    clock = f"n=$(cat {tmp_path}/now 2>/dev/null || echo 0); echo $n"
    wait = f"echo $(($(cat {tmp_path}/now 2>/dev/null || echo 0) + $1)) >{tmp_path}/now; exit 124"
    programs = {"date": clock, "timeout": f'case $2 in nvidia-smi) {wait} ;; esac; shift; exec "$@"'}
    health = looked(tree(tmp_path, host_files()), "", programs=programs)
    assert health.is_whole and (tmp_path / "now").read_text() == "60\n"
    assert len([line for key in ("cannot", "blind") for line in health.lines[key] if "nvidia-smi" in line]) == 6


def test_each_host_sends_to_all_others_of_a_few_and_of_many_some_of_every_two_racks_meet() -> None:
    few, most = peers_of(list("abcd")), peers_of([f"n{n}" for n in range(33)])
    assert few[1] == ["c", "d", "a"] and peers_of(["a"]) == [[]]
    assert all(len({*own}) == 32 for own in most)
    hosts, of_a_rack = 1024, 8
    many = peers_of([str(n) for n in range(hosts)])
    assert all(str(place) not in own and len({*own}) == len(own) <= 32 for place, own in enumerate(many))
    assert many[-1][0] == "0", "the next one"
    met = {(place // of_a_rack, int(peer) // of_a_rack) for place, own in enumerate(many) for peer in own}
    racks = range(hosts // of_a_rack)
    assert [(a, b) for a in racks for b in racks if a < b and (a, b) not in met and (b, a) not in met] == []


@pytest.mark.parametrize(("count", "told"), [(33, ""), (100, "and 95 more: tried with 31 or more of 99 other hosts")])
def test_of_many_hosts_it_is_told_to_how_many_others_each_sent(count: int, told: str) -> None:
    sent: list[int] = []

    def looked_at(argv: Sequence[str], **_: object) -> SimpleNamespace:
        sent.append([*reversed(argv)].index("--"))
        return SimpleNamespace(stdout="end\tok\n")

    names = [f"n{n}" for n in range(count)]
    hosts: Any = {name: SimpleNamespace(name=name, address=name, run=looked_at) for name in names}
    plan: Any = SimpleNamespace(vendor="cpu", code_dir_host="/a/b", log_root_host="/a/c", cases=[])
    reports = {name: HostReport(host=name) for name in names}
    examine_health(hosts, reports, plan)
    said = [each for each in not_seen(reports) if each.startswith("largest frame, names of n0, n1, n2, n3, n4 ")]
    assert [each.partition("n4 ")[2] for each in said] == ([told] if told else [])
    assert (min(sent), max(sent)) == (31 if told else 32, 32)


def test_the_script_is_made_once_for_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def script() -> str:
        made.append("true")
        return made[-1]

    def silent(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(stdout="")

    monkeypatch.setattr(health, "health_script", script)
    names = ["n1", "n2", "n3"]
    hosts: Any = {name: SimpleNamespace(name=name, address=name, run=silent) for name in names}
    plan: Any = SimpleNamespace(vendor="cpu", code_dir_host="/a/b", log_root_host="/a/c", cases=[])
    examine_health(hosts, {name: HostReport(host=name) for name in names}, plan)
    assert made == ["true"]


def test_what_several_hosts_could_not_look_at_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    reports = {f"n{n}": HostReport(host=f"n{n}") for n in range(7)}
    for report in reports.values():
        report.add("kernel log", "no permission", "an answer", "give it", "not seen")
    show_reports(reports)
    printed = " ".join(capsys.readouterr().out.split())
    assert "Not looked at: kernel log of n0, n1, n2, n3, n4 and 2 more: no permission" in printed
    assert not any(report.failed for report in reports.values())


@pytest.mark.parametrize(
    ("vendor", "lines", "why"),
    [
        ("gaudi", "", "the check asks no tool of gaudi"),
        ("cpu", "", ""),
        ("nvidia", "gpu\t0, Enabled\n", ""),
        ("ascend", "cannot\tlinks of the NPUs\tno hccn_tool\n", ""),
        ("amd", "amd\t0000:c1:00.0\tclocks\tauto\n", ""),
        ("amd", "ascend\t0\tmemory_errors\t0\n", "no device of amd is found"),
        ("amd", "cannot\tmemory errors of the GPUs\tno count\n", ""),
        ("amd", "cannot\tstate of the GPUs\tno nvidia-smi\n", "no device of amd is found"),
    ],
)
def test_accelerators_that_no_tool_is_asked_about_are_said_and_pass_nothing(vendor: str, lines: str, why: str) -> None:
    def printed(*_: object, **__: object) -> SimpleNamespace:
        return SimpleNamespace(stdout=f"{lines}end\tok\n")

    host: Any = SimpleNamespace(name="n1", address="10.0.0.1", run=printed)
    plan: Any = SimpleNamespace(vendor=vendor, code_dir_host="/a/b", log_root_host="/a/c", cases=[])
    reports = {"n1": HostReport(host="n1")}
    examine_health({"n1": host}, reports, plan)
    said = [each for each in not_seen(reports) if "accelerators" in each]
    assert said == ([f"state of the accelerators of n1: {why}"] if why else []) and not reports["n1"].failed
