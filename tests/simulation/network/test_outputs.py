"""What `network` writes and says beside the recorded tables: traces, busy links, the critical path, SimAI's own run."""

from __future__ import annotations

import itertools
import json
import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulation.cli import main
from simulation.network import fast_forward
from simulation.network.critical import FlowGraph, critical_path
from simulation.network.engine import simulator_words
from simulation.network.even_use import even_use
from simulation.network.flow_level.port_routes import DPORT, PortRoutes
from simulation.network.flow_level.simulate import simulate
from simulation.network.flow_level.verb import flow_wishes
from simulation.network.flow_level.view import FairFlows
from simulation.network.outcome import NetworkRun
from simulation.network.packet_view import PacketFlows, link_use
from simulation.network.packets import network_of
from simulation.network.packets import simulate as simulate_packets
from simulation.network.profiles import Instance, Profile, Profiles
from simulation.network.request import NetworkRequest
from simulation.network.routing import Ints, ports_of
from simulation.topology.fabric import port_names
from tests.simulation.network import test_jobs
from tests.simulation.network.recordings import DATA, recordings, request, simulated
from tests.simulation.network.test_jobs import data_parallel, durations, network, pipeline, workload
from tests.simulation.network.trace_format import events_of

fabric = test_jobs.fabric


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_a_trace_has_the_form_that_viewers_read_and_the_times_of_the_run(
    level: str, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    words = ["-n", str(fabric), "-w", str(pipeline(tmp_path)), "-r", f"{tmp_path}/t-", "--trace", str(trace)]
    assert main(["network", *words, "--level", level, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    events = events_of(trace)
    spans = [each for each in events if each["ph"] == "X"]
    for rank in range(4):
        computed = sum(each["dur"] for each in spans if each["pid"] == rank and each["cat"] == "computation")
        assert computed == pytest.approx(4 * 60)
    assert max(each["ts"] + each["dur"] for each in spans) <= float(str(answer["iteration_us"]))
    assert len([each for each in events if each["ph"] == "s"]) > 4
    assert any(each["args"]["busy %"] > 0 for each in events if each["ph"] == "C")


def test_links_are_as_busy_as_the_bytes_that_the_flows_sent(fabric: Path, tmp_path: Path) -> None:
    found = request(["-n", str(fabric), "--op", "AllToAll", "--size", "400K", "--send-lat", "0"])
    run = simulated(found)
    sent = dict.fromkeys(port_names(found.fabric), 0)
    for source, size in zip(run.source.tolist(), run.size.tolist(), strict=True):
        sent[f"gpu{source}-leaf{source // 2}"] += size
    use = link_use(found.fabric, run, ports_of(found.fabric).bps)
    by_name = {link.name: link for link in use.links}
    for gpu in range(4):
        name = f"gpu{gpu}-leaf{gpu // 2}"
        # Its own packets with headers, and an ACK for each of what it received.
        packets = 3 * -(-int(run.size[0]) // 9000)
        assert by_name[name].sent_bytes == sent[name] + packets * (52 + 60)
        busy_ns = sum(by_name[name].shares) * run.bin_ns
        assert busy_ns == pytest.approx(by_name[name].sent_bytes * 8 / 100, rel=0.02)


def flows_of(level: str, found: NetworkRequest) -> tuple[FlowGraph[Any], int, int]:
    """The flows of a run, its first start and its last end."""
    if level == "flow":
        ways = PortRoutes(found.fabric)
        fair = simulate(ways, found.job, flow_wishes(found, ways))
        return FairFlows(fair), round(fair.first_start()), round(max(fair.rank_ends()))
    run = simulated(found)
    return PacketFlows(run, ports_of(found.fabric).bps), run.first_start, int(run.end.max())


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_the_critical_path_leads_from_the_first_flow_to_the_last_over_the_slow_link(level: str) -> None:
    """A ring's chain has a flow for each step; the slow NIC of GPU 1 holds its part of it up."""
    recording = recordings()["dp4tp8_16M_g32_H100_400_half_noecn"]
    topology = DATA / "topology" / recording["topology"]
    found = request(["-n", str(topology), "--op", "AllReduce", "--group", "DP", "--tp", "8", "--size", "4M"])
    flows, first, last = flows_of(level, found)
    count, steps = critical_path(found.job, flows, 100)
    assert count == len(steps) == 2 * (4 - 1)
    assert critical_path(found.job, flows, 2) == (count, steps[-2:])
    assert steps[-1].end == last and steps[0].begin == first
    assert all(one.end <= other.begin for one, other in itertools.pairwise(steps))
    names = port_names(found.fabric)
    slow = [step for step in steps if "gpu3-" in names[step.port] or names[step.port].endswith("-gpu3")]
    assert slow and max(steps, key=lambda step: step.end - step.begin) in slow
    assert all(step.busy > 0.8 for step in slow)


def test_the_critical_path_goes_on_over_what_a_rank_waited_for_before(tmp_path: Path) -> None:
    """Each of two rows is a ring of one step each way between two GPUs; the last flow of a row leads to the next."""
    (tmp_path / "network").write_text("3 2 0 1 2 H100\n2\n0 2 100Gbps 0.0005ms 0\n1 2 100Gbps 0.0005ms 0\n")
    row = "-1 500 ALLREDUCE 1048576 0 NONE 0 0 NONE 0 100\n"
    head = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 2\n2\n"
    (tmp_path / "rows.txt").write_text(f"{head}one {row}two {row}", encoding="utf-8")
    found = request(["-n", str(tmp_path / "network"), "-w", str(tmp_path / "rows.txt")], "clusterdyno")
    run = simulated(found)
    count, steps = critical_path(found.job, PacketFlows(run, ports_of(found.fabric).bps), 100)
    assert count == 4 and [step.collective for step in steps] == [0, 0, 1, 1]
    assert [step.idle_ns > 3000 for step in steps] == [True] * 4


@pytest.mark.parametrize("words", ["--op AllToAll", "--op AllReduce --group DP --tp 8"])
def test_the_busiest_link_of_a_step_is_the_one_that_most_bytes_come_to_meanwhile(words: str) -> None:
    """Beside a loop over all flows and the ways that the hash gives them."""
    topology = DATA / "topology" / "specx32_H100_400G_psn4"
    found = request(["-n", str(topology), "--size", "4M", *words.split()])
    ways = PortRoutes(found.fabric)
    run = simulate(ways, found.job, flow_wishes(found, ways))
    assert run.collide is ("AllToAll" in words)
    flows = [
        (begin, end, each, ways.path(each.source, each.target, each.sport + number * each.stride, DPORT))
        for each in run.groups()
        for number, (begin, end) in enumerate(zip(*run.times(each.number, each.kind), strict=True))
    ]
    _count, steps = critical_path(found.job, FairFlows(run))
    for step in (steps[0], steps[-1]):
        busy, users = dict[int, float](), dict[int, int]()
        for begin, end, each, path in flows:
            within = max(min(end, step.end) - max(begin, step.begin), 0)
            for port in path:
                took = each.size * 8e9 / ways.link(port).bps
                busy[port] = busy.get(port, 0.0) + within / (end - begin) * took / (step.end - step.begin)
                users[port] = users.get(port, 0) + (within > 0)
        pair = step.source, step.target
        own = {port for _begin, _end, each, path in flows if (each.source, each.target) == pair for port in path}
        assert step.port in own and busy[step.port] == pytest.approx(max(busy[port] for port in own), rel=1e-3)
        # Headers are on the links, too.
        assert step.busy == pytest.approx(min(busy[step.port], 1.0), rel=0.01) and step.shared == users[step.port] - 1


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of `network` beside SimAI's simulator, but for --simulator; temporary folders are in `private`."""
    recording = recordings()["tp8_ag_A100"]
    conf = tmp_path / "SimAI.conf"
    conf.write_text("CC_MODE 1\nFLOW_FILE /etc/flow.txt\nFCT_OUTPUT_FILE /etc/fct.txt\nBUFFER_SIZE 32\n")
    (tmp_path / "private").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "private"))
    words = ["-w", str(DATA / "workload" / recording["workload"]), "-n", str(DATA / "topology" / recording["topology"])]
    words += ["--dialect", "simai", "-r", f"{tmp_path}/e-", "--seed", "1", "--conf", str(conf), "--engine", "simai"]
    return ["network", *words, "--force"]


def test_gpus_that_an_edit_slowed_down_are_not_for_simai(
    engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited, at = tmp_path / "edited", engine.index("-n") + 1
    assert main(["topology", "edit", engine[at], "--slow-gpu", "1:0.5", "--output", str(edited)]) == 0
    engine[at] = str(edited)
    assert main([*engine, "--simulator", "true"]) == 2
    assert f"{edited}: has slow GPUs, which SimAI cannot simulate" in capsys.readouterr().err


def test_simais_own_run_stands_beside_ours(
    engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The simulator is a program that leaves a recorded run's files where the configuration says."""
    monkeypatch.setenv("AS_NVLS_ENABLE", "1")
    recording = recordings()["tp8_ag_A100"]
    (tmp_path / "table.csv").write_text(recording["csv"], encoding="utf-8")
    simulator = tmp_path / "simulator.py"
    simulator.write_text(
        "import os, shutil, sys\n"
        "from pathlib import Path\n"
        "from tests.simulation.network import recordings\n"
        "words = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
        "assert os.environ['AS_SEND_LAT'] == '3' and Path(words['-w']).exists() and Path(words['-n']).exists()\n"
        "assert 'AS_NVLS_ENABLE' not in os.environ\n"
        "conf = dict(line.split(None, 1) for line in Path(words['-c']).read_text().splitlines())\n"
        "assert conf['BUFFER_SIZE'] == '32' and Path(conf['FLOW_FILE'].strip()).read_text() == '0\\n'\n"
        "lines = recordings._lines()['tp8_ag_A100']\n"
        "Path(conf['FCT_OUTPUT_FILE'].strip()).write_text('\\n'.join(lines) + '\\n')\n"
        f"shutil.copy({str(tmp_path / 'table.csv')!r}, 'ncclFlowModel_EndToEnd.csv')\n",
        encoding="utf-8",
    )
    root = Path(__file__).resolve().parents[3]
    command = f"env PYTHONPATH={shlex.quote(str(root))} {sys.executable} {shlex.quote(str(simulator))}"
    assert main([*engine, "--json", "--simulator", command]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["simai"]["complete"] and answer["simai"]["flows"] == answer["flows"] == 448
    assert answer["makespan_us"] == pytest.approx(answer["simai"]["makespan_us"], rel=0.003)
    assert answer["iteration_of_rank_0_us"] == pytest.approx(answer["simai"]["total_us"], rel=0.003)
    assert main([*engine, "--simulator", command]) == 0
    said = capsys.readouterr().out
    assert "SimAI_simulator: 448 flows in" in said and "s, ours 448" in said
    assert f"iteration of rank 0: SimAI {answer['simai']['total_us']:.3f} us, ours " in said
    assert not [*(tmp_path / "private").iterdir()]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("false", 1, "SimAI_simulator ended with 1: it printed nothing"),
        ("sh -c 'echo no such GPU >&2; exit 3'", 1, "SimAI_simulator ended with 3: no such GPU"),
        ("sh -c 'kill -KILL $$'", 1, "SimAI_simulator ended with -9: it printed nothing"),
        ("true", 1, "SimAI_simulator wrote no flow: it did not simulate anything"),
        ("sh -c 'echo 0b000001 0b000101 1 > fct_output_file'", 1, "no flow in line 1 of fct_output_file: 0b000001 0b"),
        ("sh -c 'echo 0b000001 0b000101 1 2 3 4 -5 6 > fct_output_file'", 1, "no flow in line 1 of fct_output_file"),
        ("/no/such/simulator", 2, "--simulator /no/such/simulator: is no program here"),
        ("'", 2, "is no command: No closing quotation"),
    ],
)
def test_a_simulator_that_fails_is_told_and_leaves_nothing(
    command: str, code: int, said: str, engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert main([*engine, "--simulator", command]) == code
    assert said in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before and not [*(tmp_path / "private").iterdir()]


@pytest.mark.parametrize("command", ["./simulator", "sh ./simulator"])
def test_a_simulator_that_is_named_from_here_is_found_from_its_private_folder(
    command: str, engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "simulator").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "simulator").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert main([*engine, "--simulator", command]) == 1
    assert "SimAI_simulator ended with 3" in capsys.readouterr().err


def test_a_word_that_is_no_path_stays_though_a_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the name of a host, of an image, or a number."""
    monkeypatch.chdir(tmp_path)
    for name in ("image", "8"):
        Path(name).touch()
    assert simulator_words("env -u 8 image ./image")[1:] == ["-u", "8", "image", str(tmp_path / "image")]


@pytest.mark.parametrize(
    "table", ["", *(f"total exposed comm,1,total comp,2,total time,{end}" for end in ("", "-nan"))]
)
def test_a_simulator_whose_table_is_cut_did_not_complete(
    table: str, engine: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As SimAI's, which ends with exit code 0 then."""
    flow = "0b000001 0b000101 10000 100 2097152 3010 7000 7000"
    command = f"sh -c 'echo {flow} > fct_output_file; printf \"{table}\" > a_EndToEnd.csv'"
    assert main([*engine, "--simulator", command]) == 1
    said = capsys.readouterr().out
    assert "SimAI_simulator did not complete" in said and "SimAI_simulator: 1 flow in" in said
    assert "makespan: SimAI 7.000 us, ours" in said


def test_beside_simai_flows_that_were_not_kept_have_no_times_of_ours(
    engine: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = "0b000001 0b000101 10000 100 2097152 3010 7000 7000"
    command = f"sh -c 'echo {flow} > fct_output_file; echo a,total time,9 > a_EndToEnd.csv'"
    monkeypatch.setattr(fast_forward, "MOST_FLOWS", 10)
    assert main([*engine, "--fast-forward", "--simulator", command]) == 0
    said = capsys.readouterr().out
    assert "iteration of rank 0: SimAI 9.000 us, ours" in said
    assert "makespan: SimAI" not in said and "ours 0.000 us" not in said


def test_an_interruption_ends_the_simulator_and_what_it_started(
    engine: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "child"

    def interrupt(*_: object) -> None:
        if child.exists() and child.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("common.progress.StepProgress.advance", interrupt)
    assert main([*engine, "--simulator", f"sh -c 'sleep 600 & echo $! > {child}; wait'"]) == 130
    state = Path("/proc") / child.read_text().strip() / "stat"
    until = time.monotonic() + 60
    while state.exists() and ") Z " not in state.read_text():
        assert time.monotonic() < until, "it goes on"
        time.sleep(0.05)
    assert not [*(tmp_path / "private").iterdir()]


def test_simai_places_no_workload(engine: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"{word}@0-7" if word.endswith(".txt") else word for word in engine]
    assert words != engine and main([*words, "--simulator", "true"]) == 2
    assert "SimAI runs a workload on all GPUs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "less"),
    [
        (["--op", "AllReduce", "--size", "64M", "--tp", "8"], 2.5),
        (["--op", "AllReduce", "--size", "64M", "--group", "DP", "--tp", "8"], 20),
        (["--op", "AllToAll", "--size", "64M", "--tp", "8"], 4),
    ],
)
def test_what_is_skipped_changes_a_long_collective_by_less_than_a_hundredth(
    words: list[str], less: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = DATA / "topology" / recordings()["dp2_wgar_g16_A100"]["topology"]
    every = ["network", "-n", str(topology), *words, "-r", f"{tmp_path}/f-", "--json", "--seed", "3", "--force"]
    answers = []
    for more in ([], ["--fast-forward"]):
        assert main([*every, *more]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    whole, fast = answers
    for figure in ("makespan_us", "mean_over_ranks_us", "iteration_us"):
        assert fast[figure] == pytest.approx(whole[figure], rel=0.01)
    assert fast["flows_completed"] == whole["flows"] and fast["events"] * less < whole["events"]


@pytest.mark.parametrize("words", ["--op AllReduce --group DP --tp 8 --size 1M", "--op AllToAll --size 32M"])
def test_what_is_skipped_leaves_the_flows_their_counts_and_the_critical_path(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One collective, whose packets are marked in the second case, is nothing else than without."""
    topology, answers, texts = DATA / "topology" / "specx32_H100_400G_psn4", [], []
    for more in ([], ["--fast-forward"]):
        answers.append(network(["-n", str(topology), *words.split(), "-r", f"{tmp_path}/f-", *more], capsys))
        flows = [line.split() for line in (tmp_path / "f-fct.txt").read_text().splitlines()]
        page = (tmp_path / "f-network.html").read_text()
        links = [line.split(",")[:3] for line in (tmp_path / "f-links.csv").read_text().splitlines()[1:]]
        texts.append((sorted(flows), sorted(links), page[page.index("The critical path") :]))
    whole, fast = answers
    same = (
        "marks",
        "rate_decreases",
        "pauses",
        "lost_packets",
        "retransmissions",
        "deepest_queue_bytes",
        "makespan_us",
    )
    assert {name: fast[name] for name in same} == {name: whole[name] for name in same}
    assert (int(str(whole["marks"])) > 0) == ("AllToAll" in words) and texts[0] == texts[1]


def test_bytes_are_spread_evenly_over_the_times_of_their_flows() -> None:
    """Of three flows, of which the third did not end: two ports in bins of 256 ns."""
    path = np.array([[0, -1], [0, 1], [1, -1]], np.int32)
    start, end = np.array([0, 128, 5]), np.array([512, 384, -1])
    usage, bin_ns = even_use([(path, np.array([1001, 600, 70]))], start, end, 2)
    assert bin_ns == 256 and usage[:, 2:].sum() == 0 and usage[0].sum() == 1601
    assert usage[:, :2].tolist() == [[800, 801], [300, 300]]


def test_what_is_simulated_again_with_others_counts_as_it_was_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Gradients of a row are sent beside what the next row sends; alone these had another queue."""
    one_leaf = "".join(f"{gpu} 4 100Gbps 0.0005ms 0\n" for gpu in range(4))
    (tmp_path / "fabric").write_text(f"5 1 0 1 4 H100\n4\n{one_leaf}", encoding="utf-8")
    rows = ["row 100 NONE 0 100 ALLTOALL_EP 1048576 100 ALLREDUCE 4194304"] * 2
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 2"), encoding="utf-8")
    words = ["-n", str(tmp_path / "fabric"), "-r", f"{tmp_path}/q-", "-w", str(job)]
    whole, fast = network(words, capsys), network([*words, "--fast-forward"], capsys)
    assert int(str(fast["events"])) > int(str(whole["events"])), "parts are simulated again"
    assert fast["deepest_queue_bytes"] == whole["deepest_queue_bytes"]


def test_over_links_that_lose_packets_a_part_that_others_join_keeps_its_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of ranks exchange, and exchange gradients with another pair meanwhile: no event is planned in the past."""
    one_leaf = "".join(f"{gpu} 4 100Gbps 0.0005ms 0.002\n" for gpu in range(4))
    (tmp_path / "fabric").write_text(f"5 1 0 1 4 H100\n4\n{one_leaf}", encoding="utf-8")
    rows = ["row 100 NONE 0 100 ALLTOALL_EP 1048576 100 ALLREDUCE 4194304"] * 3
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 2"), encoding="utf-8")
    asked = request(["-n", str(tmp_path / "fabric"), "-w", str(job), "--send-lat", "0"], "clusterdyno")
    its = fast_forward.FastForward(network_of(asked.fabric, asked.wishes.conf), asked.job, asked.wishes)
    again, planned, before = 0, list[tuple[int, int]](), its._take
    monkeypatch.setattr(fast_forward, "FEW_EVENTS", 1 << 40)

    def take(cluster: fast_forward.Cluster, found: Profile, now: int) -> None:
        nonlocal again
        again += len(cluster.instances) > 1
        assert its.profiles.of(cluster.instances).end.tolist() == found.end.tolist()
        old = [each.copy() for each in (its.end, its._flows.end)]
        before(cluster, found, now)
        for ends, each in zip((its.end, its._flows.end), old, strict=True):
            over = (each >= 0) & (each <= now)
            assert ends[over].tolist() == each[over].tolist()
            assert (ends[(each > now)] >= now).all()

    plan = its._plan

    def note(when: int, kind: int, rank: int, number: int = 0) -> None:
        planned.append((its._now, when))
        plan(when, kind, rank, number)

    monkeypatch.setattr(its, "_take", take)
    monkeypatch.setattr(its, "_plan", note)
    run = its.run()
    assert run.lost > 0 and again > 0 and all(when >= now for now, when in planned)


def test_a_part_that_comes_later_does_not_change_which_packets_were_marked_before(tmp_path: Path) -> None:
    """The later one loses others: its collective has another number."""
    leaf = "".join(f"{gpu} 8 100Gbps 0.0005ms 0.0001\n" for gpu in range(8))
    (tmp_path / "fabric").write_text(f"9 1 0 1 8 H100\n8\n{leaf}", encoding="utf-8")
    asked = request(["-n", str(tmp_path / "fabric"), "--op", "AllToAll", "--size", "4M", "--tp", "4"], "clusterdyno")
    slow = asked.wishes.conf._replace(kmin={10**11: 0.0}, kmax={10**11: 1000.0}, pmax={10**11: 0.5})
    collectives = [*asked.job.collectives] * 2
    profiles = Profiles(network_of(asked.fabric, slow), collectives, asked.wishes._replace(conf=slow), [0, 1])
    first, later = (
        Instance(number, pair, dict.fromkeys(profiles.sketch(number, pair).senders, 10**9 * number))
        for number, pair in enumerate(collectives[0].schedules)
    )
    alone, together = profiles.of([first]), profiles.of([first, later])
    assert 0 < alone.counted.marks < together.counted.marks and alone.end.max() < 10**9
    assert together.end[: len(alone.end)].tolist() == alone.end.tolist()


@pytest.mark.parametrize("error", ["0", "0.01"])
def test_how_busy_links_were_is_counted_once_with_what_was_sent_again(
    error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the run that is written, not of those with shuffled starts; bytes are those of the event loop."""
    leaf = "".join(f"{gpu} 4 100Gbps 0.0005ms {error}\n" for gpu in range(4))
    (tmp_path / "fabric").write_text(f"5 1 0 1 4 H100\n4\n{leaf}", encoding="utf-8")
    counted = list[int]()

    def count(ways: Any, start: Ints, end: Ints, ports: int, more: Ints | int) -> tuple[Ints, int]:
        counted.append(ports)
        return even_use(ways, start, end, ports, more)

    monkeypatch.setattr(fast_forward, "even_use", count)
    words = ["network", "-n", f"{tmp_path}/fabric", "--op", "AllToAll", "--size", "4M", "-r"]
    assert main([*words, f"{tmp_path}/x-", "--fast-forward"]) == 0 == main([*words, f"{tmp_path}/y-"])
    assert counted == [8]
    tables = [(tmp_path / f"{prefix}-links.csv").read_text().splitlines()[1:] for prefix in "xy"]
    fast, whole = ({line.split(",")[0]: line.split(",")[2] for line in table} for table in tables)
    assert len(fast) == 8 and fast == whole


def test_bytes_that_are_sent_again_are_counted_in_every_part_of_a_job(
    fabric: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those that are over when the next one comes, and of the last: as many as the event loop counts in each."""
    fabric.write_text(fabric.read_text().replace("0.0005ms 0\n", "0.0005ms 0.01\n"), encoding="utf-8")
    rows = [f"{name} 90000000 ALLREDUCE 100000 0 NONE 0 0 NONE 0" for name in ("one", "two")]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text().replace("NPU_group: 1", "NPU_group: 4"), encoding="utf-8")
    asked = request(["-n", str(fabric), "-w", str(job)], "clusterdyno")
    its = fast_forward.FastForward(network_of(asked.fabric, asked.wishes.conf), asked.job, asked.wishes)
    used = list[Ints]()

    def note(*words: Any, **more: Any) -> NetworkRun:
        run = simulate_packets(*words, **more)
        used.append(run.usage.sum(axis=1))
        return run

    monkeypatch.setattr("simulation.network.profiles.simulate", note)
    run = its.with_use(its.run())
    assert run.resent > 0 and len(used) == 2
    assert run.usage.sum(axis=1).tolist() == (used[0] + used[1]).tolist()


def test_what_others_send_does_not_change_what_a_part_loses(tmp_path: Path) -> None:
    """Two pairs of ranks, which share no link, alone and together, with a second job and without."""
    one_leaf = "".join(f"{gpu} 4 100Gbps 0.0005ms 0.002\n" for gpu in range(4))
    (tmp_path / "fabric").write_text(f"5 1 0 1 4 H100\n4\n{one_leaf}", encoding="utf-8")
    words = ["-n", str(tmp_path / "fabric"), "--op", "AllToAll", "--size", "4M", "--tp", "2"]
    asked = request(words, "clusterdyno")
    profiles = Profiles(network_of(asked.fabric, asked.wishes.conf), asked.job.collectives, asked.wishes, [0])
    pairs = asked.job.collectives[0].schedules
    first, second = (
        Instance(0, pair, dict.fromkeys(profiles.sketch(0, pair).senders, when))
        for pair, when in zip(pairs, (5000, 0), strict=True)
    )
    alone, together = profiles.of([first]), profiles.of([second, first])
    assert together.end[len(profiles.of([second]).end) :].tolist() == alone.end.tolist()
    assert together.counted.lost > alone.counted.lost > 0
    row = ["row 0 ALLTOALL 4194304 0 NONE 0 0 NONE 0"]
    job = workload(tmp_path / "job.txt", row, "pp: 1 vpp: 1 ga: 1 all_gpus: 2 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("NPU_group: 1", "NPU_group: 2"), encoding="utf-8")
    placed = ["-n", str(tmp_path / "fabric"), "-w", f"{job}@2-3"]
    one, both = (simulated(request([*placed, *more], "clusterdyno")) for more in ([], ["-w", f"{job}@0-1"]))
    assert one.lost > 0 and one.end.tolist() == both.end[: len(one.end)].tolist()


def test_over_links_that_lose_a_packet_now_and_then_nothing_is_skipped(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the few packets that would be simulated in their stead none is."""
    fabric.write_text(fabric.read_text().replace("100Gbps 0.0005ms 0", "1000Gbps 0.00005ms 0.00003"))
    words = ["-n", str(fabric), "-r", f"{tmp_path}/l-", "--op", "AllGather", "--size", "200M", "--tp", "4"]
    whole, fast = network(words, capsys), network([*words, "--fast-forward"], capsys)
    for figure in ("lost_packets", "retransmissions", "makespan_us"):
        assert fast[figure] == whole[figure]
    # Each rank sends three quarters of the bytes; a packet and its ACK take two hops, or four to the other leaf.
    hops = 2 * 3 * (200 << 20) / 4 / 9000 * (2 + 4 + 2 + 4)
    assert int(str(fast["lost_packets"])) == pytest.approx(0.00003 * hops, abs=3.5 * (0.00003 * hops) ** 0.5)


def test_equal_groups_lose_packets_of_their_own(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fabric.write_text(fabric.read_text().replace("0.0005ms 0", "0.0005ms 0.001"))
    words = ["-n", str(fabric), "-r", f"{tmp_path}/l-", "--op", "AllReduce", "--size", "16M", "--tp", "2"]
    answer = network([*words, "--fast-forward"], capsys)
    assert int(str(answer["retransmissions"])) >= int(str(answer["lost_packets"])) > 0 == answer["pauses"]
    took = [(source // 2, us) for source, _target, us in durations(tmp_path / "l-fct.txt")]
    assert sorted(us for group, us in took if group == 0) != sorted(us for group, us in took if group == 1)


def test_port_numbers_begin_anew_for_each_part_of_those_that_are_simulated_together() -> None:
    """Else the ways that are told of them, and the digest that remembers them, would be those of other flows."""
    topology = DATA / "topology" / "specx32_H100_400G_psn4"
    asked = request(["-n", str(topology), "--op", "AllToAll", "--size", "1M"])
    network = network_of(asked.fabric, asked.wishes.conf)
    profiles = Profiles(network, asked.job.collectives * 2, asked.wishes, range(2))
    (schedule,) = asked.job.collectives[0].schedules
    sketch = profiles.sketch(0, schedule)
    parts = [Instance(number, schedule, dict.fromkeys(sketch.senders, 0)) for number in (0, 1)]
    run = simulate_packets(network, profiles._job(parts), profiles._wishes)
    assert run.sport.tolist() == sketch.sport.tolist() * 2
    assert run.path.tolist() == sketch.path.tolist() * 2


def test_data_that_meets_acks_in_a_long_beat_is_skipped_by_whole_beats(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A packet takes 724 ns and an ACK 4: the first 30 packets meet fewer ACKs than any later ones."""
    words = ["-n", str(fabric), "-r", f"{tmp_path}/b-", "--op", "AllGather", "--size", "40M", "--tp", "2"]
    whole, fast = network(words, capsys), network([*words, "--fast-forward"], capsys)
    assert float(str(fast["makespan_us"])) == pytest.approx(float(str(whole["makespan_us"])), rel=0.001)
    assert int(str(fast["events"])) < 0.25 * int(str(whole["events"]))


def test_an_iteration_is_the_same_with_what_is_skipped(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", str(fabric), "-r", f"{tmp_path}/i-", "-w", f"{data_parallel(tmp_path / 'job.txt')}@0-1"]
    whole, fast = network(words, capsys), network([*words, "--fast-forward"], capsys)
    assert whole["iteration_us"] == fast["iteration_us"]
    assert np.isclose(float(str(whole["makespan_us"])), float(str(fast["makespan_us"])))


def test_flows_too_many_to_keep_are_counted_and_leave_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = "-topo Spectrum-X -g 16 -gt A100 -bw 100Gbps -nvbw 2400Gbps -psn 4"
    assert main(["topology", *options.split(), "--output", str(tmp_path / "fabric")]) == 0
    capsys.readouterr()
    words = ["-n", str(tmp_path / "fabric"), "-r", f"{tmp_path}/", "--op", "AllGather", "--size", "1M", "--tp", "8"]
    kept = network([*words, "--fast-forward"], capsys)
    monkeypatch.setattr(fast_forward, "MOST_FLOWS", 10)
    many = network([*words, "--fast-forward"], capsys)
    assert many["flows"] == many["flows_completed"] == kept["flows"]
    for name in ("fct.txt", "links.csv"):
        assert not (tmp_path / name).exists() and f"{tmp_path}/{name}" not in str(many["files"])


def test_a_load_counts_by_the_part_that_runs_not_by_those_merged_with_it_long_ago() -> None:
    topology = DATA / "topology" / recordings()["dp2_wgar_g16_A100"]["topology"]
    asked = request(["-n", str(topology), "--op", "AllReduce", "--size", "64M", "--tp", "8"])
    network = network_of(asked.fabric, asked.wishes.conf)
    (schedule, *_others) = asked.job.collectives[0].schedules
    sketch = Profiles(network, asked.job.collectives, asked.wishes, range(1)).sketch(0, schedule)
    starts, took = (0, 10**10), 1_000_000
    parts = [Instance(0, schedule, dict.fromkeys(sketch.senders, when)) for when in starts]
    merged = fast_forward.Cluster(parts, [sketch] * 2)
    merged.ends = [np.full(len(sketch.size), when + took) for when in starts]
    merged.end = starts[1] + took
    assert merged.delays(sketch.mask, starts[1] + 1, network.ports)
    assert not merged.delays(sketch.mask, merged.end, network.ports)


def test_what_overlaps_too_much_is_tried_once_and_said(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    def give_up(its: fast_forward.FastForward, _finished: object) -> None:
        tried.append(its)
        raise fast_forward.OverlapsError

    monkeypatch.setattr(fast_forward.FastForward, "run", give_up)
    words = [
        "-n",
        str(fabric),
        "-r",
        f"{tmp_path}/o-",
        "--op",
        "AllGather",
        "--size",
        "1M",
        "--tp",
        "2",
        "--seeds",
        "2",
    ]
    assert main(["network", *words, "--fast-forward"]) == 0
    assert "--fast-forward was given up" in capsys.readouterr().out and len(tried) == 1
    header, busiest = (tmp_path / "o-links.csv").read_text(encoding="utf-8").splitlines()[:2]
    assert header.startswith("link,Gbps,bytes") and int(busiest.split(",")[2]) > 0


def test_a_pipeline_whose_gradients_meet_its_transfers_is_the_same_with_what_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts that have ended are not simulated again with those that follow, though these share links with them."""
    one_leaf = "".join(f"{gpu} 8 100Gbps 0.0005ms 0\n" for gpu in range(8))
    (tmp_path / "fabric").write_text(f"9 1 0 1 8 A100\n8\n{one_leaf}", encoding="utf-8")
    rows = ["gradients 1 NONE 0 1 NONE 0 1 ALLREDUCE 40000000", "step 1 NONE 0 1 NONE 0 1 ALLGATHER 20000000"]
    rows[1:1] = ["layer 10000 NONE 0 10000 NONE 0 10000 NONE 0"] * 6
    job = workload(tmp_path / "job.txt", rows, "pp: 4 vpp: 1 ga: 6 all_gpus: 8 pp_comm: 100000")
    words = ["-n", str(tmp_path / "fabric"), "-r", f"{tmp_path}/g-", "-w", str(job)]
    whole, tables = network(words, capsys), [(tmp_path / "g-EndToEnd.csv").read_text()]
    for most in (fast_forward.MOST_FLOWS, 10):
        monkeypatch.setattr(fast_forward, "MOST_FLOWS", most)
        fast = network([*words, "--fast-forward"], capsys)
        tables.append((tmp_path / "g-EndToEnd.csv").read_text())
        assert float(str(fast["iteration_us"])) == pytest.approx(float(str(whole["iteration_us"])), rel=0.001)
        assert int(str(fast["events"])) < 0.5 * int(str(whole["events"]))
    # What the first rank waited for between stages, with and without the times of single flows.
    first, *others = ([cell.split()[0] for cell in table.splitlines()[1].split(",")[5:7]] for table in tables)
    assert float(first[1]) > 100 and others == [first, first]
