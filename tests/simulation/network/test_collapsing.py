"""One flow for all that are alike gives every flow the time that it has when all are simulated."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.cli import main
from simulation.flows.names import ORIGINAL_OPS
from simulation.network.flow_level import many_steps, twins, verb
from simulation.network.flow_level import simulate as simulating
from simulation.network.flow_level.files import LinkLoads, write_flows
from simulation.network.flow_level.lanes import CostModel
from simulation.network.flow_level.net import HopNet, all_different, laid_out
from simulation.network.flow_level.port_routes import ECMP, SPREAD, PortRoutes
from simulation.network.flow_level.quotient import Builder, Classes, FlowLanes
from simulation.network.flow_level.refine import Likeness, Net, refine
from simulation.network.flow_level.simulate import FlowRun, simulate
from simulation.network.flow_level.verb import flow_wishes
from simulation.topology import command as topology
from simulation.topology.reading import read
from tests.simulation.network.flow_runs import flow_level
from tests.simulation.network.recordings import DATA, recordings, request
from tests.tiers import samples

ROW = "L -1 7000 {} 4000000 5000 {} 3000000 2000 {} 6000000 100\n"
HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: 1 pp: {pp} vpp: 1 ga: {ga} all_gpus: {gpus}"
)


def farthest(one: FlowRun, other: FlowRun) -> float:
    """The largest difference between the times of the same flow in two runs (ns)."""
    worst = 0.0
    for ours, theirs in zip(one.groups(), other.groups(), strict=True):
        for found, wanted in zip(
            one.times(ours.number, ours.kind), other.times(theirs.number, theirs.kind), strict=True
        ):
            worst = max(worst, *(abs(a - b) for a, b in zip(found, wanted, strict=True)))
    return worst


@pytest.mark.parametrize(
    ("name", "simulated"),
    [
        ("tp8_a2a_A100", 1),  # 8 ranks, each to all others
        ("tp8_ag_A100", 7),  # 7 steps of 8 rings of 8 ranks
        ("dp8_wgar_g16_A100", 56),  # 4 rings over two servers, whose hops are NVLink or NIC
        ("tp16_ar_g16_A100", 240),  # 8 rings across rails
        ("tp16_ar_g16_A100_pxn", 270),
        ("dp4tp8_16M_g32_H100_400_half", 30),  # one NIC at half speed
        ("micro_H100_nvls_lat3_t1", 16),
        ("dp8tp8_16M_g64_H100_400", 14),
    ],
)
def test_what_is_alike_is_simulated_once_with_the_times_of_all(name: str, simulated: int, tmp_path: Path) -> None:
    collapsed = flow_level(recordings()[name], tmp_path).run
    whole = flow_level(recordings()[name], tmp_path, apart=True).run
    assert (collapsed.simulated, whole.simulated) == (simulated, collapsed.flows)
    assert farthest(collapsed, whole) < 1e-4
    assert collapsed.finished == pytest.approx(whole.finished, abs=1)


def network(folder: Path, options: list[str]) -> Path:
    """A network file of a template."""
    import argparse

    parser = argparse.ArgumentParser()
    topology.add_arguments(parser)
    arguments = parser.parse_args(options, argparse.Namespace(dialect="clusterdyno"))
    arguments.output = folder / "network"
    topology.run(arguments)
    return folder / "network"


def both(words: list[str]) -> tuple[FlowRun, FlowRun]:
    """A request's run, and its run in which every flow is simulated."""
    asked = request(words, dialect="clusterdyno")
    ways = PortRoutes(asked.fabric, SPREAD)
    runs = [
        simulate(ways, asked.job, flow_wishes(asked, ways)._replace(apart=apart), "network") for apart in (False, True)
    ]
    return runs[0], runs[1]


@settings(max_examples=len(samples(15, 200)), deadline=None)
@given(
    op=st.sampled_from(ORIGINAL_OPS),
    tp=st.sampled_from([1, 2, 4, 8]),
    spines=st.integers(1, 4),
    kind=st.sampled_from([(), ("--ro",), ("--ro", "--dt"), ("--ro", "--dt", "--dp")]),
    size=st.integers(1000, 10_000_000),
)
def test_a_collective_on_any_template_collapses_without_an_error(
    op: str, tp: int, spines: int, kind: tuple[str, ...], size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("network")
    path = network(folder, ["-g", "16", "-gt", "H100", "-bw", "200Gbps", "-psn", str(2 * spines), *kind])
    group = ["--tp", str(tp), "--group", "DP"]
    collapsed, whole = both(["-n", str(path), "--op", op, "--size", str(size), *group])
    assert farthest(collapsed, whole) < 1e-3


@pytest.mark.parametrize(("tp", "pp"), [(4, 1), (8, 2), (4, 4)])
def test_a_whole_iteration_collapses_without_an_error(tp: int, pp: int, tmp_path: Path) -> None:
    path = network(tmp_path, ["-topo", "Spectrum-X", "-g", "32", "-gt", "H100", "-bw", "400Gbps", "-psn", "4"])
    rows = ROW.format("ALLREDUCE", "ALLGATHER", "REDUCESCATTER_DP_EP") + ROW.format(
        "NONE", "REDUCESCATTER", "ALLREDUCE"
    )
    header = HEADER.format(tp=tp, pp=pp, ga=4, gpus=32) + (" pp_comm: 2000000" if pp > 1 else "")
    workload = tmp_path / "w.txt"
    workload.write_text(f"{header}\n8\n{rows * 4}", encoding="utf-8")
    collapsed, whole = both(["-n", str(path), "-w", str(workload)])
    assert collapsed.complete and whole.complete
    assert collapsed.simulated < whole.simulated / 4
    # Events within half a nanosecond are one event, here of other flows than there.
    assert farthest(collapsed, whole) < 10
    assert collapsed.finished == pytest.approx(whole.finished, abs=10)


TP_ROWS = "L -1 7000 ALLREDUCE 4194304 5000 ALLGATHER 2097152 2000 NONE 0 100\n"
MIXED_ROWS = ROW.format("ALLREDUCE", "ALLGATHER", "REDUCESCATTER_DP_EP")
PAIR_ROWS = "L -1 7000 ALLTOALL 4000000 5000 ALLTOALL 5000 2000 NONE 0 100\n"


@pytest.mark.parametrize(
    ("rows", "more", "looked_at"),
    [
        ("", ["--op", "AllReduce", "--group", "DP", "--tp", "8", "--size", "1000000"], 4),  # one of 8 rings
        (TP_ROWS, [], 8),  # one of 8 parallel rings in one of 4 groups of one of 2 collectives
        (TP_ROWS, ["--straggler", "11:1.5"], 16),  # and of the straggler's group
        (MIXED_ROWS, [], 2 * 2 * 32 + 32),  # rings of two sizes, in two collectives that differ in which these are
        (PAIR_ROWS, [], 2 * 4 * 56),  # pairs of the second one differ in size
    ],
)
def test_copies_that_are_not_refined_get_the_colours_that_they_would_have(
    rows: str, more: list[str], looked_at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["-n", str(network(tmp_path, ["-topo", "Spectrum-X", "-g", "32", "-gt", "H100", "-bw", "400Gbps"])), *more]
    if rows:
        (tmp_path / "w.txt").write_text(f"{HEADER.format(tp=8, pp=1, ga=1, gpus=32)}\n1\n{rows}", encoding="utf-8")
        words += ["-w", str(tmp_path / "w.txt")]
    asked = request(words, dialect="clusterdyno")
    ways, net = PortRoutes(asked.fabric, SPREAD), HopNet(asked.job, 3000)
    laid = laid_out(net, ways, CostModel(ways, 9000, 100_000))
    assert laid is not None
    rank_kind = [asked.wishes.slowness.get(rank, 1.0) for rank in range(32)]
    counts = []

    def counted(some: Net) -> Likeness:
        counts.append(len(some.hop_kind))
        return refine(some)

    monkeypatch.setattr(twins, "refine", counted)
    found = twins.alike(net, laid, ways, rank_kind)
    assert sum(counts) == looked_at
    every = range(len(net.hops))
    wanted = twins.refined(net, laid, ways, rank_kind, twins.hop_kinds(net, laid), every, every)
    assert found.links.keys() == wanted.links.keys()
    for ours, theirs in (
        (found.hops, wanted.hops),
        (found.ranks, wanted.ranks),
        ([found.links[port] for port in wanted.links], list(wanted.links.values())),
    ):
        assert len(set(zip(ours, theirs, strict=True))) == len(set(ours)) == len(set(theirs))


@pytest.mark.parametrize("op", ["AllToAll", "AllReduce"])
@pytest.mark.parametrize("kind", [["-topo", "Spectrum-X"], ["--ro", "--dt"]])  # with two ports a GPU chooses, too
def test_ways_that_are_found_at_once_are_those_found_one_by_one(op: str, kind: list[str], tmp_path: Path) -> None:
    path = network(tmp_path, [*kind, "-g", "32", "-gt", "H100", "-bw", "400Gbps", "-psn", "4"])
    asked = request(["-n", str(path), "--op", op, "--size", "8M"], dialect="clusterdyno")
    ways, net = PortRoutes(asked.fabric, ECMP), HopNet(asked.job, 3000)
    model, lanes = CostModel(ways, 9000, 100_000), []
    for at_once in (False, True):
        classes = Classes(net, all_different(net, 32, ()))
        builder = Builder(classes)
        own = FlowLanes(builder, model)
        for number in (0, 1):
            builder.add(number, lambda _colour: 0, classes.hops_of_key[0])
            own.add(classes.hops_of_key[0])
        own.finish(at_once=at_once)
        lanes.append(list(lane_texts(builder)))
    assert lanes[0] == lanes[1]
    assert len(set(lanes[0])) > 32


def lane_texts(builder: Builder) -> Iterator[str]:
    """What the lane of each flow takes of which links."""
    lanes, ports = builder.book.columns(), list(builder.book.numbers)
    for lane in builder.flow_lane:
        begin, end = lanes.load_begin[lane], lanes.load_begin[lane + 1]
        loads = zip(lanes.load_link[begin:end], lanes.load_cost[begin:end], lanes.load_burst[begin:end], strict=True)
        wait = slice(lanes.wait_begin[lane], lanes.wait_begin[lane + 1])
        waits = zip(lanes.wait_link[wait], lanes.wait_byte[wait], strict=True)
        yield str(
            (
                lanes.data_end[lane] - begin,
                [(ports[link], *figures) for link, *figures in loads],
                [(ports[link], half) for link, half in waits],
                lanes.delay[lane],
            )
        )


@pytest.mark.parametrize("template", ["Spectrum-X", "DCN+", "AlibabaHPN"])
def test_each_step_of_all_ways_carries_all_bytes(template: str, tmp_path: Path) -> None:
    path = network(tmp_path, ["-topo", template, "-g", "64", "-gt", "H100", "-bw", "400Gbps"])
    ways = PortRoutes(read(path).fabric)
    for source, target in itertools.permutations(range(0, 64, 7), 2):
        shares, steps = ways.shares(source, target), ways.steps(source, target)
        assert sorted(shares) == sorted(itertools.chain.from_iterable(steps))
        assert [sum(shares[port] for port in ports) for ports in steps] == pytest.approx([1.0] * len(steps))


@pytest.mark.parametrize("never_begun", [0, 300])
def test_loads_and_lines_that_are_made_at_once_are_those_of_the_flows_one_by_one(
    never_begun: int, tmp_path: Path
) -> None:
    path = network(tmp_path, ["-topo", "Spectrum-X", "-g", "32", "-gt", "H100", "-bw", "400Gbps", "-psn", "4"])
    asked = request(["-n", str(path), "--op", "AllToAll", "--size", "8M"], dialect="clusterdyno")
    ways = PortRoutes(asked.fabric, ECMP)
    run = simulate(ways, asked.job, flow_wishes(asked, ways), "network")
    assert run.collide
    begin, end = run.first_start(), max(run.rank_ends())
    for flow in range(never_begun):
        run.work.built.state.start[flow] = run.work.built.state.end[flow] = -1.0
    files = [tmp_path / "at once", tmp_path / "one by one"]
    write_flows(files[0], run, ways, 9000)
    at_once = LinkLoads(run, ways, begin, end, 9000)
    run.work.built = run.work.built._replace(free=True, sent=None)
    one_by_one = LinkLoads(run, ways, begin, end, 9000)
    write_flows(files[1], run, ways, 9000)
    lines = [file.read_text(encoding="ascii").splitlines() for file in files]
    assert lines[0] == lines[1] and len(lines[0]) == 32 * 31 - never_begun
    assert at_once.loads.keys() == one_by_one.loads.keys()
    for port, loads in at_once.loads.items():
        assert loads == pytest.approx(one_by_one.loads[port], rel=1e-9, abs=1e-3)


@pytest.mark.parametrize(("gpus", "size"), [(256, "64M"), (512, "1G")])
def test_a_ring_of_many_steps_takes_as_long_as_one_of_fewer_tells(
    gpus: int, size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = ["-topo", "Spectrum-X", "-g", str(gpus), "-gps", "2", "-gt", "H100", "-bw", "400Gbps", "-psn", "4"]
    words = ["-n", str(network(tmp_path, template)), "--op", "AllReduce", "--group", "DP", "--tp", "2", "--size", size]
    asked = request(words, dialect="clusterdyno")
    ways = PortRoutes(asked.fabric, SPREAD)
    whole = simulate(ways, asked.job, flow_wishes(asked, ways), "network")
    monkeypatch.setattr(simulating, "MOST_LINES", 0)
    monkeypatch.setattr(many_steps, "FEWEST", 120)
    short = simulate(ways, asked.job, flow_wishes(asked, ways), "network")
    assert short.simulated == whole.simulated * 120 // (gpus - 2) and short.flows == whole.flows
    assert short.steps == (120, gpus - 2) and whole.steps is None
    assert short.finished == pytest.approx(whole.finished, rel=0.001)
    assert max(short.rank_ends()) == pytest.approx(max(whole.rank_ends()), rel=0.001)


def test_what_is_not_simulated_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The steps of a ring that go on linearly, and bytes by which flows differ that are taken as equal."""
    template = ["-topo", "Spectrum-X", "-g", "256", "-gps", "2", "-gt", "H100", "-bw", "400Gbps", "-psn", "4"]
    words = ["network", "--level", "flow", "--routing", "spread", "-n", str(network(tmp_path, template)), "--json"]
    words += ["--op", "AllReduce", "--group", "DP", "--tp", "2", "-r", f"{tmp_path}/", "--force", "--size"]
    capsys.readouterr()
    texts = ("120 of 254 steps are simulated, the rest goes on linearly", "that differ by 1 bytes are taken as equal")
    for size, equal in (("64M", 0), ("67108865", 1)):
        assert main([*words, size]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert (answer["steps_simulated"], answer["steps"], answer["bytes_taken_as_equal"]) == (None, None, equal)
        assert (texts[1] in (tmp_path / "network.html").read_text(encoding="utf-8")) == bool(equal)
    for module in (simulating, verb):
        monkeypatch.setattr(module, "MOST_LINES", 0)
    monkeypatch.setattr(many_steps, "FEWEST", 120)
    assert main([*words, "64M"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["steps_simulated"], answer["steps"]) == (120, 254)
    assert texts[0] in (tmp_path / "network.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "flows"),
    [
        (["--op", "AllReduce", "--tp", "8"], 2 * 4 * 4 * 6),  # in two servers 4 rings of 4 ranks
        (["--op", "AllReduce", "--group", "DP", "--tp", "8"], 2 * 4 * 6),  # over 4 servers a ring for each of 2 rails
        (["--op", "AllReduce", "--tp", "16", "--algorithm", "tree"], 2 * 3 * 2 * 64),  # 3 edges of a tree, up and down
        (["--op", "AllToAll", "--group", "DP", "--tp", "4", "--routing", "rail"], 2 * 8 * 7),
    ],
)
def test_a_colouring_that_is_wrong_is_noticed_and_told_and_nothing_collapses(
    words: list[str],
    flows: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = network(tmp_path, ["-topo", "Spectrum-X", "-g", "64", "-gt", "A100", "-bw", "100Gbps", "-psn", "8"])
    words = ["network", "--level", "flow", "-n", str(path), "-r", f"{tmp_path}/", "--force", *words, "--size", "16M"]

    def answered() -> tuple[dict[str, Any], str]:
        capsys.readouterr()
        assert main([*words, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        return answer, (tmp_path / "network.html").read_text(encoding="utf-8")

    right, page = answered()
    assert right["collapsing"]["agrees"] and right["flows_simulated"] < right["flows"]
    assert right["collapsing"]["flows"] == flows > right["collapsing"]["simulated"]
    assert "checked on a small case" in page

    def blind(net: Net) -> Likeness:
        """All hops are alike that have the same links' kinds; links that nobody shares count as those that are."""
        return Likeness([0] * len(net.hop_kind), refine(net).links, [0] * len(net.rank_kind))

    monkeypatch.setattr(twins, "refine", blind)
    wrong, page = answered()
    assert not wrong["collapsing"]["agrees"] and wrong["collapsing"]["farthest_ns"] > 1
    assert "checked on a small case" not in page and "each flow is simulated: on a small case" in page
    assert wrong["flows_simulated"] == wrong["flows"] == right["flows"]
    assert wrong["makespan_us"] == pytest.approx(right["makespan_us"], abs=0.01)


def test_what_few_flows_send_is_not_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = network(tmp_path, ["-topo", "Spectrum-X", "-g", "16", "-gt", "A100", "-bw", "100Gbps"])
    words = ["network", "--level", "flow", "-n", str(path), "-r", f"{tmp_path}/", "--json", "--op", "AllGather"]
    capsys.readouterr()
    assert main([*words, "--group", "DP", "--tp", "8", "--size", "1M"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["collapsing"] is None and answer["flows_simulated"] < answer["flows"]


@pytest.mark.parametrize("name", ["hpn32_dualtor_H100_200G_psn8", "specx32_H100_400G_psn4_leaf39spine47_200"])
def test_all_ways_share_the_bytes_evenly_at_each_node(name: str) -> None:
    """What is remembered of leaves gives each pair what it gets when its ways are followed one by one."""
    ways = PortRoutes(read(DATA / "topology" / name).fabric, SPREAD)

    def followed(node: int, target: int, part: Fraction, found: dict[int, Fraction]) -> None:
        ports = ways.next_ports(node, target) if node != target else ()
        for port in ports:
            found[port] += part / len(ports)
            followed(ways.peer[port], target, part / len(ports), found)

    for source, target in itertools.permutations((0, 3, 9, 17, 31), 2):
        wanted: dict[int, Fraction] = defaultdict(Fraction)
        followed(source, target, Fraction(1), wanted)
        assert ways.shares(source, target) == pytest.approx({port: float(part) for port, part in wanted.items()})
