"""Rows are written as they end, whatever ends a run, and no file of another run stands beside those of a new one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from common.progress import StepProgress
from simulation.cli import main
from simulation.network import fast_forward, looks, packets
from simulation.network.fast_forward import FastForward, OverlapsError
from simulation.network.flow_level import simulate as simulating
from simulation.network.flow_level import verb
from simulation.network.outcome import NetworkRun
from tests.simulation.network import test_jobs
from tests.simulation.network.recordings import DATA, request
from tests.simulation.network.test_jobs import data_parallel
from tests.simulation.network.test_network_input import HEADER

fabric = test_jobs.fabric

TOPOLOGY = DATA / "topology" / "specx_8_A100__Spectrum-X_8g_8gps_100Gbps_A100"
OTHERS = ("EndToEnd.csv", "fct.txt", "links.csv", "network.html")
LEVELS = [["--level", "flow"], ["--level", "packet"], ["--level", "packet", "--fast-forward"]]


def job(path: Path, cells: list[str]) -> list[str]:
    """The options of a run of rows with these phases, forward and of input gradients, on eight GPUs."""
    rows = "".join(f"L{number} -1 1000 {each} 1000 NONE 0 100\n" for number, each in enumerate(cells))
    path.write_text(HEADER.replace("\n1\n", f"\n{len(cells)}\n") + rows, encoding="utf-8")
    return ["network", "-n", str(TOPOLOGY), "-w", str(path), "-r", f"{path.parent}/", "--seed", "1"]


def three_rows(path: Path) -> list[str]:
    sizes = [65536 * number for number in range(1, 7)]
    return job(path, [f"ALLREDUCE {sizes[row]} 1000 ALLREDUCE {sizes[row + 3]}" for row in range(3)])


def of_level(words: list[str], level: list[str]) -> list[str]:
    """The words with a level; that of flows knows no seed."""
    return [*(words[:-2] if "flow" in level else words), *level]


def rows_of(table: Path) -> list[str]:
    """The rows of a table, without the cell of the whole time and without the name of the test."""
    lines = table.read_text(encoding="utf-8").splitlines()[3:-2]
    return [line.rsplit(",", 1)[0].replace("incomplete", "test1") for line in lines]


def interrupt_at(call: int, monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> None:
    """Let a function be interrupted when it is called for the so many-th time."""
    original, calls = getattr(place, name), list[int]()

    def interrupted(*values: object, **named: object) -> object:
        calls.append(1)
        if len(calls) == call:
            raise KeyboardInterrupt
        return original(*values, **named)

    monkeypatch.setattr(place, name, interrupted)


def at_a_collective(call: int, level: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a run where its so many-th collective begins to be simulated."""
    if "flow" in level:
        monkeypatch.setattr(verb, "check_collapsing", lambda *_: None)  # its small cases are collectives, too
        interrupt_at(call, monkeypatch, simulating, "_alone")
    elif "--fast-forward" in level:
        interrupt_at(call, monkeypatch, FastForward, "_launch")
    else:
        monkeypatch.setattr(packets, "SLICE", 200)
        interrupt_at(30 * call, monkeypatch, StepProgress, "advance")


@pytest.mark.parametrize("level", LEVELS)
def test_rows_that_ended_stay_at_an_interruption(
    level: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last row is the first that ends: its input gradients are through before those of the others."""
    words, table = of_level(three_rows(tmp_path / "w.txt"), level), tmp_path / "EndToEnd.csv"
    assert main(words) == 0
    whole = rows_of(table)
    for name in OTHERS[1:]:
        (tmp_path / name).write_text("older")
    at_a_collective(6, level, monkeypatch)
    assert main([*words, "--force"]) == 130
    found = rows_of(table)
    assert 0 < len(found) < 3 and found == whole[-len(found) :] and "incomplete" in table.read_text()
    assert f"{table}: {len(found)} of 3 rows had ended\n" in capsys.readouterr().err
    assert (tmp_path / "fct.txt").exists() == (level == LEVELS[1]), "the one of its own flows, as they ended"
    assert not (tmp_path / "links.csv").exists() and not (tmp_path / "network.html").exists()


@pytest.mark.parametrize("level", LEVELS)
def test_before_anything_has_ended_the_files_of_the_run_before_stay(
    level: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row that only computes, and comes late, has not ended."""
    words = of_level(job(tmp_path / "w.txt", ["NONE 0 1000 NONE 0", "ALLREDUCE 65536 1000 NONE 0"]), level)
    for name in OTHERS:
        (tmp_path / name).write_text("older")
    if level == LEVELS[1]:
        monkeypatch.setattr(packets, "SLICE", 10)
        interrupt_at(8, monkeypatch, StepProgress, "advance")
    else:
        at_a_collective(1, level, monkeypatch)
    assert main([*words, "--force"]) == 130
    assert [(tmp_path / name).read_text() for name in OTHERS] == ["older"] * 4


def test_rows_of_what_was_given_up_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words, table = three_rows(tmp_path / "w.txt"), tmp_path / "EndToEnd.csv"
    assert main(words) == 0
    whole = table.read_text()

    def give_up(its: FastForward, finished: Callable[[NetworkRun], None]) -> None:
        finished(packets.simulate(its.network, its.job, its.wishes._replace(latency_ns=10**6)))
        assert table.read_text() != whole
        raise OverlapsError

    monkeypatch.setattr(fast_forward.FastForward, "run", give_up)
    assert main([*words, "--force", "--fast-forward"]) == 0
    assert table.read_text() == whole


def test_what_was_skipped_has_not_ended_before_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a part is known when it begins, and a part that comes later may change it."""
    monkeypatch.setattr(looks, "EVERY_S", 0.0)
    monkeypatch.setattr(looks, "PAUSE", 0)
    asked = request(three_rows(tmp_path / "w.txt")[1:], "clusterdyno")
    its = FastForward(packets.network_of(asked.fabric, asked.wishes.conf), asked.job, asked.wishes)
    seen = list[tuple[int, int]]()
    found = its.run(lambda run: seen.append((its._now, max(run.part_end.max(), run.finished.max(), run.end.max()))))
    assert seen and all(last <= now for now, last in seen) and max(seen)[1] > 0.5 * found.finished.max()


def deadlock(path: Path) -> list[str]:
    """The options of a run in which a pipeline's second stage waits for the first, which waits for it."""
    rows = (
        "a -1 1000 ALLREDUCE_EMBEDDING 400000 1000 NONE 0 1000 NONE 0 100\nb -1 9 ALLREDUCE 4000 9 NONE 0 9 NONE 0 9\n"
    )
    header = HEADER.replace("pp: 1", "pp: 2 pp_comm: 4000").replace("all_gpus: 8", "all_gpus: 32")
    path.write_text(header.replace("\n1\n", "\n2\n") + rows, encoding="utf-8")
    spines = DATA / "topology" / "specx32_H100_400G_psn4"
    return ["network", "-n", str(spines), "-w", str(path), "-r", f"{path.parent}/"]


def test_a_collective_that_nothing_disturbs_and_no_rank_comes_to_has_no_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither stage comes to the second row."""
    assert main([*deadlock(tmp_path / "w.txt"), "--level", "flow"]) == 1
    assert "did not complete: 32 ranks of 32" in capsys.readouterr().out


def test_ranks_that_wait_for_ever_are_told_with_what_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = deadlock(tmp_path / "w.txt")
    for more in (["--seed", "1"], ["--fast-forward"], ["--level", "flow"]):
        assert main([*words, "--force", *more]) == 1
        said = capsys.readouterr().out
        assert "did not complete" in said and "mean over ranks" not in said
        assert main([*words, "--force", "--json", *more]) == 1
        answer = json.loads(capsys.readouterr().out)
        assert [answer[f"{name}_us"] for name in ("makespan", "mean_over_ranks", "rank_0")] == [None] * 3
        assert (tmp_path / "EndToEnd.csv").read_text().splitlines()[1].startswith("incomplete")


def test_tables_of_another_number_of_jobs_and_an_old_trace_do_not_stay(
    fabric: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (data_parallel(tmp_path / f"{name}.txt") for name in ("a", "b"))
    trace = tmp_path / "trace.json"
    words = ["network", "-n", str(fabric), "--level", "flow", "-w", f"{one}@0-1"]
    assert main([*words, "-r", f"{tmp_path}/x-c-", "--trace", str(tmp_path / "kept.json")]) == 0
    assert main([*words, "-r", f"{tmp_path}/", "-w", f"{other}@2-3"]) == 0
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert {tmp_path / "x-c-EndToEnd.csv", tmp_path / "kept.json", tmp_path / "a-EndToEnd.csv"} < {*kept}
    words += ["-r", f"{tmp_path}/x-"]
    assert main([*words, "-w", f"{other}@2-3", "--trace", str(trace)]) == 0
    assert json.loads(trace.read_bytes())["otherData"] == {"network -r": "x-"}
    jobs = [tmp_path / f"x-{name}-EndToEnd.csv" for name in ("a", "b")]
    assert [path.read_text().splitlines()[1].split(",")[0] for path in jobs] == ["a", "b"]
    capsys.readouterr()
    assert main(words) == 2
    told = capsys.readouterr().err
    assert all(f"{path}: is there; give --force" in told for path in (trace, *jobs))
    assert main([*words, "--force"]) == 0
    assert [path.exists() for path in (*jobs, trace)] == [False] * 3
    assert (tmp_path / "x-EndToEnd.csv").exists()
    assert main([*words, "--force", "-w", f"{other}@2-3"]) == 0
    assert [path.exists() for path in (*jobs, tmp_path / "x-EndToEnd.csv")] == [True, True, False]
    assert {path: path.read_bytes() for path in kept} == kept, "those of other prefixes stay"
