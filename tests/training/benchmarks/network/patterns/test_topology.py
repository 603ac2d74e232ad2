"""Topology files: tables, networks of simulation/, ibnetdiscover's and Slurm's; what is wrong with one is said."""

from itertools import combinations
from math import comb
from pathlib import Path

import pytest

from tests.training.benchmarks.network.fabrics import FABRICS, Ailment, steps
from training.benchmarks.network.patterns.slurm_topology import expanded
from training.benchmarks.network.patterns.tiers import Tiers, classes_of
from training.benchmarks.network.patterns.topology import HostWidth, TopologyError, read_topology
from training.benchmarks.network.slow_parts.analysis import analyse

HOSTS = [HostWidth(name=f"node{number}", ranks=2) for number in range(1, 5)]
TABLE = "# two racks\nhost rack\nnode1 a\nnode2 a\nnode3 b\nnode4 b\nnode5 c\n"
RAILS = """host,rack,pod,rail,device
node1,a0,p,0,mlx5_0
node1,a1,p,1,mlx5_1
node2,a0,p,0,mlx5_0
node2,a1,p,1,mlx5_1
node3,b0,q,0,mlx5_2
node4.example,b0,q,0,mlx5_0
"""
# Two leaves of two hosts under one spine.
DISCOVERED = """#
# Topology file: generated on Sun Nov 22 2026
vendid=0x2c9
sysimgguid=0x1
switchguid=0x1(1)
Switch\t36 "S-0000000000000001"\t\t# "MF0;leaf1:MQM8700/U1" enhanced port 0 lid 3 lmc 0
[1]\t"H-00000000000000a1"[1](a1) \t\t# "node1 mlx5_10" lid 11 4xHDR
[2]\t"H-00000000000000a2"[1](a2) \t\t# "node1 mlx5_2" lid 12 4xHDR
[3]\t"H-00000000000000b1"[1](b1) \t\t# "node2 HCA-1" lid 13 4xHDR
[31]\t"S-0000000000000003"[1]\t\t# "MF0;spine:MQM8700/U1" lid 5 4xHDR

Switch\t36 "S-0000000000000002"\t\t# "MF0;leaf2:MQM8700/U1" enhanced port 0 lid 4 lmc 0
[1]\t"H-00000000000000c1"[1](c1) \t\t# "node3 HCA-1" lid 14 4xHDR
[2]\t"H-00000000000000d1"[1](d1) \t\t# "node4 HCA-1" lid 15 4xHDR
[31]\t"S-0000000000000003"[2]\t\t# "MF0;spine:MQM8700/U1" lid 5 4xHDR

Switch\t36 "S-0000000000000003"\t\t# "MF0;spine:MQM8700/U1" enhanced port 0 lid 5 lmc 0
[1]\t"S-0000000000000001"[31]\t\t# "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
[2]\t"S-0000000000000002"[31]\t\t# "MF0;leaf2:MQM8700/U1" lid 4 4xHDR

Ca\t1 "H-00000000000000a1"\t\t# "node1 mlx5_10"
[1](a1) \t"S-0000000000000001"[1]\t\t# lid 11 lmc 0 "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
Ca\t1 "H-00000000000000a2"\t\t# "node1 mlx5_2"
[1](a2) \t"S-0000000000000001"[2]\t\t# lid 12 lmc 0 "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
Ca\t1 "H-00000000000000b1"\t\t# "node2 HCA-1"
[1](b1) \t"S-0000000000000001"[3]\t\t# lid 13 lmc 0 "MF0;leaf1:MQM8700/U1" lid 3 4xHDR
Ca\t1 "H-00000000000000c1"\t\t# "node3 HCA-1"
[1](c1) \t"S-0000000000000002"[1]\t\t# lid 14 lmc 0 "MF0;leaf2:MQM8700/U1" lid 4 4xHDR
Ca\t1 "H-00000000000000d1"\t\t# "node4 HCA-1"
[1](d1) \t"S-0000000000000002"[2]\t\t# lid 15 lmc 0 "MF0;leaf2:MQM8700/U1" lid 4 4xHDR
"""
# What slurmctld 22.05 read, and what its `scontrol show topology` printed of it.
SLURM_CONF = """# leaf switches
SwitchName=s0 Nodes=node[1-2]
SwitchName=s1 Nodes=node3,node4
switchname=s2 nodes=gpu[008-011] \\
    LinkSpeed=100
SwitchName=s3 Switches=s[0-1]
SwitchName=s5 Switches=s2
SwitchName=s4 Switches=s3,s5
"""
SLURM_SHOWN = """SwitchName=s0 Level=0 LinkSpeed=1 Nodes=node[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=node3,node4
SwitchName=s2 Level=0 LinkSpeed=100 Nodes=gpu[008-011]
SwitchName=s3 Level=1 LinkSpeed=1 Nodes=node[1-4] Switches=s[0-1]
SwitchName=s5 Level=1 LinkSpeed=1 Nodes=gpu[008-011] Switches=s2
SwitchName=s4 Level=2 LinkSpeed=1 Nodes=gpu[008-011],node[1-4] Switches=s3,s5
"""
# As topology.conf(5) has it of topology/block.
SLURM_BLOCKS = "BlockSizes=2,4\nBlockName=b1 Nodes=node[1-2]\nBlockName=b2 Nodes=node[3-4]\n"


def simulated() -> str:
    """8 GPUs in servers of 2 with an NVSwitch each (8 to 11), leaves 12 and 13 of two servers each, spine 14."""
    links = [f"{gpu} {8 + gpu // 2} 2880Gbps 0.000025ms 0" for gpu in range(8)]
    links += [f"{gpu} {12 + gpu // 4} 400Gbps 0.0005ms 0" for gpu in range(8)]
    links += ["12 14 400Gbps 0.0005ms 0", "13 14 400Gbps 0.0005ms 0"]
    return f"15 2 4 3 {len(links)} H100\n8 9 10 11 12 13 14 \n" + "".join(line + "\n" for line in links)


def written(folder: Path, text: str) -> Path:
    path = folder / "fabric.txt"
    path.write_text(text, encoding="utf-8")
    return path


def tiers_of(path: Path, hosts: list[HostWidth]) -> Tiers:
    tiers = read_topology(path, hosts).tiers
    assert tiers is not None
    return tiers


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (TABLE, ("rack a", "rack b")),
        ("\ufeff" + RAILS, ("rack a0, rack a1", "rack b0")),  # as a spreadsheet saves it
        (RAILS, ("rack a0, rack a1", "rack b0")),
        (DISCOVERED, ("switch MF0;leaf1:MQM8700/U1", "switch MF0;leaf2:MQM8700/U1")),
        (simulated(), ("switch 12", "switch 13")),
        (SLURM_CONF, ("switch s0", "switch s1")),
        (SLURM_SHOWN, ("switch s0", "switch s1")),
        (SLURM_BLOCKS, ("switch b1", "switch b2")),
    ],
    ids=["table", "spreadsheet", "rails", "ib", "simulation", "topology.conf", "scontrol", "blocks"],
)
def test_two_racks_of_two_hosts(tmp_path: Path, text: str, names: tuple[str, str]) -> None:
    tiers = tiers_of(written(tmp_path, text), HOSTS)
    assert tiers.blocks == ({0: 0, 1: 0, 2: 1, 3: 1},) and tiers.source == "topology fabric.txt"
    assert tuple(tiers.name(0, number) for number in (0, 1)) == names
    assert tiers.levels([(0, other) for other in (1, 2, 3)]) == [0, 1, 1]


def test_the_nics_of_the_rails(tmp_path: Path) -> None:
    found = read_topology(written(tmp_path, RAILS), HOSTS).devices
    assert (found[0, 1], found[2, 0], (2, 1) in found) == ("mlx5_1", "mlx5_2", False)
    found = read_topology(written(tmp_path, DISCOVERED), HOSTS).devices
    assert (found[0, 0], found[0, 1], found[3, 0]) == ("mlx5_2", "mlx5_10", "HCA-1")


def test_the_kinds_of_hosts(tmp_path: Path) -> None:
    text = "host rack kind\nnode1 a H100\nnode2 a H100\nnode3 b A100\nnode4 b A100\n"
    assert read_topology(written(tmp_path, text), HOSTS).kinds == {0: "H100", 1: "H100", 2: "A100", 3: "A100"}
    assert read_topology(written(tmp_path, TABLE), HOSTS).kinds == {}


def test_hosts_of_one_nvlink_rack_come_before_those_of_its_leaf(tmp_path: Path) -> None:
    """Servers of two GPUs are split into hosts of one rank: hosts of one NVSwitch, of one leaf, of one spine."""
    hosts = [HostWidth(name=f"n{number}", ranks=1) for number in range(8)]
    blocks = tiers_of(written(tmp_path, simulated()), hosts).blocks
    assert [[tier[host] for host in range(8)] for tier in blocks] == [
        [0, 0, 1, 1, 2, 2, 3, 3],
        [0, 0, 0, 0, 1, 1, 1, 1],
    ]


def test_pods_are_a_tier_beyond_the_racks(tmp_path: Path) -> None:
    rows = [f"node{number} r{(number - 1) // 2} p{(number - 1) // 4}" for number in range(1, 9)]
    hosts = [HostWidth(name=f"node{number}.cluster.example", ranks=8) for number in range(1, 9)]
    blocks = tiers_of(written(tmp_path, "\n".join(["host rack pod", *rows])), hosts).blocks
    assert [sorted(set(tier.values())) for tier in blocks] == [[0, 1, 2, 3], [0, 1]]


def test_a_flat_topology_has_no_tiers_and_none_are_learnt(tmp_path: Path) -> None:
    rows = [f"node{number} a" for number in range(1, 9)]
    hosts = [HostWidth(name=f"node{number}", ranks=1) for number in range(1, 9)]
    tiers = tiers_of(written(tmp_path, "\n".join(["host rack", *rows])), hosts)
    assert tiers.blocks == ()
    values = steps(FABRICS["2:1, two leaves"], Ailment(), 1)
    learnt, told = analyse(values, slow_percent=15), analyse(values, slow_percent=15, tiers=tiers)
    assert learnt is not None and told is not None
    assert "tiers: 2 blocks" in learnt.remarks[0] and "too many for bad links" in told.remarks[0]


def test_a_bad_host_is_named_by_the_topology_where_the_measurements_cannot(tmp_path: Path) -> None:
    """At 2:1 a host at half of its rate is as slow within its leaf as everybody is across leaves."""
    rows = [f"node{number} leaf{(number - 1) // 4}" for number in range(1, 9)]
    hosts = [HostWidth(name=f"node{number}", ranks=1) for number in range(1, 9)]
    tiers = tiers_of(written(tmp_path, "\n".join(["host rack", *rows])), hosts)
    values = steps(FABRICS["2:1, two leaves, equal latency"], Ailment(rate={5: 0.5}), 1)
    learnt, told = analyse(values, slow_percent=15), analyse(values, slow_percent=15, tiers=tiers)
    assert learnt is not None and learnt.findings == () and "in no block: node6" in learnt.remarks[0]
    assert told is not None and [each.subject for each in told.findings] == ["host node6"]
    (remark,) = told.remarks
    assert remark.startswith(
        "pairs are compared within tiers: 2 blocks of 4 hosts (topology fabric.txt); of two blocks"
    )


@pytest.mark.parametrize("text", [SLURM_CONF, SLURM_SHOWN])
def test_switches_of_switches_are_a_tier_beyond_the_leaves(tmp_path: Path, text: str) -> None:
    names = ["node1", "node2", "node3", "node4", "gpu008", "gpu011"]
    tiers = tiers_of(written(tmp_path, text), [HostWidth(name=name, ranks=1) for name in names])
    assert tiers.blocks == ({0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}, {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1})
    assert tiers.levels([(0, other) for other in (1, 2, 4)]) == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("tux[0-3,12,018-020]", "tux0 tux1 tux2 tux3 tux12 tux018 tux019 tux020"),
        ("s[1-2]x[3,4]", "s1x3 s1x4 s2x3 s2x4"),
        ("a1,b[2-3],c", "a1 b2 b3 c"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[08-11]", "n08 n09 n10 n11"),
    ],
)
def test_host_lists_are_those_of_slurm(text: str, names: str) -> None:
    """As `scontrol show hostnames` of Slurm 22.05 printed them."""
    assert expanded(text) == names.split()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SwitchName=s0 LinkSpeed=1\n", "line 1: a switch without Nodes= or Switches="),
        ("\nSwitchName=s0 Nodes=n[1-\n", "line 2: 'n[1-' is no host list"),
        ("SwitchName=s0 Nodes=n[3-1]\n", "line 1: 'n[3-1]' is no host list: [3-1]"),
        ("SwitchName=s0 Nodes=n[0-999999999]\n", "line 1: 'n[0-999999999]' is no host list"),
        ("SwitchName=s0 Nodes=n[0-9999][0-9999]\n", "more than 131072 names"),
        ("SwitchName=s0 Nodes=n1\nSwitchName=s1 Switches=s[0-1]0\n", "line 2: switch s1 has s00 below it, which is no"),
        ("", "neither a table with the columns host and rack, nor a network"),
        ("hello world\n", "neither a table"),
        ("host,rack,row\nnode1,a,3\n", "line 1: columns host, rack, row; allowed: host, rack and, if known, pod"),
        ("host pod\nnode1 a\n", "line 1: columns host, pod"),
        ("host rack\nnode1\n", "line 2: 1 values in 2 columns"),
        ("host rack rail device\nnode1 a x mlx5_0\n", "line 2: rail 'x'; allowed: 0, 1, 2"),
        ("host rack kind\nnode1 a H100\nnode1 b A100\n", "line 3: host node1 is of kind A100, and above of H100"),
        ("host rack\nnode1 a\n", "lacks node2, node3, node4; it has node1"),
        ("15 2 4 3 2 H100\n8 9\n0 99 1Gbps 1ms 0\n1 8 1Gbps 1ms 0\n", "links to nodes beyond 15"),
        ("5 2 0 1 1 H100\n4\nx y\n", "no network of simulation/"),
        ("33 2 0 1 0 H100\n32 \n", "32 GPUs in 16 servers; the job has 8 ranks on 4 hosts"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(TopologyError) as error:
        read_topology(written(tmp_path, text), HOSTS)
    assert words in str(error.value) and str(tmp_path / "fabric.txt") in str(error.value)


@pytest.mark.parametrize(("hosts", "is_compared"), [(2, False), (3, True)])
def test_pairs_of_which_too_few_are_alike_are_not_compared(hosts: int, is_compared: bool) -> None:
    """Two pairs that differ do not tell which of them is slow. Of n hosts n (n - 1) / 2 pairs are of one kind."""
    kinds = dict.fromkeys(range(4), "H100") | {4 + number: "A100" for number in range(hosts)}
    pairs = list(combinations(kinds, 2))
    found = classes_of(pairs, [0] * len(pairs), Tiers(kinds=kinds), with_load=False)
    sizes = {kind: comb(sum(each == kind for each in kinds.values()), 2) for kind in ("H100", "A100")}
    for (one, other), number in zip(pairs, found.of_pairs, strict=True):
        alike = sizes[kinds[one]] if kinds[one] == kinds[other] else 4 * hosts
        assert (number >= 0) == (alike >= 3), (one, other)
    assert (found.of_pairs[-1] >= 0) is is_compared
    most = [pair for pair in pairs if pair != (4, 5)] if is_compared else pairs
    assert classes_of(most, [0] * len(most), Tiers(kinds=kinds), with_load=False).of_pairs[-1] == -1


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"topology .*/none: cannot be read: "):
        read_topology(tmp_path / "none", HOSTS)
