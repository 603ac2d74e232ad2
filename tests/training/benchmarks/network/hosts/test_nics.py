"""The NIC of a rank, from a host's /sys, NCCL's settings or NCCL's topology file."""

from pathlib import Path

import pytest

from training.benchmarks.network.hosts.nics import nic_of, rails_of

GPUS = ["0000:1B:00.0", "0000:3d:00.0", "0000:9d:00.0", "0000:9e:00.0"]
# Two root ports with a switch each: a GPU and a NIC below each switch of the first, two of both below the last.
PCI = {
    "0000:1b:00.0": "pci0000:15/0000:16:00.0",
    "0000:3d:00.0": "pci0000:37/0000:38:00.0",
    "0000:9d:00.0": "pci0000:97/0000:98:00.0",
    "0000:9e:00.0": "pci0000:97/0000:98:00.0",
}
NICS = {"mlx5_7": "0000:1b:00.0", "mlx5_0": "0000:3d:00.0", "mlx5_4": "0000:9d:00.0", "mlx5_5": "0000:9e:00.0"}


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """A host's /sys with these GPUs, and a NIC beside each."""
    root = tmp_path / "sys"
    (root / "bus/pci/devices").mkdir(parents=True)
    for address, bridge in PCI.items():
        for name in (address, address.replace("00.0", "01.0")):
            (root / "devices" / bridge / name).mkdir(parents=True)
            (root / "bus/pci/devices" / name).symlink_to(root / "devices" / bridge / name)
    for nic, neighbour in NICS.items():
        (root / "class/infiniband" / nic).mkdir(parents=True)
        beside = root / "bus/pci/devices" / neighbour.replace("00.0", "01.0")
        (root / "class/infiniband" / nic / "device").symlink_to(beside)
    return root


def test_each_rank_has_the_nearest_nic(sys: Path) -> None:
    found = [nic_of(rank, GPUS, {}, sys) for rank in range(4)]
    assert found == ["mlx5_7", "mlx5_0", "mlx5_4", "mlx5_5"], "two that are equally near are shared out"


@pytest.mark.parametrize(
    ("wanted", "found"),
    [("mlx5_0", "mlx5_0"), ("^mlx5_7", "mlx5_0"), ("=mlx5_4:1,mlx5_5", "mlx5_4"), ("mlx5", "mlx5_7"), ("=mlx5", "")],
)
def test_what_nccl_is_told_to_use(sys: Path, wanted: str, found: str) -> None:
    assert nic_of(0, GPUS, {"NCCL_IB_HCA": wanted}, sys) == found


def test_ranks_without_an_accelerator_use_gloos_interface(sys: Path) -> None:
    assert nic_of(0, [], {"GLOO_SOCKET_IFNAME": "eth0"}, sys) == "eth0"
    assert nic_of(0, [], {}, sys) == ""


def test_a_host_without_infiniband_names_none(tmp_path: Path) -> None:
    assert nic_of(0, GPUS, {}, tmp_path) == ""


def test_nccls_topology_file_decides(sys: Path, tmp_path: Path) -> None:
    text = """<system version="1"><cpu numaid="0">
      <pci busid="0000:15:00.0"><pci busid="a"><gpu dev="1" sm="90"/></pci>
        <pci busid="b"><nic><net name="mlx5_1" dev="0"/></nic></pci></pci>
      <pci busid="0000:37:00.0"><pci busid="c"><gpu dev="0" sm="90"/></pci>
        <pci busid="d"><nic><net name="mlx5_3" dev="1"/></nic></pci></pci></cpu></system>"""
    path = tmp_path / "topology.xml"
    path.write_text(text)
    assert rails_of(path) == {0: "mlx5_3", 1: "mlx5_1"}
    assert nic_of(1, GPUS, {"NCCL_TOPO_FILE": str(path)}, sys) == "mlx5_1"
    for other in ("<system>", text.replace('dev="1" sm', 'dev="all" sm')):
        path.write_text(other)
        assert rails_of(path) == {} and nic_of(1, GPUS, {"NCCL_TOPO_FILE": str(path)}, sys) == "mlx5_0"
