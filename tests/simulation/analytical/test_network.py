"""`analytical -n`: the cluster is the topology's, and what is slow or scarce there costs time, as flows find it."""

from pathlib import Path

import pytest

from simulation.analytical.machine import Division
from simulation.analytical.network import ClusterNetwork
from simulation.cli import main
from simulation.network.flow_level.port_routes import SPREAD, PortRoutes
from simulation.network.flow_level.simulate import simulate
from simulation.network.flow_level.verb import flow_wishes
from tests.simulation.analytical.asking import ask, row, write
from tests.simulation.network.recordings import request

DCN = ["-topo", "DCN+", "-g", "64", "-gt", "H100", "-bw", "400Gbps", "-npa", "16"]  # two servers at a leaf
RAILS = ["-topo", "Spectrum-X", "-g", "64", "-gt", "H100", "-bw", "400Gbps"]


def network(path: Path, *options: str) -> str:
    """The file of a template."""
    assert main(["topology", *options, "--output", str(path)]) == 0
    return str(path)


def makespan(topology: str, *words: str) -> float:
    """ns of a collective in buffers of 256 MiB at flow level, its bytes on all ways evenly, without windows."""
    asked = request(["-n", topology, "--size", "256M", *words], dialect="clusterdyno")
    ways = PortRoutes(asked.fabric, SPREAD)
    run = simulate(ways, asked.job, flow_wishes(asked, ways)._replace(window=1 << 40), topology)
    return max(run.rank_ends()) - run.first_start()


@pytest.mark.parametrize(
    ("group", "tp", "ep", "op", "spines", "share"),
    [
        ("DP", 8, 1, "AllReduce", 16, 1),
        ("DP", 8, 1, "AllReduce", 2, 2 / 8),  # of two servers at a leaf one sends on
        ("EP", 8, 4, "AllToAll", 4, 4 / (16 * 2 / 3)),  # of three other servers two are elsewhere
    ],
)
def test_what_leaves_a_leaf_shares_its_uplinks_as_flows_do(
    group: str, tp: int, ep: int, op: str, spines: int, share: float, tmp_path: Path
) -> None:
    scarce = network(tmp_path / "scarce", *DCN, "-psn", str(spines))
    wide = network(tmp_path / "wide", *DCN, "-psn", "16")
    division = Division(tp, ep, 1, 64 // tp, 1, 1, 0)
    found = ClusterNetwork(Path(scarce)).share(group, division, to_all=op == "AllToAll")
    assert found == pytest.approx(share)
    words = ["--op", op, "--group", group, "--tp", str(tp), "--ep", str(ep)]
    assert makespan(wide, *words) / makespan(scarce, *words) == pytest.approx(share, rel=0.05)


def rail_only(path: Path) -> str:
    """Two servers of 8 GPUs, whose equal GPUs have a leaf for themselves, without a spine."""
    links = [f"{gpu} {16 + gpu // 8} 2880Gbps 0.000025ms 0" for gpu in range(16)]
    links += [f"{gpu} {18 + gpu % 8} 400Gbps 0.0005ms 0" for gpu in range(16)]
    head = ["26 8 2 8 32 H100", " ".join(map(str, range(16, 26)))]
    path.write_text("\n".join([*head, *links, ""]), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("phase", ["ALLTOALL_EP", "ALLTOALL"])
def test_gpus_of_a_rail_only_network_that_do_not_reach_one_another_are_named(phase: str, tmp_path: Path) -> None:
    """As `network` says it, which sends from proxies with --pxn."""
    topology = rail_only(tmp_path / "n")
    sizes = {"ep": 16} if phase.endswith("EP") else {"tp": 16}
    workload = write(tmp_path / "w.txt", [row(f"{phase} 4000000")], gpus=16, **sizes)
    found = ask("-w", str(workload), "-n", topology, "-r", f"{tmp_path}/")
    said = f"{topology}: GPU 0 does not reach GPU 9: GPUs do not forward"
    assert found.code == 2 and said in found.err
    words = ["network", "-n", topology, "--level", "flow", "--op", "AllToAll", "--size", "1M", "-r", f"{tmp_path}/n-"]
    assert main(words) == 2 and main([*words, "--pxn"]) == 0


def test_gpus_that_share_one_of_two_leaves_reach_each_other(tmp_path: Path) -> None:
    """All are at two leaves without a spine, but for GPU 0, which is at one of them; `network` finds ways, too."""
    links = [f"{gpu} {16 + gpu // 8} 2880Gbps 0.000025ms 0" for gpu in range(16)]
    links += [f"{gpu} {leaf} 200Gbps 0.0005ms 0" for gpu in range(16) for leaf in (18, 19) if (gpu, leaf) != (0, 18)]
    head = [f"20 8 2 2 {len(links)} H100", "16 17 18 19"]
    (tmp_path / "n").write_text("\n".join([*head, *links, ""]), encoding="utf-8")
    for to_all in (True, False):
        assert ClusterNetwork(tmp_path / "n").share("TP", Division(16, 1, 1, 1, 1, 1, 0), to_all=to_all) == 1
    words = ["--level", "flow", "--op", "AllToAll", "--size", "1M", "-r", f"{tmp_path}/n-"]
    assert main(["network", "-n", f"{tmp_path}/n", *words]) == 0


@pytest.mark.parametrize("leaves", ["leaf0", "leaf*"])
@pytest.mark.parametrize(("phase", "ep"), [("ALLTOALL_EP", 4), ("ALLREDUCE", 1)])
def test_gpus_behind_a_leaf_that_is_cut_off_are_named(leaves: str, phase: str, ep: int, tmp_path: Path) -> None:
    """Where stages send nothing to one another, their ways do not matter."""
    cut = str(tmp_path / "cut")
    edit = ["--cut", f"{leaves}-spine*", "--output", cut]
    assert main(["topology", "edit", network(tmp_path / "n", *DCN), *edit]) == 0
    workload = write(tmp_path / "w.txt", [row(weight=f"{phase} 4000000")], tp=8, ep=ep, gpus=64)
    found = ask("-w", str(workload), "-n", cut, "-r", f"{tmp_path}/")
    assert found.code == 2 and "does not reach GPU" in found.err and ": GPUs do not forward" in found.err
    alone = write(tmp_path / "w.txt", [row("ALLREDUCE 4000000")], tp=8, pp=4, ga=4, gpus=64)
    assert ask("-w", str(alone), "-n", cut, "-r", f"{tmp_path}/").code == 0


def test_of_two_leaves_the_one_with_uplinks_carries_what_leaves(tmp_path: Path) -> None:
    """By one of two ports it takes twice as long, at flow level more: bytes also choose their ways unevenly."""
    options = ["--dt", "-g", "64", "-gt", "H100", "-bw", "400Gbps", "-npa", "16"]
    whole, cut = network(tmp_path / "n", *options), str(tmp_path / "cut")
    assert main(["topology", "edit", whole, "--cut", "leaf0-spine*", "--output", cut]) == 0
    division = Division(8, 1, 1, 8, 1, 1, 0)
    assert [ClusterNetwork(Path(each)).share("DP", division, to_all=False) for each in (whole, cut)] == [1, 0.5]
    took = [makespan(each, "--op", "AllReduce", "--group", "DP", "--tp", "8") for each in (whole, cut)]
    assert 2 * took[0] < took[1]


def test_a_topology_says_what_the_options_of_its_cluster_would(tmp_path: Path) -> None:
    rows = [row("ALLREDUCE 4000000", "ALLTOALL_EP 4000000", "ALLGATHER 40000000", ns=1000000)]
    workload = write(tmp_path / "w.txt", rows, tp=8, pp=2, ga=4, gpus=64, pp_comm=2000000)
    found = ask("-w", str(workload), "--json", "-n", network(tmp_path / "n", *RAILS), "-r", f"{tmp_path}/")
    said = ("-g", "64", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100", "-nic_t", "cx7")
    wanted = ask("-w", str(workload), "--json", *said, "-r", f"{tmp_path}/")
    assert found.code == wanted.code == 0
    assert found.total == pytest.approx(wanted.total, rel=0.001)


@pytest.mark.parametrize(
    ("edit", "part", "factor"),
    [
        (["--degrade", "gpu9-leaf*:0.5"], "DP", 2),  # its ring waits for the slowest NIC
        (["--degrade", "gpu9-nvswitch*:0.5"], "TP", 2),
        (["--slow-gpu", "9:0.5"], "computation", 2),
    ],
)
def test_a_fault_of_one_gpu_costs_all(edit: list[str], part: str, factor: float, tmp_path: Path) -> None:
    whole, faulty = network(tmp_path / "n", *RAILS), str(tmp_path / "faulty")
    assert main(["topology", "edit", whole, *edit, "--output", faulty]) == 0
    rows = [row("ALLGATHER 400000000", weight="ALLGATHER 400000000", ns=1000000)]
    workload = write(tmp_path / "w.txt", rows, tp=8, gpus=64)
    answers = [ask("-w", str(workload), "--json", "-n", each, "-r", f"{tmp_path}/").summary for each in (whole, faulty)]
    one, other = (each["computation_us"] if part == "computation" else each["exposed_us"][part] for each in answers)
    assert other / one == pytest.approx(factor, rel=0.02)
    assert answers[1]["total_us"] - answers[0]["total_us"] == pytest.approx(other - one, rel=0.001)


def test_options_that_the_topology_answers_are_refused_beside_it(tmp_path: Path) -> None:
    workload = write(tmp_path / "w.txt", [row()], gpus=64)
    topology = network(tmp_path / "n", *RAILS)
    found = ask("-w", str(workload), "-n", topology, "-g", "64", "-nv", "360", "--dialect", "simai")
    assert found.code == 2
    assert "-g 64: has no effect beside -n" in found.err and "-nv 360: has no" in found.err
    assert "/n: is for the default dialect" in found.err
    apart = tmp_path / "apart"
    apart.write_text("4 1 0 1 1 H100\n3\n0 3 100Gbps 0.0005ms 0\n1 3 100Gbps 0.0005ms 0\n", encoding="utf-8")
    found = ask("-w", str(workload), "-n", str(apart))
    assert found.code == 2 and "GPU 2 has no link to a switch of the network" in found.err
