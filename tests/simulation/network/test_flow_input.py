"""Mistakes in the input of the flow level are named, and nothing is written."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from common import whole_files
from simulation.cli import main
from simulation.network import looks, memory_room
from simulation.network.flow_level import simulate as simulating
from simulation.network.flow_level import verb
from simulation.network.flow_level.files import LinkLoads
from simulation.network.memory_room import MemoryRoom
from tests.pages import charts_of
from tests.simulation.network.recordings import DATA, arguments, recordings
from tests.simulation.network.test_jobs import finding, run_folder
from tests.simulation.network.test_network_input import HEADER, ROW, refused

TOPOLOGY = DATA / "topology" / "specx_8_A100__Spectrum-X_8g_8gps_100Gbps_A100"
ONE = ["--op", "AllToAll", "--size", "1M"]


@pytest.mark.parametrize("words", [["--seed", "1"], ["--seeds", "3"], ["--fast-forward"]])
def test_an_option_of_the_packet_level_is_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refused(["-n", str(TOPOLOGY), "--level", "flow", *ONE, *words], tmp_path, capsys)
    assert f"{words[0]}: is for --level packet" in error


@pytest.mark.parametrize(
    ("link", "message"),
    [
        ("0 1 0Gbps 0.0005ms 0", "line 3"),
        ("0 1 100 0.0005ms 0", "line 3"),
        ("0 1 100Gbps 5 0", "line 3"),
        ("0 1 100Gbps -1ms 0", "line 3"),
        ("0 9 100Gbps 0.0005ms 0", "two different ids from 0 to 1"),
    ],
)
def test_a_link_without_capacity_or_units_is_named_with_its_line(
    link: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = tmp_path / "network"
    topology.write_text(f"2 2 0 0 1 A100\n\n{link}\n", encoding="utf-8")
    assert message in refused(["-n", str(topology), "--level", "flow", *ONE], tmp_path, capsys)


def test_a_gpu_that_another_does_not_reach_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart = tmp_path / "apart"
    apart.write_text("4 2 0 2 2 A100\n2 3\n0 2 100Gbps 0.0005ms 0\n1 3 100Gbps 0.0005ms 0\n", encoding="utf-8")
    error = refused(["-n", str(apart), "--level", "flow", *ONE], tmp_path, capsys)
    assert "does not reach GPU" in error and "apart" in error


def test_a_ring_of_gpus_is_simulated_and_pairs_that_rail_only_keeps_apart_are_those_of_the_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the small case, a ring of the first four GPUs, has a hop that the network lacks."""
    ring, size = tmp_path / "ring", 32
    links = "".join(f"{gpu} {(gpu + 1) % size} 100Gbps 0.0005ms 0\n" for gpu in range(size))
    ring.write_text(f"{size} 1 0 0 {size} A100\n\n{links}", encoding="utf-8")
    words = ["network", "-n", str(ring), "--level", "flow", "-r", f"{tmp_path}/", "--size", "32M", "--op"]
    assert main([*words, "AllReduce"]) == 0
    assert f"{2 * (size - 1) * size} flows, " in capsys.readouterr().out
    assert main([*words, "AllToAll", "--force"]) == 2
    pairs = size * (size - 1) - 2 * size
    assert f"{ring}: GPU 0 does not reach GPU 2 ({pairs} such pairs)" in capsys.readouterr().err


def test_a_workload_for_more_gpus_than_there_are_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = tmp_path / "w.txt"
    workload.write_text(HEADER.replace("all_gpus: 8", "all_gpus: 64") + ROW, encoding="utf-8")
    error = refused(["-n", str(TOPOLOGY), "--level", "flow", "-w", str(workload)], tmp_path, capsys)
    assert "w.txt, line 1" in error and "8 GPUs" in error


@pytest.mark.parametrize("routing", ["ecmp", "rail", "spread"])
def test_a_collective_leaves_its_files_and_says_how_far_to_trust_it(
    routing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = DATA / "topology" / "specx32_H100_400G_psn4"
    words = ["-n", str(topology), "--level", "flow", "--routing", routing, "-r", f"{tmp_path}/", "--json"]
    assert main(["network", *words, "--op", "AllToAll", "--size", "32M"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert len((tmp_path / "fct.txt").read_text().splitlines()) == answer["flows"] == 32 * 31
    assert (tmp_path / "EndToEnd.csv").read_text().count("\n") == 6
    header, *lines = ([*line.split(",")] for line in (tmp_path / "links.csv").read_text().splitlines())
    assert header[:4] == ["link", "Gbps", "bytes", "3.010 us"]
    shares = [sum(map(float, cells[3:])) / len(cells[3:]) for cells in lines]
    assert shares == pytest.approx(sorted(shares, reverse=True), abs=0.1) and 60 < shares[0] <= 100
    for name, gbps, size, *parts in lines:
        sent = sum(map(float, parts)) / 100 * answer["makespan_us"] / len(parts) * float(gbps) * 1000 / 8
        assert sent == pytest.approx(int(size), rel=0.02, abs=0.001 * answer["makespan_us"] * 50e3), name
    # Hashes put several flows on one uplink; no other routing does, and no queue reaches a threshold.
    assert answer["marks_expected"] is (routing == "ecmp") is (answer["marks"] is None)
    assert answer["retransmissions"] == 0


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_parallel_links_have_names_of_their_own_and_late_slices_times_of_their_own(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = tmp_path / "network"
    links = "0 4 100Gbps 1us 0\n1 4 100Gbps 1us 0\n2 5 100Gbps 1us 0\n3 5 100Gbps 1us 0\n"
    topology.write_text(f"6 1 0 2 6 A100\n4 5\n{links}4 5 100Gbps 1us 0\n5 4 100Gbps 1us 0\n", encoding="utf-8")
    words = ["-n", str(topology), "--level", level, "-r", f"{tmp_path}/", "--op", "AllToAll", "--size", "1M"]
    more = ["--routing", "spread", "--send-lat", "1e6"] if level == "flow" else []
    assert main(["network", *words, *more]) == 0
    header, *rows = (line.split(",") for line in (tmp_path / "links.csv").read_text().splitlines())
    named = [row[0] for row in rows]
    assert len(set(named)) == len(named) and len(set(header)) == len(header)
    assert {"leaf0-leaf1", "leaf0-leaf1#2", "leaf1-leaf0", "leaf1-leaf0#2"} <= set(named)


SPINES = DATA / "topology" / "specx32_H100_400G_psn4"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--level", "flow"], "hops"),
        (["--level", "flow", "--routing", "spread"], "ports"),
        (["--level", "flow", "--routing", "ecmp"], "flows"),
        ([], "flows"),
        (["--fast-forward"], "next hops"),
    ],
)
def test_more_than_memory_has_room_for_is_refused_before_it_is_taken(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    free = {"hops": 900_000, "ports": 1_200_000, "flows": 1_300_000 if words else 900_000, "next hops": 30_000}[named]
    monkeypatch.setattr(memory_room, "available_bytes", lambda: free)
    error = refused(["-n", str(SPINES), *ONE, *words], tmp_path, capsys)
    assert f" {named}, and 0.0 GB are free" in error and str(SPINES) in error
    assert ("by ecmp each flow has its own way" in error) == ("flow" in words)


def test_flows_that_fast_forward_does_not_keep_need_no_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 112 flows each would take 1000 bytes; the next hops of 81 nodes take 105 kB."""
    monkeypatch.setattr(memory_room, "available_bytes", lambda: 110_000)
    words = ["network", "-n", str(TOPOLOGY), "-r", f"{tmp_path}/", "--op", "AllReduce", "--size", "1M"]
    assert main(words) == 2 and "GB are free" in capsys.readouterr().err
    assert main([*words, "--fast-forward"]) == 0
    assert "error" not in capsys.readouterr().err


def test_the_memory_of_flows_with_ways_of_their_own_is_estimated_by_what_they_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = []

    class Noted(MemoryRoom):
        def __init__(self, place: str, advice: str) -> None:
            super().__init__(place, advice)
            rooms.append(self)

    monkeypatch.setattr("simulation.network.flow_level.net.MemoryRoom", Noted)
    monkeypatch.setattr(verb, "html", lambda *_: "")  # which takes as much whatever the flows
    words = ["network", "-n", str(SPINES), "--level", "flow", "-r", f"{tmp_path}/", "--force", *ONE]
    assert main(words) == 0  # loads what it needs
    tracemalloc.start()
    assert main(words) == 0
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rooms[-1].taken < 4 * peak


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_files_of_another_run_are_all_named_before_anything_is_simulated(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x-EndToEnd.csv").write_text("older")
    (tmp_path / "x-fct.txt").write_text("older")
    words = ["-n", str(TOPOLOGY), "-r", f"{tmp_path}/x-", "--level", level, *ONE]
    links = f"{tmp_path}/x-links.csv"
    for more in ([], ["--trace", links]):
        error = refused([*words, *more], tmp_path, capsys)
        for name in ("x-EndToEnd.csv", "x-fct.txt"):
            assert f"{tmp_path}/{name}: is there; give --force to overwrite it, or take another -r" in error
        assert (f"--trace {links}: is the name of another file" in error) == bool(more)
    for other in (links, f"{tmp_path}/../{tmp_path.name}/x-links.csv"):
        error = refused([*words, "--force", "--trace", other], tmp_path, capsys)
        assert f"--trace {other}: is the name of another file" in error


def test_no_file_of_another_run_stays_beside_new_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [tmp_path / name for name in ("fct.txt", "links.csv", "network.html")]
    for path in others:
        path.write_text("older")
    monkeypatch.setattr(verb, "MOST_LINES", 10)
    words = ["-n", str(TOPOLOGY), "-r", f"{tmp_path}/", "--level", "flow", *ONE]
    assert main(["network", *words]) == 2
    error = capsys.readouterr().err
    assert all(f"{path}: is there" in error for path in others)
    apart = tmp_path / "apart"
    apart.write_text("4 2 0 2 2 A100\n2 3\n0 2 100Gbps 0.0005ms 0\n1 3 100Gbps 0.0005ms 0\n", encoding="utf-8")
    assert main(["network", *words, "-n", str(apart), "--force"]) == 2
    assert [path.read_text() for path in others] == ["older"] * 3  # by a mistake nothing is lost
    assert main(["network", *words, "--force"]) == 0
    assert "no fct.txt, no links.csv, and of flows and links nothing in network.html" in capsys.readouterr().out
    assert [path.exists() for path in others] == [False, False, True]
    assert [chart["title"] for chart in charts_of(others[2].read_text())] == ["What each rank did"]


def test_rows_are_written_as_they_end_and_stay_at_an_interruption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = recordings()["megatron_tp8dp2_g16_A100"]
    table, words = tmp_path / "EndToEnd.csv", ["-r", f"{tmp_path}/", "--level", "flow", "--dialect", "simai"]
    words = ["network", *arguments(recording, tmp_path), *words]
    assert main(words) == 0
    whole = [line.rsplit(",", 1)[0] for line in table.read_text().splitlines()[3:-2]]
    monkeypatch.setattr(looks, "EVERY_S", 0.0)
    monkeypatch.setattr(looks, "PAUSE", 0)

    def interrupt(*_: object) -> None:
        if len(table.read_text().splitlines()) > 3 + 2 + 4 and "incomplete" in table.read_text():
            raise KeyboardInterrupt

    monkeypatch.setattr("common.progress.StepProgress.advance", interrupt)
    assert main([*words, "--force"]) == 130
    lines = [line.rsplit(",", 1)[0].replace("incomplete", "test1") for line in table.read_text().splitlines()[3:-2]]
    assert 4 < len(lines) < len(whole) and lines == [line for line in whole if line in lines]
    assert f"{table}: {len(lines)} of {len(whole)} rows had ended\ninterrupted\n" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["EndToEnd.csv"]


def test_links_that_take_no_time_leave_a_flow_no_window(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for wait in ("0ms", "0.0005ms"):
        topology = tmp_path / f"instant-{wait}"
        topology.write_text(f"2 2 0 0 1 A100\n\n0 1 100000Gbps {wait} 0\n", encoding="utf-8")
        words = ["-n", str(topology), "--level", "flow", "-r", f"{topology}-", "--op", "AllReduce", "--size", "1M"]
        assert main(["network", *words, "--json"]) == 0
        # A ring of two GPUs takes two steps, each of which a packet crosses in no whole ns.
        assert json.loads(capsys.readouterr().out)["makespan_us"] >= (0 if wait == "0ms" else 2 * 0.5)


@pytest.mark.parametrize("asked", [True, False])
def test_more_flows_than_are_followed_by_ecmp_take_rails_ways_unless_it_was_asked_for(
    asked: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "MOST_LINES", 100)
    words = ["-n", str(SPINES), "--level", "flow", "-r", f"{tmp_path}/", "--json", *ONE]
    assert main(["network", *words, *(["--routing", "ecmp"] if asked else [])]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["routing"] == ("ecmp" if asked else "rail")
    assert asked or answer["weakness"] == "collisions"


def test_that_flows_take_rails_ways_is_said_once_though_what_if_simulates_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "MOST_LINES", 100)
    folder = run_folder(tmp_path, finding("host", "host1"))
    words = ["-n", str(SPINES), "--level", "flow", "-r", f"{tmp_path}/", "--what-if", str(folder), *ONE]
    assert main(["network", *words]) == 0
    said = capsys.readouterr().out
    assert said.count("they take those of --routing rail") == 1 and "they cost the job +" in said


def test_ranks_that_wait_for_each_other_are_told_and_the_run_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pipeline's first stage waits for all ranks before it sends to the second one, which waits for that."""
    workload = tmp_path / "w.txt"
    rows = "a -1 1000 ALLREDUCE_ALL 400000 1000 NONE 0 1000 NONE 0 100\nb -1 1000 ALLREDUCE 4000 9 NONE 0 9 NONE 0 9\n"
    header = HEADER.replace("pp: 1", "pp: 2").replace("all_gpus: 8", "all_gpus: 32")
    workload.write_text(f"{header.splitlines()[0]} pp_comm: 4000\n2\n{rows}", encoding="utf-8")
    words = ["-n", str(SPINES), "--level", "flow", "-r", f"{tmp_path}/", "-w", str(workload)]
    assert main(["network", *words]) == 1
    said = capsys.readouterr().out
    assert "did not complete: 32 ranks of 32 wait for what never comes" in said
    assert "iteration of rank 0 did not end" in said and "-0.001" not in said
    assert main(["network", *words, "--json", "--force"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["iteration_us"] is answer["iteration_of_rank_0_us"] is None
    assert "-" not in (tmp_path / "fct.txt").read_text()


def test_before_a_row_has_ended_an_interruption_leaves_the_files_of_the_run_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = [tmp_path / name for name in ("EndToEnd.csv", "fct.txt", "links.csv", "network.html")]
    for path in older:
        path.write_text("older")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(simulating, "undisturbed", lambda *_: [])  # else what is alone runs first, unseen
    monkeypatch.setattr("simulation.network.flow_level.work.Work.run", interrupt)
    words = ["network", "-n", str(TOPOLOGY), "-r", f"{tmp_path}/", "--level", "flow", "--force", *ONE]
    assert main(words) == 130
    assert [path.read_text() for path in older] == ["older"] * 4
    assert capsys.readouterr().err.endswith("interrupted\n")


@pytest.mark.parametrize("full", [False, True])
def test_rows_are_told_to_have_ended_only_if_they_are_written(
    full: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, write, calls = tmp_path / "EndToEnd.csv", whole_files.write_whole, list[Path]()

    def interrupted(path: Path, chunks: Any) -> None:
        calls.append(path)
        if len(calls) == 1:
            raise KeyboardInterrupt
        if full:
            raise OSError(28, "No space left on device", str(path))
        write(path, chunks)

    monkeypatch.setattr("simulation.network.row_files.write_whole", interrupted)
    monkeypatch.setattr(looks, "EVERY_S", 0.0)
    monkeypatch.setattr(looks, "PAUSE", 0)
    words = ["-r", f"{tmp_path}/", "--level", "flow", "--dialect", "simai"]
    assert main(["network", *arguments(recordings()["megatron_tp8dp2_g16_A100"], tmp_path), *words]) == 130
    told = capsys.readouterr().err
    assert (len(calls), table.exists(), "rows had ended" in told) == (2, not full, not full)


def test_looks_at_rows_take_a_small_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, times = 0.0, 0

    def look() -> None:
        nonlocal now, times
        now, times = now + 5, times + 1

    monkeypatch.setattr(looks, "time", SimpleNamespace(monotonic=lambda: now))
    with looks.Looks(look) as its:
        for _ in range(1000):
            now += 1
            its.now_and_then()
    assert 5 < times <= 20  # of 5 s each in 1000 s


def test_no_link_is_busier_than_its_time() -> None:
    loads: Any = object.__new__(LinkLoads)
    loads.ways = SimpleNamespace(link=lambda _port: SimpleNamespace(bps=8_000_000_000))
    loads.begin, loads.slice_ns = 0.0, 200.0
    flows = loads._parts(0, 3000), loads._parts(1000, 4000)
    loads.loads = {0: [2000 * sum(both) for both in zip(*flows, strict=True)]}
    assert loads.use(["one"]).links[0].shares == pytest.approx([1.0] * 20)  # 4000 bytes in 4000 ns at a byte a ns


def test_a_trace_is_not_written_between_the_lines_of_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["-n", str(TOPOLOGY), "--level", "flow", *ONE, "--trace", "-"]
    assert "--trace -: is where the summary goes" in refused(words, tmp_path, capsys)


def test_a_folder_of_a_files_name_is_told_before_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "x-network.html"
    page.mkdir()
    words = ["-n", str(TOPOLOGY), "-r", f"{tmp_path}/x-", "--level", "flow", *ONE]
    assert f"{page}: is a folder" in refused(words, tmp_path, capsys)
