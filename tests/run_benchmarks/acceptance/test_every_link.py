"""While all hosts send to all, every link of a fabric is loaded both ways; a port that carried nothing is told."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import networkx
import pytest

from monitors.ports import PortSampler
from monitors.sysinfo import network
from run_benchmarks.acceptance.links import idle_ports
from run_benchmarks.acceptance.rungs import EVERY_LINK, NETWORK, stages_of
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.samples.summary import PortIncreases
from simulation.cli import main
from simulation.topology.fabric import SWITCH
from simulation.topology.reading import read
from tests.monitors.fabric_tree import rdma_port, write
from tests.run_benchmarks.results.network_rounds import a_round
from tests.run_benchmarks.results.recorded_runs import a_run

FABRICS = {
    "a leaf for each rail, two sets of them": "-topo Spectrum-X -g 64 -gps 8 -npa 4 -asn 16 -psn 4",
    "two leaves for each NIC": "-topo AlibabaHPN --dt -g 64 -gps 8 -asn 16 -psn 4 -npa 32",
    "a leaf for some hosts": "-topo DCN+ -g 64 -gps 8 -asn 4 -psn 4 -npa 16",
}


def loads(
    text: str, folder: Path, *, on_rails: bool = False
) -> tuple[dict[tuple[int, int], float], set[tuple[int, int]]]:
    """What each link carries in each direction while each GPU sends one to each of other hosts, and all such links.

    As in ib_burn, traffic is even over the shortest paths, here those of networkx. on_rails: the first part of a way to
    another rail is NVLink's, as by NCCL's PXN.
    """
    file = folder / "topology"
    assert main(["topology", *text.split(), "--output", str(file)]) == 0
    fabric = read(file).fabric
    graph = networkx.Graph((one, two) for one, two, _ in fabric.links())
    switches = [node for node, role in enumerate(fabric.roles) if role == SWITCH]
    links = {
        way for one, two in graph.subgraph([*range(fabric.gpus), *switches]).edges for way in ((one, two), (two, one))
    }
    found: defaultdict[tuple[int, int], float] = defaultdict(float)
    for source in range(fabric.gpus):
        for target in range(fabric.gpus):
            host, place = divmod(source, fabric.gpus_per_server)
            other, rail = divmod(target, fabric.gpus_per_server)
            if host != other:
                begin = host * fabric.gpus_per_server + (rail if on_rails else place)
                paths = [*networkx.all_shortest_paths(graph.subgraph([begin, target, *switches]), begin, target)]
                for path in paths:
                    for way in pairwise(path):
                        found[way] += 1 / len(paths)
    return found, links


@pytest.mark.parametrize("name", FABRICS)
def test_when_all_send_to_all_every_link_of_the_fabric_is_loaded_in_both_directions(name: str, tmp_path: Path) -> None:
    carried, links = loads(FABRICS[name], tmp_path)
    assert links and carried.keys() == links
    ends = [carried[way] for way in links if min(way) < 64]
    assert min(ends) == pytest.approx(max(ends)), "each NIC alike, when it sends and when it receives"
    if "sets" in name:
        relayed, links = loads(FABRICS[name], tmp_path, on_rails=True)
        assert relayed.keys() == links, "PXN leaves no link idle where a rail has several leaves"
    case = stages_of(NETWORK, "nvidia", ["n0", "n1"], 8)[1][EVERY_LINK]
    assert (case["overrides"]["collective"], case["overrides"]["pattern"]) == ("all_to_all", "all")
    assert (case["nnodes"], case["nproc"]) == (2, 8), "all devices of all hosts at once"


def counted(root: Path, run: LoadedRun, loads: dict[str, dict[str, tuple[int, int] | None]]) -> LoadedRun:
    """The run with what the monitors count on each host's RDMA ports: words received and sent, None: a port without
    link.
    """
    nodes = []
    for number, (host, ports) in enumerate(loads.items()):
        tree = root / "trees" / host
        for device, words in ports.items():
            rdma_port(tree, device, state="4: ACTIVE" if words else "1: DOWN")
        sampler, increases = PortSampler(net=tree / "none", infiniband=tree), PortIncreases()
        increases.take((sampler.sample() or {})["ports"])
        for device, words in ports.items():
            received, sent = words or (0, 0)
            counters: dict[str, object] = {"port_rcv_data": 1000 + received, "port_xmit_data": 2000 + sent}
            write(tree / device / "ports/1/counters", counters)
        increases.take((sampler.sample_last() or {"ports": {}})["ports"])
        sampler.close()
        folder = run.folder / "PAIRS" / "round1" / f"{host}_noderank{number}"
        folder.mkdir(parents=True)
        (folder / "sys_info.json").write_text(json.dumps({"network": network(tree / "none", tree)}))
        node = a_round([]).nodes[0].model_copy(update={"host": host, "node_rank": number})
        nodes.append(node.model_copy(update={"monitor": {"ports": increases.found}}))
    return replace(run, rounds={"PAIRS": [a_round([]).model_copy(update={"nodes": nodes})]})


def test_a_port_that_carried_nothing_in_one_direction_is_told_and_one_without_link_is_not(tmp_path: Path) -> None:
    usual = {"mlx5_0": (900_000, 900_000), "mlx5_1": (1_000_000, 1_000_000)}
    odd: dict[str, dict[str, tuple[int, int] | None]] = {
        "n0": {**usual},
        "n1": {**usual, "mlx5_1": (1_000_000, 300)},
        "n2": {**usual, "mlx5_1": (0, 0)},
        "n3": {**usual, "mlx5_2": None},
    }
    run = replace(a_run("run1", [1.0]), folder=tmp_path / "run1")
    found = counted(tmp_path, run, odd)
    assert idle_ports(found, "PAIRS") == ["mlx5_1/1 of n1, n2: it carried next to nothing in PAIRS"]
    assert idle_ports(found, EVERY_LINK) == []


@pytest.mark.parametrize("junk", [None, "x", {"ports": "x"}, {"ports": {"mlx5_0/1": {"rx_bytes": float("nan")}}}])
def test_what_a_host_makes_up_of_its_ports_is_passed_over(junk: object, tmp_path: Path) -> None:
    run = replace(a_run("run1", [1.0]), folder=tmp_path / "run1")
    found = counted(tmp_path, run, {"n0": {"mlx5_0": (1, 1)}, "n1": {"mlx5_0": (1, 1)}})
    (record,) = found.rounds["PAIRS"]
    nodes = [node.model_copy(update={"monitor": junk if isinstance(junk, dict) else None}) for node in record.nodes]
    made_up = replace(found, rounds={"PAIRS": [record.model_copy(update={"nodes": nodes})]})
    assert idle_ports(made_up, "PAIRS") == []
    info = run.folder / "PAIRS/round1/n0_noderank0/sys_info.json"
    info.write_text(json.dumps({"network": [junk, {"name": junk, "state": "active"}]}))
    assert idle_ports(found, "PAIRS") == []
