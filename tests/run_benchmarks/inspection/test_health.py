"""Health of hosts: the script on made-up sysfs trees and tools, and what is said of a host beside the others."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from run_benchmarks.commands.check_view import not_seen, show_reports
from run_benchmarks.inspection import health
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.health import examine_health, judged, parsed, peers_of
from tests.run_benchmarks.inspection.made_hosts import host_files, looked, said, tree

# The size that ping was asked for, among its words.
SIZE = "while [ $1 != -s ]; do shift; done; size=$2"


DEPRECATED = "[Requested functionality has been deprecated]"  # of application clocks, by drivers from 595 on


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
GPU 5: NVIDIA H100 80GB HBM3 (UUID: GPU-0e)
NVML: Unable to retrieve NVLink information as all links are inActive
GPU 6: NVIDIA H100 80GB HBM3 (UUID: GPU-1f)
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


# The counters of Blackwell's links, as public reports of B300 with driver 595 name them.
OF_BLACKWELL = (
    "Malformed packet Errors", "Buffer overrun Errors", "Rx Errors", "Rx remote Errors", "Rx General Errors",
    "Local link integrity Errors", "Tx discards", "Link recovery successful events", "Link recovery failed events",
    "Effective Errors", "Symbol Errors",
)  # fmt: skip
NO_ERRORS = ("Tx packets", "Total link recovery events", "FEC Errors - 0", "FEC Errors - 1", "PLR Xmit Blocks")


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


def test_huge_pages_kernel_and_driver_that_differ_from_most_hosts_are_named(tmp_path: Path) -> None:
    changed = {
        "n1": ("proc/meminfo", "MemTotal:  1024 kB\nHugePages_Total:       0\n"),
        "n2": ("proc/sys/kernel/osrelease", "6.5.0-generic\n"),
        "n3": ("sys/module/nvidia/version", "550.54.15\n"),
    }
    trees = {f"n{n}": host_files() for n in range(6)}
    for name, (file, text) in changed.items():
        trees[name][file] = text
    found = said({name: looked(tree(tmp_path / name, files)) for name, files in trees.items()})
    odd = {key: severity for key, severity in found.items() if key[1] not in ("ulimit", "clock synchronisation")}
    assert odd == {
        ("n1", "huge pages", "0"): "warning",
        ("n2", "version of kernel", "6.5.0-generic"): "warning",
        ("n3", "version of nvidia", "550.54.15"): "warning",
    }


@pytest.mark.parametrize(("limit", "devices", "warnings"), [("64", 1, 1), ("64", 0, 0), ("unlimited", 1, 0)])
def test_little_locked_memory_is_told_beside_rdma_devices_alone(limit: str, devices: int, warnings: int) -> None:
    rdma = devices * "rdma\tmlx5_0/1\tACTIVE\t400\t0xffff\n"
    found = said({"n0": parsed(f"{rdma}memlock\t{limit}\nend\tok\n")})
    assert found == dict.fromkeys(
        [("n0", "ulimit", "64 KiB of locked memory beside RDMA devices")][:warnings], "warning"
    )


@pytest.mark.parametrize(("runs", "expected"), [(True, {}), (False, {"does not run": "failure"})])
def test_the_fabric_manager_of_a_host_with_nvswitches_is_looked_for_by_its_process(
    runs: bool, expected: dict[str, str], tmp_path: Path
) -> None:
    files = host_files() | {"dev/nvidia-nvswitchctl": ""}
    programs = {"pgrep": f'[ "$*" = "-x nv-fabricmanage" ] && {str(runs).lower()}'}
    found = said({"n0": looked(tree(tmp_path, files), programs=programs)})
    assert {what: how for (_, subject, what), how in found.items() if subject == "fabric manager"} == expected


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


def test_a_translating_iommu_and_a_missing_fabric_manager_are_told(tmp_path: Path) -> None:
    files = host_files() | {"sys/kernel/iommu_groups/2/type": "DMA-FQ\n"}
    found = said({"n0": looked(tree(tmp_path, files))})
    assert found["n0", "IOMMU", "translates for 1 group of devices"] == "warning"
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
        ("rows\t00000000:3B:00.0, No, [Unknown Error]", "blind"),
        (f"gpu\t0, Enabled, 700.00, 700.00, {DEPRECATED}, {DEPRECATED}, Not Active, Not Active, 0", "not seen"),
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
    found = said({"n0": parsed(f"{line}\nend\tok\n")})
    assert {*found.values()} == {severity} and len(found) == 1 + any("clocks of the GPUs" in key for key in found)


@pytest.mark.parametrize(("clocks", "is_said"), [(DEPRECATED, True), ("[N/A]", True), ("1980", False)])
def test_where_a_driver_tells_no_application_clocks_it_is_said_that_a_cap_was_not_looked_for(
    clocks: str, is_said: bool
) -> None:
    line = f"gpu\t0, Enabled, 700.00, 700.00, {clocks}, {clocks}, Not Active, Not Active, 0\nend\tok\n"
    key = ("n0", "clocks of the GPUs", "whether a setting caps them does not show before the GPUs work")
    assert said({"n0": parsed(line)}).get(key) == ("not seen" if is_said else None)


@pytest.mark.parametrize("name", ["clocks_event_reasons", "clocks_throttle_reasons"])
def test_the_reasons_for_low_clocks_are_asked_for_by_the_name_that_the_driver_knows(name: str, tmp_path: Path) -> None:
    line = "0, Enabled, 7, 7, 1, 1, Active, Not Active, 0"
    tool = f"case $* in *query-gpu=index*,{name}.*) echo '{line}' ;; *) exit 2 ;; esac"
    found = said({"n0": looked(tree(tmp_path, host_files()), programs={"nvidia-smi": tool})})
    assert found["n0", "GPU 0", "the hardware holds its clocks down: heat, power brake or supply"] == "failure"


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
        "log_line\tx\t[ 1042.1] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>",
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


def test_a_mount_that_does_not_answer_needs_its_server_and_no_tool() -> None:
    told = "cannot\tfile system of /x\tno answer\ncannot\tspace of /y\tno answer of df\nend\tok\n"
    actions = {found[0]: found[3] for _, found in judged({"n0": parsed(told)})}
    assert actions["file system of /x"] == "look whether its server answers"
    assert actions["space of /y"] == "install the tool or give permission"


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
    'nvlink -s') cat <<'END'\n{NVLINKS}END\nexit 3;;
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
        ("GPU 5", "1 of 1 NVLinks are inactive"): "failure",
        ("GPU 1", "5 errors of its NVLinks since the driver was loaded"): "warning",
    }
    bare = looked(tmp_path, programs={"nvidia-smi": tool.replace("Link ", "Nothing ")})
    others = said({"n0": health, "n1": health, "n2": bare})
    assert others["n2", "GPUs with NVLinks", "0"] == "warning", "none of its devices shows what those of others do"
    without = said({"n0": looked(tmp_path, programs={"nvidia-smi": "exit 9"})})
    assert without["n0", "NVLinks", "nvidia-smi nvlink -s does not answer"] == "blind"
    assert without["n0", "state of the GPUs", "nvidia-smi is not installed, or does not answer"] == "blind"


@pytest.mark.parametrize("counter", [*OF_BLACKWELL, *NO_ERRORS])
def test_each_counter_of_errors_of_newer_links_counts(counter: str, tmp_path: Path) -> None:
    lines = [f"\t Link 0: {name}: {7 * (name == counter)}" for name in (*OF_BLACKWELL, *NO_ERRORS)]
    told = "\n".join(["GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-5f)", *lines, "\t Link 0: Effective BER: 15e-255"])
    tool = f"[ \"$*\" = 'nvlink -e' ] && cat <<'END'\n{told}\nEND\n"
    health = looked(tree(tmp_path, host_files()), programs={"nvidia-smi": tool})
    assert health.lines["nvlink_errors"] == [f"0\t{7 * (counter in OF_BLACKWELL)}"]
    assert not any("errors of NVLinks" in line for line in health.lines["cannot"])


def test_counters_of_links_of_another_form_are_told(tmp_path: Path) -> None:
    told = "GPU 0: NVIDIA B300 SXM6 AC (UUID: GPU-5f)\n\t Link 0: Faults: 7"
    tool = f"[ \"$*\" = 'nvlink -e' ] && cat <<'END'\n{told}\nEND\n"
    health = looked(tree(tmp_path, host_files()), programs={"nvidia-smi": tool})
    assert "errors of NVLinks\tnvidia-smi nvlink -e has none of the known counters" in health.lines["cannot"]


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
        ("ascend", "blind\tlinks of the NPUs\tno hccn_tool\n", ""),
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


@pytest.mark.parametrize(
    ("lines", "missed"),
    [
        ("cannot\tclock synchronisation\tno tool\n", ["clock synchronisation"]),
        ("cannot\tnames\tno getent\n", ["names"]),
        ("cannot\tlargest frame\tno ping or no ip command\n", ["largest frame"]),
        ("cannot\tlargest frame\tn2 answers no ping\nframe\tn3\teth0\t1500\tpasses\t1500\n", []),
        ("blind\tkernel log\tno permission\n", []),
        ("log_cut\t3\n", []),
        ("synced\tno\n", []),
    ],
)
def test_a_check_that_did_not_run_is_kept_by_host_and_one_that_ran_in_part_is_not(
    lines: str, missed: list[str]
) -> None:
    report = HostReport(host="n1")
    for _, found in judged({"n1": parsed(f"{lines}end\tok\n")}):
        report.add(*found)
    assert report.missed == missed and not report.failed
    assert len(report.unseen) == (0 if "synced" in lines else 1)


@pytest.mark.parametrize("count", [34, 100, 513])
def test_of_many_hosts_each_sends_its_largest_frame_to_some_and_some_send_to_it(count: int) -> None:
    """Also where one of its neighbours gives no answer."""
    met: dict[str, set[str]] = {}

    def looked_at(argv: Sequence[str], *, own: str) -> SimpleNamespace:
        peers = argv[len(argv) - [*reversed(argv)].index("--") :]
        met[own] = {*peers}
        return SimpleNamespace(stdout="end\tok\n")

    def host(name: str) -> SimpleNamespace:
        return SimpleNamespace(name=name, address=name, run=lambda argv, **_: looked_at(argv, own=name))

    names = [f"n{n}" for n in range(count)]
    hosts: Any = {name: host(name) for name in names}
    plan: Any = SimpleNamespace(vendor="cpu", code_dir_host="/a/b", log_root_host="/a/c", cases=[])
    reports = {name: HostReport(host=name) for name in names}
    examine_health(hosts, reports, plan)
    from_whom = {name: {sender for sender, peers in met.items() if name in peers} for name in names}
    assert min(len(met[name] - {name}) for name in names) >= 20
    assert min(len(senders - {name}) for name, senders in from_whom.items()) >= 2
    assert all(f"or more of {count - 1} other hosts" in report.unseen[0].found for report in reports.values())
    assert not any(report.missed for report in reports.values()), "it was tried"
