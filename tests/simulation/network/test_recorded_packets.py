"""The packet level against recorded runs of SimAI's ns-3: the bars are those of docs/reference/simulation.md."""

from __future__ import annotations

import csv
import itertools
import json
import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from simulation.cli import main
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.window import window_bytes
from simulation.network.outcome import NetworkRun
from simulation.network.packets import routes_of
from simulation.network.routing import ports_of
from simulation.network.tables import IterationTimes
from simulation.topology.reading import read
from tests.simulation.network import levels
from tests.simulation.network.recordings import (
    DATA,
    Recording,
    Times,
    arguments,
    ours,
    recorded,
    recordings,
    request,
    simulated,
    times_of,
)

SEEDS = range(8)
ACCURACY = levels.FILE.with_name("packets-accuracy.csv")
# Every flow takes as long as in ns-3, to the nanosecond, and the table of the rows is the same, byte for byte.
EXACT = [
    "tp8_ag_A100", "tp8_rs_A100", "tp8_ar_g16_A100", "micro_A100_lat3", "micro_H100_ring_lat3", "micro_A100_deflat",
    "micro_H100_nvls_lat3_t1",
]  # fmt: skip
SLOWER_EXACT = ["micro_H100_ring_deflat", "micro_A100_lat3_nvls", "docs_H20_lat0", "docs_H20_lat6", "docs_H20_lat6000",
                "docs_H20_lat7200", "seed_128_A100", "micro_H100_nvls_lat3_t2", "micro_H100_nvls_H800lat0"]  # fmt: skip
# One ring a rail.
ONE_RING = ["dp2_wgar_g16_A100", "megatron_tp8dp2_g16_A100"]
SLOWER_ONE_RING = ["dp2tp8_64M_g16_H100_400", "dp8tp8_16M_g64_H100_400"]
STABLE = ["tp8_a2a_A100", "a2a16_16M_g16_H100_400"]
SLOWER_STABLE = [
    "a2a32_32M_g32_H100_400_noecn", "a2a32_32M_g32_H100_400_spinehalf_noecn",
    "ep8tp4_a2a16M_g32_H100_400_pxn", "dp4tp8_16M_g32_hpn_dualtor",
]  # fmt: skip


class Bar(NamedTuple):
    """Percent by which means over the seeds may be off: of the makespan, of its mean over ranks, of a flow's time."""

    makespan: float
    ranks: float
    flow: float


BARS = {
    "nearly stable": Bar(1.0, 1.0, 1.0),
    "asymmetric": Bar(3.0, 2.0, 3.0),
    "unstable": Bar(6.0, 6.0, 5.0),
    "100 marks or more": Bar(10.0, 10.0, 4.0),
    "fewer marks": Bar(15.0, 15.0, 7.0),
    "links that lose packets": Bar(2.0, 2.0, 2.0),
    "whole iterations with": Bar(10.0, 10.0, 10.0),
}
NEARLY_STABLE = {"dp8_wgar_g16_A100"}  # held to more than its class
OTHERS = [
    "dp8_wgar_g16_A100", "a2a16_16M_g16_DCN1leaf_nic50_buf2", "a2a16_16M_g16_H100_400_nic50", "dp2_err1e-4_g16_A100",
    "tp16_ar_g16_A100",
]  # fmt: skip
NAMED = [*EXACT, *SLOWER_EXACT, *ONE_RING, *SLOWER_ONE_RING, *STABLE, *SLOWER_STABLE, *OTHERS]
SLOWER_OTHERS = sorted(set(recordings()) - {*NAMED})
SERVER = 8  # GPUs of each recorded server


def class_of(name: str) -> str:
    """The class of a run that is not held to be stable, by what was sent and what ns-3 counted."""
    each = recordings()[name]
    header, _rows, *rows = (DATA / "workload" / each["workload"]).read_text(encoding="utf-8").splitlines()
    forward, gradients = ({row.split()[at] for row in rows if row.strip()} - {"NONE"} for at in (3, 9))
    if each["nacks"]:
        return "links that lose packets"
    if forward and gradients:
        return "whole iterations with"
    if each["marks"] >= 100 or each["pauses"]:
        return "100 marks or more"
    if each["marks"]:
        return "fewer marks"
    if int(header.split()[2]) > SERVER and forward != {"ALLTOALL"}:
        return "unstable"
    return "nearly stable" if name in NEARLY_STABLE else "asymmetric"


def nightly(names: list[str]) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.nightly) for name in names]


def off(found: float, wanted: float) -> float:
    """Percent."""
    return 100 * (found / wanted - 1)


def test_every_recording_has_its_bar_and_the_documentation_says_it() -> None:
    assert len(NAMED) == len({*NAMED} & {*recordings()})
    assert {class_of(name) for name in [*OTHERS, *SLOWER_OTHERS]} == {*BARS}
    with ACCURACY.open(encoding="utf-8", newline="") as file:
        _header, *rows = csv.reader(file)
    said = {what: cells for runs, *cells in rows for what in BARS if runs.startswith(what)}
    assert said.keys() == BARS.keys() - {"nearly stable"}
    for what, cells in said.items():
        found = [cell.split(" %")[0] for cell in cells]
        assert found == [f"within {each:g}" for each in BARS[what]], what


@pytest.mark.parametrize("name", sorted({name for name, each in recordings().items() if each["window_bytes"]}))
def test_window_and_longest_round_trip_are_those_of_ns3(name: str) -> None:
    each = recordings()[name]
    fabric = read(DATA / "topology" / each["topology"]).fabric
    found = window_bytes(PortRoutes(fabric), fabric.gpus, 9000)
    assert found == (each["window_bytes"], each["max_rtt_ns"])


@pytest.mark.parametrize("name", sorted({name for name, each in recordings().items() if each["next_hops"] is not None}))
def test_equal_next_hops_stand_in_the_order_of_ns3(name: str) -> None:
    """Of switches, which hash among them; ns-3 printed each list once."""
    fabric = read(DATA / "topology" / recordings()[name]["topology"]).fabric
    ports = ports_of(fabric)
    routes = routes_of(fabric)
    found = set()
    for switch, target in itertools.product(range(fabric.gpus, len(fabric.roles)), range(fabric.gpus)):
        begin, count = int(routes.begin[switch, target]), int(routes.counts[switch, target])
        if count > 1:
            found.add(" ".join(str(ports.peer[hop]) for hop in routes.hops[begin : begin + count]))
    assert sorted(found) == sorted(recordings()[name]["next_hops"] or ())


@pytest.mark.parametrize("name", [*EXACT, *ONE_RING, *nightly([*SLOWER_EXACT, *SLOWER_ONE_RING])])
def test_a_stable_collective_is_ns3s_to_the_nanosecond(name: str, tmp_path: Path) -> None:
    recording = recordings()[name]
    run = ours(recording, tmp_path)
    assert times_of(run).counted == recorded(name).counted
    assert name not in ONE_RING or recordings()[name]["deepest_bytes"] in (None, run.deepest_bytes)
    job = request(arguments(recording, tmp_path)).job
    table = "".join(IterationTimes(job, job.parts[0], run.of_rank(0)).lines())
    assert table == recording["csv"]


@pytest.mark.parametrize("name", [*STABLE, *nightly(SLOWER_STABLE)])
def test_stable_runs_are_within_three_thousandths(name: str, tmp_path: Path) -> None:
    run, wanted = ours(recordings()[name], tmp_path), recorded(name)
    found, deepest = times_of(run), recordings()[name]["deepest_bytes"]
    assert deepest is None or abs(off(run.deepest_bytes, deepest)) < 0.5
    assert abs(off(found.makespan, wanted.makespan)) < 0.3
    assert abs(off(found.mean, wanted.mean)) < 0.3
    assert abs(off(float(found.durations.mean()), float(wanted.durations.mean()))) < 0.3
    assert abs(off(found.zero, wanted.zero)) < 0.5
    for quantile in (0.5, 0.99):
        both = (float(np.quantile(each.durations, quantile)) for each in (found, wanted))
        assert abs(off(*both)) < 0.5, quantile


@pytest.mark.parametrize("name", [*EXACT[:2], "dp8_wgar_g16_A100", *nightly(sorted(recordings()))])
def test_the_table_of_the_documentation_says_what_the_packet_level_finds(name: str, tmp_path: Path) -> None:
    with levels.FILE.open(encoding="utf-8", newline="") as file:
        rows = {row[0]: row[-4:-1] for row in csv.reader(file)}
    found = levels.packet_cells(name, tmp_path)[:3]
    assert [float(each) for each in found] == pytest.approx([float(each) for each in rows[name]], abs=0.11)


@pytest.mark.parametrize("name", [*OTHERS, *nightly(SLOWER_OTHERS)])
def test_means_over_seeds_are_within_the_bar(name: str, tmp_path: Path) -> None:
    recording, wanted = recordings()[name], recorded(name)
    bar = BARS[class_of(name)]
    runs = [ours(recording, tmp_path, seed) for seed in SEEDS]
    found = [times_of(run) for run in runs]
    assert all(run.complete for run in runs)
    theirs = float(np.mean(recording["makespans_us"] or [wanted.makespan / 1000]))  # of all repeats
    makespan = off(float(np.mean([each.makespan for each in found])) / 1000, theirs)
    assert abs(makespan) < bar.makespan
    assert abs(off(float(np.mean([each.mean for each in found])), wanted.mean)) < bar.ranks
    durations = float(np.mean([each.durations.mean() for each in found]))
    assert abs(off(durations, float(wanted.durations.mean()))) < bar.flow
    _check_counts(name, runs)
    if class_of(name) in ("nearly stable", "asymmetric", "unstable"):
        _check_band(recording, [each.makespan / 1000 for each in found], wanted)


def _check_counts(name: str, runs: list[NetworkRun]) -> None:
    recording = recordings()[name]
    counts = (
        ("marks", recording["marks"]),
        ("rate_decreases", recording["rate_decreases"]),
        ("pauses", recording["pauses"]),
    )
    for what, wanted in counts:
        if wanted >= 100:
            assert 1 / 1.3 < np.mean([getattr(run, what) for run in runs]) / wanted < 1.3, what
    if recording["marks"] and recording["deepest_bytes"]:
        assert abs(off(float(np.mean([run.deepest_bytes for run in runs])), recording["deepest_bytes"])) < 20
    assert (recording["marks"] > 0) == any(run.marks for run in runs)
    assert (recording["pauses"] > 0) == any(run.pauses for run in runs)
    assert not recording["nacks"] or any(run.resent for run in runs)


def _check_band(recording: Recording, makespans: list[float], wanted: Times) -> None:
    """The band of ns-3's makespans over its repeats and ours, each 3 percent wider, meet."""
    theirs = recording["makespans_us"] or [wanted.makespan / 1000]
    assert 0.97 * min(makespans) <= 1.03 * max(theirs) and 0.97 * min(theirs) <= 1.03 * max(makespans)


def network(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and what was printed."""
    code = main(["network", "--force", *words])
    return code, capsys.readouterr().out


def test_a_collective_leaves_its_files_and_says_how_sure_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = DATA / "topology" / recordings()["tp16_ar_g16_A100"]["topology"]
    words = ["-n", str(topology), "-r", f"{tmp_path}/", "--json"]
    code, stable = network([*words, "--op", "AllGather", "--size", "1M", "--tp", "8"], capsys)
    assert code == 0
    answer = json.loads(stable)
    assert (answer["complete"], answer["stable"], answer["flows"]) == (True, True, 2 * 8 * 8 * 7)
    assert len((tmp_path / "fct.txt").read_text().splitlines()) == answer["flows"]
    assert (tmp_path / "EndToEnd.csv").read_text().count("\n") == 6
    code, shuffled = network([*words, "--op", "AllReduce", "--size", "16M", "--seeds", "3"], capsys)
    answer = json.loads(shuffled)
    assert (code, answer["stable"], len(answer["makespans_us"])) == (0, False, 4)
    assert answer["makespans_us"][0] <= answer["median_us"] <= answer["makespans_us"][-1]


def test_lost_packets_are_sent_again_and_all_arrive(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lossy = tmp_path / "lossy"
    whole = (DATA / "topology" / recordings()["dp2_wgar_g16_A100"]["topology"]).read_text(encoding="utf-8")
    lossy.write_text(re.sub(r"(100Gbps \S+) 0$", r"\1 0.01", whole, flags=re.MULTILINE), encoding="utf-8")
    words = ["-n", str(lossy), "-r", f"{tmp_path}/", "--json", "--op", "AllToAll", "--size", "16M", "--seed", "5"]
    code, printed = network(words, capsys)
    answer = json.loads(printed)
    assert (code, answer["complete"], answer["flows_completed"]) == (0, True, 16 * 15)
    assert answer["retransmissions"] >= answer["lost_packets"] > 20


def test_a_pause_loses_no_byte(tmp_path: Path) -> None:
    run = ours(recordings()["a2a16_16M_g16_DCN1leaf_nic50_buf2"], tmp_path)
    assert run.pauses > 100
    assert run.complete and run.lost == run.resent == 0


def test_the_order_of_links_in_the_file_changes_nothing(tmp_path: Path) -> None:
    """A ring in one server takes as long in whichever order the file lists the links."""
    recording = recordings()["tp8_ag_A100"]
    folder = tmp_path / "topology"
    lines = (DATA / "topology" / recording["topology"]).read_text(encoding="utf-8").splitlines()
    folder.write_text("\n".join([*lines[:2], *reversed(lines[2:])]) + "\n", encoding="utf-8")
    words = arguments(recording, tmp_path)
    words[words.index("-n") + 1] = str(folder)
    found = request(words)
    run = simulated(found)
    assert times_of(run).counted == recorded("tp8_ag_A100").counted
