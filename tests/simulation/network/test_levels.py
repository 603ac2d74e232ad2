"""Both levels follow the same dependencies: flows name what they wait for, and fair rates are held against packets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulation.cli import main
from simulation.flows.choice import LinkSpeeds
from simulation.flows.collective import FlowWish, make
from simulation.flows.groups import ParallelSizes
from simulation.flows.names import BETWEEN
from simulation.network.flow_level.hops import HOP_BYTES, hops_of
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.simulate import simulate as simulate_flows
from simulation.network.flow_level.trust import MARKS, judged
from simulation.network.flow_level.verb import flow_wishes
from simulation.network.job_reading import JobGroups, job_of_collective
from simulation.network.memory_room import MemoryRoom
from simulation.network.outcome import NetworkRun
from simulation.network.placing import groups_by_kind, link_speeds
from simulation.network.request import NetworkRequest
from simulation.topology.homes import homes_of
from simulation.topology.reading import read
from tests.simulation.network.recordings import DATA, request, simulated

CLOSE, IN_STEP = 0.1, 0.25  # of the makespan, between fair rates and packets; where chunks share links all the way
H100 = LinkSpeeds(300, 25, 475.0, "H100")


def network(servers: list[int], folder: Path, *, nvswitches: int = 1, nic: int = 200, gpu: str = "H100") -> Path:
    """A file of servers with so many GPUs each, whose NICs (Gbit/s) are on one leaf."""
    gpus = sum(servers)
    leaf = gpus + nvswitches * len(servers)
    links = [f"{each} {leaf} {nic}Gbps 0.0005ms 0" for each in range(gpus)]
    first = 0
    for number, size in enumerate(servers):
        for switch in range(gpus + number * nvswitches, gpus + (number + 1) * nvswitches):
            links += [f"{each} {switch} 2400Gbps 0.000025ms 0" for each in range(first, first + size)]
        first += size
    head = f"{leaf + 1} {max(servers)} {leaf - gpus} 1 {len(links)} {gpu}"
    path = folder / "network"
    path.write_text("\n".join([head, " ".join(map(str, range(gpus, leaf + 1))), *links, ""]), encoding="utf-8")
    return path


def asked(path: Path, op: str, size: int | str, *words: str) -> NetworkRequest:
    return request(["-n", str(path), "--op", op, "--size", str(size), "-r", f"{path}-", *words], "clusterdyno")


def fair_us(wanted: NetworkRequest) -> tuple[float, str]:
    """Makespan at flow level, and what it says of it."""
    ways = PortRoutes(wanted.fabric)
    run = simulate_flows(ways, wanted.job, flow_wishes(wanted, ways), "network")
    assert run.complete
    weakness = judged(run, ways, wanted.fabric, wanted.wishes.conf)[0]
    return (max(run.rank_ends()) - run.first_start()) / 1000, weakness


def starts_early(wanted: NetworkRequest, run: NetworkRun) -> int:
    """How many flows began before all were there that they wait for."""
    found = begin = 0
    for schedule in wanted.job.collectives[0].schedules:
        for flow in schedule.flows():
            parents = [begin + parent - schedule.first_id for parent in flow.parents]
            found += bool((run.end[parents] > run.start[begin + flow.flow_id - schedule.first_id]).any())
        begin += schedule.flow_count
    return found


@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize(
    ("servers", "size", "nvswitches"), [([4, 2, 8], 1 << 16, 1), ([2] * 6, 4 << 20, 1), ([4, 6], 4 << 20, 3)]
)
def test_sums_of_nvswitches_between_servers_wait_for_their_parts_and_for_no_more(
    servers: list[int], size: int, nvswitches: int, between: str, tmp_path: Path
) -> None:
    path = network(servers, tmp_path, nvswitches=nvswitches)
    wanted = asked(path, "AllReduce", 1 << 20, "--algorithm", "nvls", "--send-lat", "0")
    groups = groups_by_kind(
        ParallelSizes(ranks=sum(servers), per_server=1, tp=sum(servers)), wanted.fabric, original=False
    )
    wish = FlowWish("nvls", False, between, H100)
    where = JobGroups(0, sum(servers), groups, lambda op, group, size: make(op, group, size, 0, wish).schedule)
    wanted = wanted._replace(job=job_of_collective("AllReduce", "TP", size, where))
    packets = simulated(wanted)
    assert packets.complete and not starts_early(wanted, packets)
    assert fair_us(wanted)[0] == pytest.approx(packets.makespan_us, rel=IN_STEP)


@pytest.mark.parametrize("op", ["ReduceScatter", "AllGather"])
@pytest.mark.parametrize(("servers", "size"), [([4, 4, 4, 4], 70_001), ([2, 2, 2], 20_000)])
def test_every_step_of_a_ring_over_proxies_waits_for_the_one_before(
    servers: list[int], size: int, op: str, tmp_path: Path
) -> None:
    wanted = asked(network(servers, tmp_path), op, size, "--pxn", "--send-lat", "0")
    packets = simulated(wanted)
    assert packets.complete and not starts_early(wanted, packets)
    assert fair_us(wanted)[0] == pytest.approx(packets.makespan_us, rel=CLOSE)


@pytest.mark.parametrize("size", [1 << 28, (1 << 28) + 3])
@pytest.mark.parametrize("op", ["ReduceScatter", "AllGather"])
def test_a_ring_over_proxies_takes_one_hop_for_each_of_its_sends(size: int, op: str, tmp_path: Path) -> None:
    """Each of 256 GPUs sends on 8 channels, and on each another one for every server."""
    wanted = asked(network([8] * 32, tmp_path), op, size, "--pxn")
    room = MemoryRoom("network", "less")
    found = hops_of(wanted.job.collectives[0], 0, 256, room)
    assert len(found.hops) == 8 * (256 + 32) and room.taken == HOP_BYTES * len(found.hops)
    assert {hop.steps for hop in found.hops} == {255}


def test_marks_are_expected_at_links_of_any_speed(tmp_path: Path) -> None:
    path = network([1] * 8, tmp_path)
    path.write_text(path.read_text().replace("0 16 200Gbps", "0 16 37Gbps"), encoding="utf-8")
    wanted = asked(path, "AllToAll", 64 << 20)
    assert simulated(wanted).marks > 100 and fair_us(wanted)[1] == MARKS


def test_of_a_window_only_what_is_not_on_its_own_way_queues_up(tmp_path: Path) -> None:
    """GPU 3 is far away, which makes the window of all long; GPU 0 is near, and its link is slow."""
    path = network([1] * 4, tmp_path)
    text = path.read_text().replace("0 8 200Gbps", "0 8 100Gbps").replace("3 8 200Gbps 0.0005ms", "3 8 200Gbps 0.01ms")
    path.write_text(text, encoding="utf-8")
    wanted = asked(path, "AllReduce", 8 << 20, "--tp", "2")
    assert simulated(wanted).marks and fair_us(wanted)[1] == MARKS


def test_a_gpu_that_lost_one_of_its_nvlinks_is_still_in_its_server(tmp_path: Path) -> None:
    path = network([4, 4], tmp_path, nvswitches=4)
    whole = read(path).fabric
    path.write_text(path.read_text().replace("1 8 2400Gbps 0.000025ms 0\n", "").replace(" 40 H", " 39 H"))
    assert homes_of(read(path).fabric).server == homes_of(whole).server == [0] * 4 + [1] * 4
    # NVSwitches with links to all add.
    assert homes_of(whole).switches == {0: [8, 9, 10, 11], 1: [12, 13, 14, 15]}
    assert homes_of(read(path).fabric).switches == {0: [9, 10, 11], 1: [12, 13, 14, 15]}
    assert fair_us(asked(path, "AllReduce", 1 << 20, "--algorithm", "nvls"))[0] > 0


@pytest.mark.parametrize(("servers", "most"), [([8], 0.01), ([4, 4], 0.15)])
def test_nvls_takes_as_long_over_four_nvswitches_as_over_one_of_their_bandwidth(
    servers: list[int], most: float, tmp_path: Path
) -> None:
    found = []
    for nvswitches in (1, 4):
        path = network(servers, tmp_path, nvswitches=nvswitches)
        path.write_text(path.read_text().replace("2400Gbps", f"{2400 // nvswitches}Gbps"), encoding="utf-8")
        found.append(fair_us(asked(path, "AllReduce", 64 << 20, "--algorithm", "nvls"))[0])
    assert found[1] == pytest.approx(found[0], rel=most)


def test_without_an_nvswitch_that_all_gpus_of_a_server_reach_no_nvswitch_adds(tmp_path: Path) -> None:
    path = network([4, 4], tmp_path, nvswitches=2)
    links = path.read_text().replace("1 8 2400Gbps 0.000025ms 0\n", "").replace("0 9 2400Gbps 0.000025ms 0\n", "")
    path.write_text(links.replace(" 24 H", " 22 H"))
    homes = homes_of(read(path).fabric)
    assert homes.server == [0] * 4 + [1] * 4 and homes.switches == {1: [10, 11]}
    assert fair_us(asked(path, "AllReduce", 1 << 20, "--algorithm", "auto"))[0] > 0


def test_without_nvswitches_the_fastest_algorithm_is_one_that_needs_none(tmp_path: Path) -> None:
    path = network([4], tmp_path, nvswitches=0)
    assert fair_us(asked(path, "AllReduce", 1 << 20, "--algorithm", "auto"))[0] > 0
    assert fair_us(asked(path, "AllGather", 1 << 20, "--algorithm", "auto")) == fair_us(
        asked(path, "AllGather", 1 << 20)
    )


def test_a_gpus_nvlinks_are_added_up(tmp_path: Path) -> None:
    speeds = link_speeds(read(network([4, 4], tmp_path, nvswitches=4)).fabric)
    assert np.isclose([speeds.nvlink, speeds.nic], [4 * 300, 25]).all()


@pytest.mark.parametrize(
    "words",
    [
        ["--op", "AllReduce", "--size", "4M", "--group", "DP", "--tp", "8"],  # one way for all
        ["--op", "AllToAll", "--size", "1M", "--tp", "16"],  # 480 flows with ways of their own, in lists
        ["--op", "AllToAll", "--size", "1M"],  # 992 of them, in arrays
    ],
)
def test_bytes_of_links_are_those_on_the_wire_at_both_levels(words: list[str], tmp_path: Path) -> None:
    """Packets are counted one by one: data with its headers, and an ACK for each."""
    topology, found = DATA / "topology" / "specx32_H100_400G_psn4", []
    for level in ("flow", "packet"):
        prefix = f"{tmp_path}/{level}-"
        assert main(["network", "-n", str(topology), "--level", level, "-r", prefix, *words]) == 0
        lines = Path(f"{prefix}links.csv").read_text(encoding="utf-8").splitlines()[1:]
        found.append({line.split(",")[0]: int(line.split(",")[2]) for line in lines})
    assert found[0] == found[1]
