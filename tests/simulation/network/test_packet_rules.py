"""Rules of the packet level one by one: the lines of ns-3, order of receipts, chunks under way, marks, jobs."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from simulation.cli import main
from simulation.network.event_heap import RELEASED
from simulation.network.flow_file import FlowFile
from simulation.network.flow_level.port_routes import PortRoutes
from simulation.network.flow_level.simulate import simulate as simulate_rates
from simulation.network.flow_level.verb import flow_wishes
from simulation.network.outcome import NetworkRun
from simulation.network.packet_loop import complete
from simulation.network.packet_state import NONE, Simulation
from simulation.network.packets import network_of, prepared, simulate
from tests.simulation.network.recordings import DATA, arguments, lines_of, recordings, request, simulated
from tests.simulation.network.test_jobs import workload

SAME_LINES = [
    "micro_H100_nvls_lat3_t1", "micro_H100_nvls_lat3_t2", "micro_H100_nvls_H800lat0", "dp2_wgar_g16_A100",
    "dp2tp8_64M_g16_H100_400", "dp8tp8_16M_g64_H100_400",
]  # fmt: skip
OTHER_TURNS = ["tp8_ag_A100", "tp8_rs_A100", "tp8_ar_g16_A100", "megatron_tp8dp2_g16_A100"]
IDEAL, START, TOOK = 7, 5, 6  # columns


def our_lines(name: str, folder: Path) -> list[list[str]]:
    """The cells of our fct.txt of a recorded command."""
    found = request(arguments(recordings()[name], folder))
    network = network_of(found.fabric, found.wishes.conf)
    file = FlowFile(folder / "fct.txt", network)
    simulate(network, found.job, found.wishes, file.write)
    file.close()
    return [line.split() for line in file.path.read_text(encoding="ascii").splitlines()]


def bag(cells: list[list[str]], *columns: int) -> Counter[tuple[str, ...]]:
    """How often each row of some columns, by default all, is there."""
    return Counter(tuple(row[at] for at in columns or range(len(row))) for row in cells)


@pytest.mark.parametrize("name", SAME_LINES)
def test_every_line_of_the_flows_is_ns3s(name: str, tmp_path: Path) -> None:
    assert bag(our_lines(name, tmp_path)) == bag(lines_of(name))


@pytest.mark.parametrize("name", OTHER_TURNS)
def test_of_rings_that_start_at_once_the_lines_are_ns3s_but_for_their_turns(name: str, tmp_path: Path) -> None:
    """The flows of a pair of GPUs that start together: which of them, by its port, takes which of the times."""
    ours, theirs = our_lines(name, tmp_path), lines_of(name)
    columns = (0, 1, 3, 4, START, TOOK, IDEAL)
    assert bag(ours, *columns) == bag(theirs, *columns)
    assert bag(ours, 0, 1, 2) == bag(theirs, 0, 1, 2)


@pytest.mark.parametrize("name", ["a2a16_16M_g16_DCN1leaf_nic50_buf2", "tp8_a2a_A100", "a2a16_16M_g16_H100_400"])
def test_of_an_alltoall_every_line_is_ns3s_but_for_its_time(name: str, tmp_path: Path) -> None:
    """Flows that start at once take turns in another order; the ideal time is over the leaf that a server shares."""
    ours, theirs = our_lines(name, tmp_path), lines_of(name)
    columns = (0, 1, 2, 3, 4, START, IDEAL)
    assert bag(ours, *columns) == bag(theirs, *columns)


# Two leaves with two GPUs each, of which GPU 0 and 2 are on the first, and one spine.
LINKS = ["0 4", "2 4", "1 5", "3 5", "4 6", "5 6"]


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    return written(tmp_path / "fabric", LINKS)


def written(path: Path, links: list[str], tail: str = "0.0005ms 0") -> Path:
    """A network of GPUs, each a server, and switches, whose ids follow; the links have 100 Gbit/s."""
    ends = [tuple(map(int, each.split())) for each in links]
    nodes, first = 1 + max(max(each) for each in ends), min(max(each) for each in ends)
    head = f"{nodes} 1 0 {nodes - first} {len(links)} A100\n{' '.join(map(str, range(first, nodes)))}\n"
    path.write_text(head + "".join(f"{each} 100Gbps {tail}\n" for each in links), encoding="utf-8")
    return path


def answered(words: list[str], capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["network", "--force", "--send-lat", "0", *words, "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_two_probes_tell_by_how_much_the_typical_time_is_above_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The probes are the runs of seeds 1 and 2; rings across rails drift apart."""
    topology = DATA / "topology" / recordings()["tp16_ar_g16_A100"]["topology"]
    words = ["-n", str(topology), "--op", "AllReduce", "--size", "4M", "--send-lat", "3", "-r", f"{tmp_path}/p-"]
    asked = request(words, "clusterdyno")
    times = sorted(simulated(asked, seed).makespan_us for seed in range(3))
    answer = answered(words, capsys)
    above = 100 * (median(times) / times[0] - 1)
    assert times[-1] > 1.005 * times[0] and above > 0
    assert (answer["stable"], answer["makespans_us"]) == (False, times)
    assert (answer["median_us"], answer["typical_above_best_percent"]) == (times[1], round(above, 2))
    assert main(["network", "--force", *words]) == 0
    said = f"unstable: {times[0]:.3f} to {times[2]:.3f} us, median {times[1]:.3f} us over 3 orders of starts; "
    said += f"typical is {above:.1f} % above the best case; --seeds 8 gives the band"
    assert said in capsys.readouterr().out


def test_rank_0_and_the_mean_over_ranks_are_those_of_the_flows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rank is done with the last flow that it sends or receives; GPU 3 has a slow link."""
    path = written(tmp_path / "fabric", ["0 4", "1 4", "2 4", "3 4"])
    path.write_text(path.read_text(encoding="utf-8").replace("3 4 100", "3 4 50"), encoding="utf-8")
    rows = ["row 1000 ALLTOALL_EP 400000 0 NONE 0 0 NONE 0"]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 2"), encoding="utf-8")
    answer = answered(["-n", str(path), "-w", str(job), "-r", f"{tmp_path}/r-", "--seed", "1"], capsys)
    cells = [line.split() for line in (tmp_path / "r-fct.txt").read_text(encoding="ascii").splitlines()]
    ends: dict[int, int] = defaultdict(int)
    for row in cells:
        for node in ((int(each, 16) >> 8) & 0xFFFF for each in row[:2]):
            ends[node] = max(ends[node], int(row[START]) + int(row[TOOK]))
    first = min(int(row[START]) for row in cells)
    assert sorted(ends) == [0, 1, 2, 3]
    assert answer["makespan_us"] == (max(ends.values()) - first) / 1000
    assert answer["rank_0_us"] == (ends[0] - first) / 1000
    assert answer["mean_over_ranks_us"] == (np.mean([*ends.values()]) - first) / 1000
    assert answer["rank_0_us"] < answer["mean_over_ranks_us"] < answer["makespan_us"]  # type: ignore[operator]


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_jobs_that_share_an_uplink_slow_each_other_and_others_do_not(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two pairs of GPUs send from leaf to leaf over one spine, a third pair is on a leaf of its own.

    Each GPU sends 4 MB, and the uplink those of two: at 100 Gbit/s and with 52 bytes to each 9000 that takes 643.7 us.
    """
    path = written(tmp_path / "fabric", ["0 6", "2 6", "1 7", "3 7", "4 8", "5 8", "6 9", "7 9", "8 9"])
    rows = ["layer 0 NONE 0 0 NONE 0 10000 ALLREDUCE 4000000"]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 2 pp_comm: 0")
    words = ["-n", str(path), "-r", f"{tmp_path}/j-", "--level", level]
    words += ["--seed", "1"] if level == "packet" else []

    def took(*places: str) -> list[float]:
        answer = answered([*words, *(word for each in places for word in ("-w", f"{job}@{each}"))], capsys)
        jobs = answer.get("jobs") or [answer]
        assert isinstance(jobs, list)
        return [each["iteration_us"] - 10 for each in jobs]

    (crossing,), (other,) = took("0-1"), took("4-5")
    one, two, apart = took("0-1", "2-3", "4-5")
    least = 2 * 4e6 * 8 / 100e3 * 9052 / 9000
    assert least < one < 1.05 * least and crossing < 0.7 * least
    assert [two, apart] == pytest.approx([one, other], abs=0.01)


def chunks_under_way(times: dict[tuple[int, int, int], list[tuple[float, float]]]) -> list[int]:
    """By hop the most flows that were under way at once."""
    most = []
    for each in times.values():
        moments = sorted([(begin, 1) for begin, _end in each] + [(end, -1) for _begin, end in each])
        most.append(max(np.cumsum([step for _moment, step in moments])))
    return most


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_a_tree_has_four_chunks_under_way_on_each_hop(level: str, fabric: Path, tmp_path: Path) -> None:
    """Of 64 on the way to a parent, over a channel, as fast as all links are."""
    words = ["-n", str(fabric), "--op", "AllReduce", "--size", "8M", "--algorithm", "tree", "-r", f"{tmp_path}/"]
    asked = request(words, "clusterdyno")
    (schedule,) = asked.job.collectives[0].schedules
    flows = sorted(schedule.flows(), key=lambda flow: flow.flow_id)
    assert min(Counter((flow.channel, flow.source, flow.target) for flow in flows).values()) > 8
    times: dict[tuple[int, int, int], list[tuple[float, float]]] = defaultdict(list)
    if level == "packet":
        run = simulated(asked)
        for flow, begin, end in zip(flows, run.start.tolist(), run.end.tolist(), strict=True):
            times[flow.channel, flow.source, flow.target].append((begin, end))
    else:
        ways = PortRoutes(asked.fabric)
        rates = simulate_rates(ways, asked.job, flow_wishes(asked, ways))
        for number, group in enumerate(rates.groups()):
            hop = number, group.source, group.target
            times[hop] = [*zip(*rates.times(group.number, group.kind), strict=True)]
    found = chunks_under_way(times)
    assert max(found) == 4 and min(found) >= 1


def ring(fabric: Path, op: str) -> Simulation:
    """A collective over four GPUs on one ring, before its first event."""
    asked = request(["-n", str(fabric), "--op", op, "--size", "4M", "-r", f"{fabric}-"], "clusterdyno")
    return prepared(network_of(asked.fabric, asked.wishes.conf), asked.job, asked.wishes)


def follow_one_another(sim: Simulation) -> tuple[int, int, int]:
    """Three flows that a rank receives from another one after another."""
    first = next(number for number in range(len(sim.flows)) if sim.flows[number]["before"] >= 0)
    second = int(sim.flows[first]["after"])
    return first, second, int(sim.flows[second]["after"])


@pytest.mark.parametrize(("op", "gap"), [("AllReduce", 10), ("ReduceScatter", 40), ("AllGather", 10)])
def test_receipts_that_came_too_early_are_handled_in_order_one_after_another(op: str, gap: int, fabric: Path) -> None:
    """Complete in reverse order: the receiver handles none before the first, and then takes its time for each."""
    sim = ring(fabric, op)
    first, second, *third = [each for each in follow_one_another(sim) if each != NONE]
    before, late = int(sim.flows[first]["before"]), [second, *third]
    sim.flows[before]["released"] = 1
    sim.totals["now"] = 1000
    for number in reversed(late):
        complete(sim, number)
    assert not sim.flows["released"][late].any() and not releases(sim)
    sim.totals["now"] = 5000
    complete(sim, first)
    assert sim.flows[first]["released"] and not sim.flows["released"][late].any()
    ((when, what),) = releases(sim)
    assert what == second and when in (5000 + gap, 5000 + gap + 30 * (op == "AllReduce"))


def releases(sim: Simulation) -> list[tuple[int, int]]:
    """Time (ns) and flow of the receipts that are to be handled."""
    events = sim.events[: int(sim.totals["heap"][0])]
    return sorted((int(each["time"]), int(each["about"])) for each in events if each["what"] == RELEASED)


def test_what_others_send_does_not_change_which_packets_are_marked(tmp_path: Path) -> None:
    """Two equal jobs on leaves of their own: each has marks of its own, which another seed changes."""
    path = written(tmp_path / "fabric", [f"{gpu} {8 + gpu // 4}" for gpu in range(8)])
    rows = ["row 0 ALLTOALL_EP 4000000 0 NONE 0 0 NONE 0"]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 4"), encoding="utf-8")

    def run(places: list[str], seed: int = 0) -> NetworkRun:
        words = [word for each in places for word in ("-w", f"{job}@{each}")]
        asked = request(["-n", str(path), "-r", f"{tmp_path}/", *words], "clusterdyno")
        conf = asked.wishes.conf._replace(kmin={10**11: 0.0}, kmax={10**11: 100.0}, pmax={10**11: 0.5})
        return simulated(asked._replace(wishes=asked.wishes._replace(conf=conf)), seed)

    one, both = run(["4-7"]), run(["4-7", "0-3"])
    ends = both.end.reshape(2, -1)
    assert both.marks > one.marks > 20
    assert one.end.tolist() == ends[0].tolist() != ends[1].tolist()
    assert run(["4-7"], 1).marks != one.marks
