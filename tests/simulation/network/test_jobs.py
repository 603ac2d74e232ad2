"""Pipelines, several jobs on one network, slow ranks and hosts, and links that go down during a run."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from common.errors import MistakeList
from common.summary import JsonValue
from protocol.finding import PartFinding
from run_benchmarks.results.host_findings import host_findings
from run_benchmarks.results.monitor_readings import read_sys_info
from simulation.analytical.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B, run_schedule
from simulation.cli import main
from simulation.network.answer import Sureness
from simulation.network.job import Job, JobPart, iterations
from simulation.network.measured import measured_faults
from simulation.network.row_files import tables_of
from simulation.topology.reading import read

# Two leaves with two GPUs each, over two spines; every GPU is a server of its own.
LINKS = ["0 4", "1 4", "2 5", "3 5", "4 6", "4 7", "5 6", "5 7"]
STAGES, BATCHES = 2, 4
ALL_HOSTS = "host0 host1 host2 host3"


@pytest.fixture
def fabric(tmp_path: Path) -> Path:
    path = tmp_path / "fabric"
    links = "".join(f"{ends} 100Gbps 0.0005ms 0\n" for ends in LINKS)
    path.write_text(f"8 1 0 4 {len(LINKS)} A100\n4 5 6 7\n{links}", encoding="utf-8")
    return path


def workload(path: Path, rows: list[str], sizes: str) -> Path:
    """A SimAI workload of rows `name forward collective bytes input collective bytes weight collective bytes`."""
    text = "".join("\t".join([row.split()[0], "-1", *row.split()[1:], "100"]) + "\n" for row in rows)
    header = f"HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 {sizes}"
    path.write_text(f"{header} checkpoints: 0 checkpoint_initiates: 0\n{len(rows)}\n{text}", encoding="utf-8")
    return path


def pipeline(folder: Path) -> Path:
    rows = ["one 10000 NONE 0 10000 NONE 0 10000 NONE 0", "two 10000 NONE 0 10000 NONE 0 10000 NONE 0"] * BATCHES
    return workload(folder / "pipeline.txt", rows, f"pp: {STAGES} vpp: 1 ga: {BATCHES} all_gpus: 4 pp_comm: 10000")


def data_parallel(path: Path) -> Path:
    return workload(
        path, ["layer 10000 NONE 0 10000 NONE 0 10000 ALLREDUCE 100000"], "pp: 1 vpp: 1 ga: 1 all_gpus: 2 pp_comm: 0"
    )


def network(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, object]:
    """The answer of a call that ends with `code`."""
    capsys.readouterr()
    assert main(["network", "--json", "--force", "--send-lat", "0", "--seed", "1", *words]) == code
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def took(words: list[str], capsys: pytest.CaptureFixture[str]) -> float:
    """The iteration in us."""
    return float(str(network(words, capsys)["iteration_us"]))


def durations(path: Path) -> list[tuple[int, int, float]]:
    """Source, target and duration (us) of each flow."""
    cells = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    return [((int(c[0], 16) >> 8) & 0xFFFF, (int(c[1], 16) >> 8) & 0xFFFF, int(c[6]) / 1000) for c in cells]


@pytest.mark.parametrize("schedule", [GPIPE, ONE_F_ONE_B, INTERLEAVED])
def test_a_pipeline_takes_as_long_as_its_schedule_says(
    schedule: str, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The oracle is the schedule in closed passes, with the transfer time that the flows had."""
    chunks = 2 if schedule == INTERLEAVED else 1
    words = ["-n", str(fabric), "-w", str(pipeline(tmp_path)), "-r", f"{tmp_path}/p-", "--schedule", schedule]
    found = took([*words, *(["--vpp", "2"] if chunks == 2 else [])], capsys)
    transfers = durations(tmp_path / "p-fct.txt")
    assert {abs(source - target) for source, target, _us in transfers} == {2}
    assert len(transfers) == 2 * 2 * BATCHES * (STAGES * chunks - 1)
    transfer = sum(us for _source, _target, us in transfers) / len(transfers)
    wanted = run_schedule(schedule, STAGES, BATCHES, chunks, 20.0, 40.0, transfer).makespan
    assert found == pytest.approx(wanted, rel=0.02)
    assert took([*words, "--fast-forward", *(["--vpp", "2"] if chunks == 2 else [])], capsys) == pytest.approx(
        found, rel=0.005
    )


@pytest.mark.parametrize("level", ["packet", "flow"])
@pytest.mark.parametrize(("ns", "warned"), [(1, True), (10_000, False)])
def test_a_workload_without_compute_times_is_named_with_the_command_that_makes_them(
    level: str, ns: int, warned: bool, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"layer {ns} NONE 0 {ns} NONE 0 {ns} ALLREDUCE 1000000"]
    path = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    assert main(["network", "-n", str(fabric), "-w", str(path), "-r", f"{tmp_path}/", "--level", level]) == 0
    answer = capsys.readouterr()
    said = "COMPUTATION IS 0 %" in answer.err and "workloads aiob" in answer.err
    assert said == warned == ("COMPUTATION IS 0 %" in answer.out)


def test_stages_that_do_not_fit_are_named(fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = pipeline(tmp_path)
    text = path.read_text(encoding="utf-8")
    for old, new, message in [
        ("ga: 4", "ga: 5", "the rows are not 5 equal micro-batches"),
        ("pp_comm: 10000", "pp_comm: 0", "must be the bytes of a transfer"),
    ]:
        path.write_text(text.replace(old, new), encoding="utf-8")
        assert main(["network", "-n", str(fabric), "-w", str(path), "-r", f"{tmp_path}/x-"]) == 2
        error = capsys.readouterr().err
        assert message in error and "pipeline.txt, line 1" in error
    assert not list(tmp_path.glob("x-*"))


def test_jobs_on_separate_links_take_their_own_time_and_share_no_gpu(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/j-"]
    alone = took([*words, "-w", f"{job}@0-1"], capsys)
    both = network([*words, "-w", f"{job}@0-1", "-w", f"{job}@2-3"], capsys)
    jobs = both["jobs"]
    assert isinstance(jobs, list)
    assert [each["iteration_us"] for each in jobs] == [alone, alone]
    tables = [(tmp_path / f"j-job-{number}-EndToEnd.csv").read_text(encoding="utf-8") for number in (0, 1)]
    assert tables[0].replace("job-0", "job-1") == tables[1]  # each names its own job
    assert main(["network", *words, "-w", f"{job}@0-1", "-w", f"{job}@1-2"]) == 2
    assert "GPU 1 has another job" in capsys.readouterr().err


def test_a_straggler_costs_what_it_computes_longer(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/s-", "-w", f"{job}@0-1"]
    sound, slow = took(words, capsys), took([*words, "--straggler", "1:1.3"], capsys)
    # It sends its first two pieces at once then: one of them may take a step longer, here 5 us.
    assert 0.3 * 30 <= slow - sound <= 0.3 * 30 + 5
    for wrong in ("9:2", "1:0.5", "one:2"):
        assert main(["network", *words, "--straggler", wrong]) == 2
        assert "--straggler" in capsys.readouterr().err


@pytest.mark.parametrize("level", [(), ("--fast-forward",), ("--level", "flow")])
def test_gradients_that_queue_up_behind_a_straggler_are_all_exchanged(
    level: tuple[str, ...], fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A fast rank has several to choose from when the slow one has only come to the first of them.
    rows = [f"layer{number} 50000 NONE 0 50000 NONE 0 40000 ALLREDUCE 1000000" for number in range(6)]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    words = ["network", "--json", "-n", str(fabric), "-w", str(job), "-r", f"{tmp_path}/q-", "--straggler", "1:3"]
    assert main([*words, *level]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["complete"] and answer["iteration_of_rank_0_us"] > 3 * 6 * 140


def test_a_link_that_comes_back_costs_time_and_no_byte(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", str(fabric), "-r", f"{tmp_path}/o-", "--op", "AllToAll", "--size", "400K"]
    sound = network(words, capsys)
    # One of two spines: what it carried is lost and sent again over the other.
    other_way = network([*words, "--outage", "leaf0-spine0@10:"], capsys)
    assert other_way["complete"] and float(str(other_way["makespan_us"])) > float(str(sound["makespan_us"]))
    assert int(str(other_way["retransmissions"])) >= int(str(other_way["lost_packets"])) > 0
    # The only link of a GPU: nothing moves before it is back.
    cut = network([*words, "--outage", "gpu1-leaf0@10:300"], capsys)
    assert cut["complete"] and float(str(cut["makespan_us"])) > 300
    assert len((tmp_path / "o-fct.txt").read_text(encoding="ascii").splitlines()) == 12


def test_a_run_that_does_not_complete_says_so_and_leaves_the_rows_that_ended(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        "first 1000 NONE 0 100000 ALLTOALL_EP 40000 0 NONE 0",
        "second 1000 ALLTOALL_EP 40000 0 NONE 0 0 NONE 0",
    ]
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 4"), encoding="utf-8")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/i-", "-w", str(job), "--outage", "gpu1-leaf0@50:"]
    answer = network(words, capsys, code=1)
    assert (answer["complete"], answer["flows"], answer["flows_completed"]) == (False, 24, 18)
    table = list(csv.reader((tmp_path / "i-EndToEnd.csv").read_text(encoding="utf-8").splitlines()))
    assert [row[0] for row in table[3:-2]] == ["second"] and table[1][0] == "incomplete"
    assert main(["network", *words, "--seed", "1", "--force"]) == 1
    assert "did not complete: 18 of 24 flows ended; 6 flows under way stopped" in capsys.readouterr().out


def test_a_flow_that_was_slowed_and_can_never_go_on_ends_the_run(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "early_marks.conf"
    conf.write_text("KMIN_MAP 1 100000000000 10\nKMAX_MAP 1 100000000000 40\nPMAX_MAP 1 100000000000 0.5\n")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/s-", "--op", "AllToAll", "--size", "4M", "--conf", str(conf)]
    answer = network([*words, "--outage", "gpu1-leaf0@100:"], capsys, code=1)
    assert int(str(answer["marks"])) > 0 and int(str(answer["rate_decreases"])) > 0
    assert (answer["complete"], answer["flows_completed"]) == (False, 6), "those between the three other GPUs"


def test_a_gpu_sends_on_by_its_port_though_the_ack_came_by_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two leaves for each GPU: the way back of a flow is by a hash of its own. Before, the last of its bytes stayed."""
    topology = tmp_path / "dual"
    made = ["-topo", "AlibabaHPN", "-g", "16", "-gps", "4", "-gt", "H20", "-bw", "200Gbps", "-psn", "8"]
    assert main(["topology", *made, "--output", str(topology)]) == 0
    words = ["-n", str(topology), "-r", f"{tmp_path}/d-", "--op", "AllToAll", "--size", "16M", "--tp", "16"]
    answer = network(words, capsys)
    assert answer["complete"] and answer["flows_completed"] == 240


def test_another_order_of_starts_that_does_not_complete_is_told_and_the_run_fails(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = "--op ReduceScatter --size 1M --send-lat 0"
    words = ["network", "-n", str(fabric), "-r", f"{tmp_path}/o-", *asked.split()]
    assert main([*words, "--json"]) == 0
    sound = json.loads(capsys.readouterr().out)
    assert sound["makespan_us"] < sound["makespans_us"][-1] - 0.5
    cut = (sound["makespan_us"] + sound["makespans_us"][-1]) / 2
    assert main([*words, "--force", "--json", "--outage", f"gpu*-leaf*@{cut:.3f}:"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["complete"] and answer["makespan_us"] == sound["makespan_us"] and answer["stable"] is False
    assert answer["makespans_us"] == [each for each in sound["makespans_us"] if each < cut]
    assert main([*words, "--force", "--outage", f"gpu*-leaf*@{cut:.3f}:"]) == 1
    assert "other orders did not complete" in capsys.readouterr().out


def test_orders_that_did_not_complete_leave_the_band_of_the_others() -> None:
    data: dict[str, JsonValue] = {}
    (said,) = Sureness([100.0, 110.0, 130.0], 8, 6).words(data)
    assert said.startswith("unstable: 100.000 to 130.000 us, median 110.000 us")
    assert said.endswith("; 6 of 8 other orders did not complete")
    assert data["stable"] is False and data["median_us"] == 110.0
    assert Sureness([100.0], 0, 2).words(data) == ["unstable: 2 of 2 other orders did not complete"]


@pytest.mark.parametrize(
    "wrong", ["gpu1-leaf0", "gpu9-leaf0@1:2", "gpu1-leaf0@5:4", "gpu1-leaf0@a:b", "gpu1-leaf0@1:2 gpu2-leaf1@3"]
)
def test_a_wrong_outage_is_named(wrong: str, fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-n", str(fabric), "-r", f"{tmp_path}/w-", "--op", "AllToAll", "--size", "1M", "--outage", wrong]
    assert main(["network", *words]) == 2
    assert f"--outage {wrong}" in capsys.readouterr().err
    assert not list(tmp_path.glob("w-*"))


def add_round(folder: Path, hosts: str, *findings: PartFinding) -> None:
    """One more round of a run, of these hosts in the order of their node ranks."""
    place = folder / "NETWORK" / f"round{1 + len([*folder.glob('*/round*')])}"
    place.mkdir(parents=True)
    nodes = [{"host": host, "node_rank": rank} for rank, host in enumerate(hosts.split())]
    record = {"nodes": nodes, "findings": [each.model_dump(mode="json") for each in findings]}
    (place / "round.json").write_text(json.dumps(record), encoding="utf-8")


def run_folder(folder: Path, finding: PartFinding) -> Path:
    """A run's folder with one round of three hosts, as far as a what-if reads it."""
    add_round(folder / "run", "host0 host1 host2", finding)
    return folder / "run"


def finding(part: str, host: str, device: str = "", **others: object) -> PartFinding:
    return PartFinding.model_validate(
        {
            "part": part, "hosts": host.split(), "device": device, "kind": "constant", "evidence": "slow",
            "share_of_expected": 0.5, "suggested_action": "replace it", "sentence": f"{host} is slow", **others,
        }
    )  # fmt: skip


def test_a_slow_host_costs_what_the_same_network_edited_by_hand_does(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["-r", f"{tmp_path}/h-", "-w", f"{job}@0-1"]
    folder = run_folder(tmp_path, finding("host", "host1"))
    answer = network(["-n", str(fabric), *words, "--what-if", str(folder)], capsys)
    costs = answer["what_if"]
    assert isinstance(costs, dict)
    assert costs["healthy_us"] == took(["-n", str(fabric), *words], capsys)
    assert main(["topology", "edit", str(fabric), "--degrade", "gpu1-leaf0:0.5", "--slow-gpu", "1:0.5"]) == 0
    assert costs["with_faults_us"] == took(["-n", f"{fabric}-whatif", *words], capsys)
    assert costs["cost_percent"] > 0.50


def test_a_host_that_several_rounds_found_slow_is_slowed_down_once(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", str(fabric), "-r", f"{tmp_path}/h-", "--op", "AllReduce", "--size", "1M", "--what-if"]
    folder = run_folder(tmp_path, finding("host", "host1"))
    once = network([*words, str(folder)], capsys)["what_if"]
    add_round(folder, "host1 host2", finding("host", "host1"))
    assert network([*words, str(folder)], capsys)["what_if"] == once


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("rack", "host0 host1", "r1"), ("rack", "host0", "r1")),  # a round without the rack's second host
        (("host", "host1", ""), ("host", "host1", "sending")),
        (("device", "host1", "mlx5_0"), ("device", "host1", "rail 0")),
    ],
)
def test_what_rounds_found_slow_by_other_hosts_or_names_is_slowed_down_once_by_their_median(
    one: tuple[str, str, str], other: tuple[str, str, str], fabric: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    words = ["-n", str(fabric), "-r", f"{tmp_path}/h-", "--op", "AllReduce", "--size", "1M", "--what-if"]
    once, twice = tmp_path / "once", tmp_path / "twice"
    add_round(once, "host0 host1 host2 host3", finding(*one))
    add_round(twice, "host0 host1 host2 host3", finding(*one, share_of_expected=0.4))
    own = "host0" if one[0] == "rack" else "host1"
    add_round(twice, f"{own} host2 host3", finding(*other, share_of_expected=0.6))
    costs = network([*words, str(once)], capsys)["what_if"]
    assert network([*words, str(twice)], capsys)["what_if"] == costs
    assert isinstance(costs, dict) and costs["cost_percent"] > 0.5


Found = tuple[str, str, str, float]


@pytest.mark.parametrize(
    ("one", "other", "links"),
    [
        (
            ("rack", ALL_HOSTS, "r1", 0.4),
            ("rack", "host0 host1", "r1", 0.6),
            {"4-6": 50, "4-7": 50, "5-6": 40, "5-7": 40},
        ),
        (("host", "host1", "", 0.4), ("device", "host1", "mlx5_0", 0.6), {"1-4": 50}),
        (("host", "host1", "", 0.8), ("device", "host1", "mlx5_0", 0.6), {"1-4": 70}),
    ],
)
def test_links_of_which_overlapping_places_tell_are_slowed_down_once(
    one: Found, other: Found, links: dict[str, int], fabric: Path, tmp_path: Path
) -> None:
    """By the median of the rounds; of one round the smallest share counts. The network's links have 100 Gbit/s."""
    first, second = (finding(*each[:3], share_of_expected=each[3]) for each in (one, other))
    add_round(tmp_path / "apart", ALL_HOSTS, first)
    add_round(tmp_path / "apart", "host0 host1", second)
    add_round(tmp_path / "together", ALL_HOSTS, first, second)
    smallest = {link: round(100 * min(one[3], other[3])) if one[0] == "host" else 40 for link in links}
    for run, wanted in (("apart", links), ("together", smallest)):
        found = measured_faults(tmp_path / run, read(fabric).fabric, MistakeList(), packets=True)
        assert found is not None
        rates = {f"{a}-{b}": float(found.fabric.texts[kind].bandwidth[:-4]) for a, b, kind in found.fabric.links()}
        assert {link: rate for link, rate in rates.items() if rate < 100} == pytest.approx(wanted)
        assert found.slowness == ({1: pytest.approx(1 / one[3])} if one[0] == "host" else {})
        assert sum("together with what else was found of them" in note for note in found.notes) == 2


def test_free_servers_go_to_hosts_with_findings_first(fabric: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    add_round(run, "host0 host1 host2")
    add_round(run, "sound")
    add_round(run, "slow", finding("host", "slow"))
    found = measured_faults(run, read(fabric).fabric, MistakeList(), packets=True)
    assert found is not None and found.slowness == {3: 2.0}
    assert any("slow is server 3" in note for note in found.notes)


def test_hosts_that_had_one_node_rank_in_different_rounds_are_placed_apart(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-r", f"{tmp_path}/h-", "--op", "AllReduce", "--size", "1M"]
    run = tmp_path / "run"
    for hosts in ("host0 host1", "host2 host3"):
        add_round(run, hosts, finding("host", hosts.split()[0]))
    costs = network(["-n", str(fabric), *words, "--what-if", str(run)], capsys)["what_if"]
    assert isinstance(costs, dict)
    edits = "--degrade gpu0-leaf0:0.5 --degrade gpu2-leaf1:0.5 --slow-gpu 0:0.5 --slow-gpu 2:0.5"
    assert main(["topology", "edit", str(fabric), *edits.split()]) == 0
    assert costs["with_faults_us"] == took(["-n", f"{fabric}-whatif", *words], capsys)
    for host in ("host4", "host5"):
        add_round(run, host, finding("host", host))
    assert main(["network", "-n", str(fabric), *words, "--force", "--what-if", str(run)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "host0 had the node rank of host2 in another round: host2 is server 2 " in said
    assert "host4 in another round: host4 is server 3 " in said
    assert "host5 in another round: host5 is server 0 with it, since the network has no other" in said


def test_a_negative_node_rank_is_a_mistake_of_the_record(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path, finding("host", "host1"))
    file = folder / "NETWORK" / "round1" / "round.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"node_rank": 1', '"node_rank": -1'), encoding="utf-8")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/h-", "--op", "AllReduce", "--size", "1M", "--what-if", str(folder)]
    assert main(["network", *words]) == 2
    said = capsys.readouterr().err
    assert "round.json" in said and "node_rank" in said


def test_a_slow_host_costs_at_flow_level_what_the_same_network_edited_does(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["network", "--level", "flow", "--json", "--force", "-r", f"{tmp_path}/h-", "-w", f"{job}@0-1"]
    assert main(["topology", "edit", str(fabric), "--degrade", "gpu1-leaf0:0.5", "--slow-gpu", "1:0.5"]) == 0
    what_if = ["--what-if", str(run_folder(tmp_path, finding("host", "host1")))]
    answers = []
    for more in (["-n", str(fabric)], ["-n", f"{fabric}-whatif"], ["-n", str(fabric), *what_if]):
        capsys.readouterr()
        assert main([*words, *more]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    sound, edited, costs = answers
    assert costs["what_if"]["healthy_us"] == sound["iteration_us"]
    assert costs["what_if"]["with_faults_us"] == costs["iteration_us"] == edited["iteration_us"]
    assert costs["what_if"]["cost_percent"] == pytest.approx(
        100 * (edited["iteration_us"] / sound["iteration_us"] - 1), abs=0.001
    )


def test_jobs_at_flow_level_are_told_one_by_one(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["network", "-n", str(fabric), "--level", "flow", "--force", "-r", f"{tmp_path}/f-", "-w", f"{job}@0-1"]
    answers = []
    for more in ([], ["-w", f"{job}@2-3", "--straggler", "3:2"]):
        assert main([*words, *more, "--json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    alone, both = answers
    assert [each["first_rank"] for each in both["jobs"]] == [0, 2] and "jobs" not in alone
    assert both["jobs"][0]["iteration_us"] == alone["iteration_us"]
    assert both["jobs"][1]["iteration_us"] == both["iteration_us"] >= alone["iteration_us"] + 30
    assert main([*words, "-w", f"{job}@2-3"]) == 0
    assert "iteration of job on 0-1 " in capsys.readouterr().out


def test_every_job_has_a_table_of_its_own() -> None:
    tables = tables_of(("job", "job", "job-1"), "x-")
    assert tables == [(Path(f"x-{name}-EndToEnd.csv"), name) for name in ("job-0", "job-1", "job-1-2")]


def test_a_slow_nic_slows_no_computation_and_an_unknown_host_is_refused(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = data_parallel(tmp_path / "job.txt")
    words = ["-n", str(fabric), "-r", f"{tmp_path}/n-", "-w", f"{job}@0-1"]
    nic = run_folder(tmp_path / "nic", finding("device", "host1", "mlx5_0"))
    costs = network([*words, "--what-if", str(nic)], capsys)["what_if"]
    host = run_folder(tmp_path / "host", finding("host", "host1"))
    worse = network([*words, "--what-if", str(host)], capsys)["what_if"]
    assert isinstance(costs, dict) and isinstance(worse, dict)
    assert 0 < costs["with_faults_us"] - costs["healthy_us"] < worse["with_faults_us"] - worse["healthy_us"] - 29
    strange = run_folder(tmp_path / "strange", finding("host", "host7"))
    assert main(["network", *words, "--force", "--what-if", str(strange)]) == 2
    assert "round.json: a finding is about host7" in capsys.readouterr().err
    assert main(["network", *words, "--force", "--what-if", str(tmp_path)]) == 2
    assert "is no folder of a run" in capsys.readouterr().err


def test_mistakes_of_a_thousand_hosts_are_a_line_for_each_kind(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["network", "-n", str(fabric), "-r", f"{tmp_path}/n-", "--op", "AllReduce", "--size", "1M", "--what-if"]
    hosts = [f"host{rank}" for rank in range(1000)]
    for found, said in (
        (hosts[4:], "the network has 4 servers, and none for host4 (node rank 4), host5 (node rank 5), host6 "
         "(node rank 6) and 993 more"),
        ([f"other{rank}" for rank in range(1000)],
         "a finding is about other0, other1, other2 and 997 more, which are no node of its round"),
    ):  # fmt: skip
        place = tmp_path / said[:5]
        add_round(place, " ".join(hosts), *(finding("host", each) for each in found))
        assert main([*words, str(place)]) == 2
        error = capsys.readouterr().err
        assert said in error and error.count("\n") == 1
    for number in range(1, 41):
        (place / "NETWORK" / f"round{number}").mkdir(exist_ok=True)
        (place / "NETWORK" / f"round{number}" / "round.json").write_text("{}")
    assert main([*words, str(place)]) == 2
    error = capsys.readouterr().err
    assert error.count("is no record of a run") == 20 and "has 20 more rounds that cannot be read" in error


def test_a_local_rank_that_no_server_has_is_refused(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path, finding("device", "host1", "local rank 3"))
    words = ["network", "-n", str(fabric), "-r", f"{tmp_path}/n-", "--op", "AllReduce", "--size", "1M"]
    assert main([*words, "--what-if", str(folder)]) == 2
    said = f"--what-if {folder}: the network has no GPU for local rank 3 of host1, whose server has 1 GPU"
    assert said in capsys.readouterr().err


def test_of_a_thousand_slow_hosts_a_few_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those that counted errors, too, with two lines each."""
    links = "".join(f"{gpu} 30 100Gbps 0.0005ms 0\n" for gpu in range(30))
    (tmp_path / "leaf").write_text(f"31 1 0 1 30 A100\n30\n{links}", encoding="utf-8")
    hosts = [f"host{rank}" for rank in range(30)]
    found = [finding("device", host, f"mlx5_{nic}", kind="link_errors") for host in hosts for nic in range(30)]
    found += [finding("device", "host1", "local ranks 0-1", sentence=f"{number} is slow") for number in range(900)]
    add_round(tmp_path / "run", " ".join(hosts), *found)
    words = ["network", "-n", str(tmp_path / "leaf"), "-r", f"{tmp_path}/n-", "--level", "flow", "--op", "AllReduce"]
    assert main([*words, "--size", "1M", "--what-if", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert said.count("% of the expected rate") == said.count("fair rates lose nothing") == 20
    assert "and 10 more such parts\n" in said and "and 880 more such findings\n" in said


@pytest.mark.parametrize(
    ("part", "hosts", "device", "edited"),
    [
        ("rack", "host0 host1", "r1", "leaf0-spine*:0.5"),
        ("device", "host1", "local rank 2", "gpu10-nvswitch1:0.5"),
    ],
)
def test_a_slow_leaf_and_a_slow_gpu_cost_what_the_same_network_edited_by_hand_does(
    part: str, hosts: str, device: str, edited: str, fabric: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if part == "device":
        fabric = tmp_path / "servers"
        options = "-topo Spectrum-X -g 16 -gt A100 -bw 100Gbps -nvbw 2400Gbps -psn 4"
        assert main(["topology", *options.split(), "--output", str(fabric)]) == 0
    words = ["-r", f"{tmp_path}/p-", "--op", "AllReduce", "--size", "1M"]
    folder = run_folder(tmp_path, finding(part, hosts, device))
    costs = network(["-n", str(fabric), *words, "--what-if", str(folder)], capsys)["what_if"]
    assert isinstance(costs, dict)
    assert main(["topology", "edit", str(fabric), "--degrade", edited]) == 0
    assert costs["with_faults_us"] == took(["-n", f"{fabric}-whatif", *words], capsys)
    assert costs["cost_percent"] > 0.2


@pytest.mark.parametrize(
    ("part", "device", "others", "said"),
    [
        ("device", "mlx5_0", {"share_of_expected": None, "kind": "stalls"}, "no rate was measured"),
        ("device", "accelerator 3", {"share_of_expected": None, "kind": "link_errors"}, "these errors are on no NIC"),
        ("device", "local ranks 0-1", {}, "it is no host's, no NIC's, no GPU's and no rack's"),
        ("device", "enp65s0f0np0", {}, "its name tells no number of a NIC"),
        ("rack", "r1", {}, "no switch of the network is its own"),
    ],
)
def test_what_a_what_if_cannot_follow_is_said(
    part: str, device: str, others: dict[str, object], said: str, fabric: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    folder = run_folder(tmp_path, finding(part, "host1", device, **others))
    words = ["-n", str(fabric), "-r", f"{tmp_path}/p-", "--op", "AllReduce", "--size", "1M", "--what-if", str(folder)]
    assert main(["network", *words]) == 0
    assert f"not simulated, since {said}" in " ".join(capsys.readouterr().out.split())


def test_a_port_that_counted_errors_loses_packets_and_says_how_many_are_assumed(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-r", f"{tmp_path}/p-", "--op", "AllReduce", "--size", "64M"]
    errors = finding("device", "host1", "mlx5_0", share_of_expected=None, kind="link_errors")
    answer = network(["-n", str(fabric), *words, "--what-if", str(run_folder(tmp_path, errors))], capsys)
    assert int(str(answer["retransmissions"])) >= int(str(answer["lost_packets"])) > 0
    by_hand = tmp_path / "by_hand"
    lines = fabric.read_text(encoding="utf-8").splitlines()
    (link,) = (place for place, line in enumerate(lines) if place > 1 and line.startswith("1 "))
    lines[link] = f"{lines[link].rsplit(maxsplit=1)[0]} 0.0001"
    by_hand.write_text("\n".join(lines) + "\n", encoding="utf-8")
    costs = answer["what_if"]
    assert isinstance(costs, dict)
    assert costs["with_faults_us"] == took(["-n", str(by_hand), *words], capsys)
    small = [*words[:-1], "1M", "--what-if", str(tmp_path / "run")]
    assert main(["network", "-n", str(fabric), *small, "--force"]) == 0
    assert "assumed is a share of 0.0001" in " ".join(capsys.readouterr().out.split())
    assert main(["network", "-n", str(fabric), *small, "--force", "--level", "flow"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not simulated, since fair rates lose nothing: device host1 mlx5_0" in said and "assumed" not in said


def test_the_number_of_a_port_is_not_that_of_its_nic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name is what a run itself writes of the first port of a host's fourth NIC."""
    servers = str(tmp_path / "servers")
    options = "-topo Spectrum-X -g 16 -gt A100 -bw 100Gbps -nvbw 2400Gbps -psn 4"
    assert main(["topology", *options.split(), "--output", servers]) == 0
    port = {"name": "mlx5_3/1", "kind": "infiniband", "state": "active", "speed_mbit_s": 100_000, "is_device": True}
    (tmp_path / "sys_info.json").write_text(json.dumps({"network": [port]}), encoding="utf-8")
    monitor = {"ports": {"mlx5_3/1": {"symbol_errors": 4}}}
    (counted,) = host_findings("host1", read_sys_info(tmp_path), monitor)
    folder = run_folder(tmp_path, counted)
    words = ["-n", servers, "-r", f"{tmp_path}/p-", "--op", "AllReduce", "--size", "1M", "--what-if", str(folder)]
    assert main(["network", *words]) == 0
    assert "mlx5_3/1: errors, so the NICs of GPU 11 lose packets" in " ".join(capsys.readouterr().out.split())


def test_parts_that_overlap_all_the_time_are_simulated_packet_by_packet_once(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each new part would be simulated again with all those before it that it overlaps."""
    rows = ["row 100 NONE 0 100 ALLTOALL_EP 1048576 100 ALLREDUCE 4194304"] * 40
    job = workload(tmp_path / "job.txt", rows, "pp: 1 vpp: 1 ga: 1 all_gpus: 4 pp_comm: 0")
    job.write_text(job.read_text(encoding="utf-8").replace("ep: 1", "ep: 2"), encoding="utf-8")
    fabric.write_text("5 1 0 1 4 H100\n4\n" + "".join(f"{gpu} 4 100Gbps 0.0005ms 0\n" for gpu in range(4)))
    words = ["-n", str(fabric), "-r", f"{tmp_path}/c-", "-w", str(job)]
    whole, forwarded = network(words, capsys), network([*words, "--fast-forward"], capsys)
    assert forwarded["events"] == whole["events"] and forwarded["iteration_us"] == whole["iteration_us"]


def test_a_job_of_which_one_rank_waits_for_ever_did_not_end() -> None:
    parts = [JobPart("a", 0, 2, range(1)), JobPart("b", 2, 1, range(1, 2))]
    data: dict[str, JsonValue] = {}
    told = iterations(Job([], [], [], [], parts), [123_000, -1, 5_000], data)
    assert told == "iteration of a on 0-1 did not end, b on 2-2 5.000 us" and data["iteration_us"] is None
    assert [each["iteration_us"] for each in data["jobs"]] == [None, 5.0]  # type: ignore[index,union-attr,call-overload]
