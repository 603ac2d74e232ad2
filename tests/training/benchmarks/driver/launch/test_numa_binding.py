"""Ranks are bound to the NUMA node of their device, or equally many to each, unless somebody has decided already."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest

from tests.training.benchmarks.driver.launch.launching import ROOT
from training.benchmarks.driver.launch import launcher
from training.benchmarks.driver.launch.numa_binding import NUMA_ENV, as_list, bind, binding_of

# Two sockets of four processors; four devices, the first two at the second socket.
NODES = {0: "0-3", 1: "4-7"}
DEVICES = {"0000:07:00.0": (1, "GPU-aa"), "0000:0f:00.0": (1, "GPU-ab"), "0000:87:00.0": (0, "GPU-ba"),
           "0000:C1:00.0": (-1, "GPU-bb")}  # fmt: skip
ALL = frozenset(range(8))


def _machine(root: Path, nodes: Mapping[int, str] = NODES, devices: bool = True, online: str = "0-7") -> Path:
    files = {f"sys/devices/system/node/node{number}/cpulist": f"{cpus}\n" for number, cpus in nodes.items()}
    files["sys/devices/system/cpu/online"] = f"{online}\n"
    for address, (number, uuid) in DEVICES.items() if devices else ():
        files[f"proc/driver/nvidia/gpus/{address}/information"] = f"Model: \t\t NVIDIA H100\nGPU UUID: \t {uuid}\n"
        files[f"sys/bus/pci/devices/{address.lower()}/numa_node"] = f"{number}\n"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def _rank(rank: int, ranks: int, **more: str) -> dict[str, str]:
    return {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks), **more}


@pytest.mark.parametrize(
    ("rank", "visible", "cpus"),
    [
        (0, None, "4-7"), (1, None, "4-7"), (2, None, "0-3"), (3, None, None), (0, "2,0", "0-3"), (1, "2,0", "4-7"),
        (0, "GPU-ba", "0-3"), (0, "GPU-a", None), (0, "MIG-aa", None), (0, "9", None),
    ],
)  # fmt: skip
def test_a_rank_takes_the_node_of_its_device(tmp_path: Path, rank: int, visible: str | None, cpus: str | None) -> None:
    more = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    found = binding_of(_rank(rank, 4, **more), "nvidia", ALL, _machine(tmp_path))
    assert found is not None
    assert (None if found.cpus is None else as_list(found.cpus)) == cpus
    if cpus is not None:
        assert found.sentence.startswith(f"processors {cpus} of NUMA node ") and "the device 0000:" in found.sentence


def test_what_is_not_known_is_said(tmp_path: Path) -> None:
    _machine(tmp_path)
    unknown = binding_of(_rank(3, 4), "nvidia", ALL, tmp_path)
    assert unknown is not None and "does not say to which one the device 0000:c1:00.0 belongs" in unknown.sentence
    other = binding_of(_rank(0, 4), "amd", ALL, _machine(tmp_path / "amd", devices=False))
    assert other is not None and other.cpus is None and other.sentence == "the PCI slot of device 0 of amd is not known"


@pytest.mark.parametrize("vendor", ["cpu", None])
@pytest.mark.parametrize(
    ("ranks", "nodes"), [(2, ["0-3", "4-7"]), (4, ["0-3", "0-3", "4-7", "4-7"]), (1, [None]), (3, [None, None, None])]
)
def test_ranks_without_devices_are_spread_over_the_nodes(
    tmp_path: Path, ranks: int, nodes: list[str | None], vendor: str | None
) -> None:
    _machine(tmp_path, devices=vendor == "cpu")
    for rank, cpus in enumerate(nodes):
        found = binding_of(_rank(rank, ranks), vendor, ALL, tmp_path)
        assert found is not None
        assert (None if found.cpus is None else as_list(found.cpus)) == cpus
        if cpus is None:
            assert found.sentence == f"{ranks} ranks on 2 NUMA nodes are no equal share"


def test_nothing_is_bound_where_a_cpuset_or_taskset_has_decided(tmp_path: Path) -> None:
    for online in ("0-7", ""):
        found = binding_of(_rank(0, 2), "cpu", frozenset({0, 1, 2, 5}), _machine(tmp_path, online=online))
        assert found is not None and found.cpus is None
        assert found.sentence == "a cpuset or taskset already restricts this process to 0-2,5"


def test_one_node_leaves_nothing_to_decide(tmp_path: Path) -> None:
    assert binding_of(_rank(0, 2), "cpu", ALL, _machine(tmp_path, nodes={0: "0-7"})) is None
    assert bind(_rank(0, 2), "cpu", allowed=ALL, root=tmp_path) is None
    assert bind(_rank(0, 2, **{NUMA_ENV: "off"}), "cpu", allowed=ALL, root=_machine(tmp_path / "two")) is None


def test_a_process_is_really_bound(tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("needs two processors")
    first, *_, last = sorted(before)
    _machine(tmp_path, nodes={0: str(first), 1: str(last)}, devices=False, online=as_list(frozenset(before)))
    try:
        assert bind(_rank(1, 2), "cpu", root=tmp_path) == f"bound to processors {last} of NUMA node 1"
        assert os.sched_getaffinity(0) == {last}
        script = "import os; print(sorted(os.sched_getaffinity(0)))"
        child = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        assert child.stdout.strip() == str([last])
    finally:
        os.sched_setaffinity(0, before)


def test_a_node_whose_processors_cannot_be_used_binds_nothing(tmp_path: Path) -> None:
    _machine(tmp_path, nodes={0: "100000", 1: "100001"}, devices=False, online="100000-100001")
    before = os.sched_getaffinity(0)
    told = bind(_rank(0, 2), "cpu", allowed=frozenset({100_000, 100_001}), root=tmp_path)
    assert told is not None and told.startswith("bound to no NUMA node: processors 100000 of NUMA node 0: ")
    assert os.sched_getaffinity(0) == before


RANK = """
import os, sys
from pathlib import Path
from training.benchmarks.driver.launch import numa_binding, rank

of_machine = numa_binding.bind
numa_binding.bind = lambda environment, vendor: of_machine(environment, vendor, root=Path(sys.argv[1]))
rank._bind(["--case", "c", "--vendor", "cpu"])
print(sorted(os.sched_getaffinity(0)))
"""


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_a_rank_says_in_its_log_where_it_is_bound(tmp_path: Path, choice: str) -> None:
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        pytest.skip("needs two processors")
    cpus = as_list(frozenset(usable))
    root = _machine(tmp_path, nodes={0: str(usable[0]), 1: as_list(frozenset(usable[1:]))}, devices=False, online=cpus)
    environment = os.environ | _rank(0, 2, RANK="6", **{NUMA_ENV: choice})
    argv = [sys.executable, "-c", RANK, str(root)]
    done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    bound = [f"launch: rank 6 is bound to processors {usable[0]} of NUMA node 0", f"[{usable[0]}]"]
    assert done.stdout.splitlines() == (bound if choice == "auto" else [str(usable)])


@pytest.mark.parametrize("choice", ["auto", "off"])
def test_the_launcher_tells_its_ranks(choice: str) -> None:
    launch = launcher.parse(["--log_dir", "x", "--numa", choice, "--nproc_per_node", "2", "--", "-m", "y"])
    with mock.patch.dict(os.environ):
        os.environ.pop(NUMA_ENV, None)
        launcher._prepare_environment(launch, "127.0.0.1", 29500, 2)
        assert os.environ.get(NUMA_ENV) == launch.environment.get(NUMA_ENV) == (None if choice == "auto" else "off")
