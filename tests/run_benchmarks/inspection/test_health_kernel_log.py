"""Health of hosts: what is read in kernel logs and journals, and what is said of it."""

from pathlib import Path

from tests.run_benchmarks.inspection.made_hosts import host_files, looked, said, tree

# Lines as the drivers write them: NVIDIA, "XID Errors"; Linux, drivers/edac, fs/ext4, block.
LOG = """\
[   12.5] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06
[ 1042.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[ 1043.1] NVRM: Xid (PCI:0000:86:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault
[ 1044.1] NVRM: Xid (PCI:0000:86:00): 31, pid=4711, name=python3, Ch 00000008, intr 00000000. MMU Fault
[ 1050.0] I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
"""


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
    assert found["n0", "kernel log", "32 lines more, of other kinds than the first 64"] == "in part"
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
    assert found["n0", "kernel log", "6 lines more, of other kinds than the first 64"] == "in part"
