"""One flow for all that are alike gives every flow the time that it has when all are simulated."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.flows.collective import ORIGINAL_OPS
from simulation.network.flow_level.simulate import FlowRun, simulate
from simulation.network.flow_level.verb import flow_wishes
from simulation.network.flow_level.ways import SPREAD, Ways
from simulation.topology import command as topology
from tests.simulation.network.flow_runs import flow_level
from tests.simulation.network.recordings import recordings, request
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
    arguments = parser.parse_args([*options, "--force"])
    arguments.output, arguments.json, arguments.dialect = folder / "network", False, "clusterdyno"
    topology.run(arguments)
    return folder / "network"


def both(words: list[str]) -> tuple[FlowRun, FlowRun]:
    """A request's run, and its run in which every flow is simulated."""
    asked = request(words, dialect="clusterdyno")
    ways = Ways(asked.fabric, SPREAD)
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
