"""What the network cases of a run measured, as the console shows it."""

from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.commands.outcome_console import show_outcomes
from run_benchmarks.results.records import write_record
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps
from training.benchmarks.network.pytorch.outcome import MATRIX_HOSTS

SWEPT = {
    "pattern": "all",
    "collective": "all_gather",
    "size_bytes": 64,
    "count": 16,
    "dtype": "float32",
    "in_place": False,
    "world_size": 8,
    "time_us": {"p50": 2.5},
    "algbw_GBps": 0.0256,
    "busbw_GBps": 0.0224,
    "wrong_elements": 0,
    "convention": "nccl-tests",
}


def shown(folder: Path, capsys: pytest.CaptureFixture[str], *rounds: list[dict[str, Any]]) -> str:
    """What is printed of a case whose only round was attempted so often, with these steps."""
    for attempt, found in enumerate(rounds, start=1):
        place = folder / "PAIRS" / ("round1" if attempt == 1 else f"round1_try{attempt}")
        place.mkdir(parents=True)
        write_record(place / "round.json", a_round(found).model_copy(update={"attempt": attempt}))
    show_outcomes(run_record({}).model_copy(update={"cases": [case(), case("bert")]}), folder)
    return capsys.readouterr().out


def test_a_sweep_is_nccl_tests_table_of_the_last_attempt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    larger = SWEPT | {"size_bytes": 128, "count": 32}
    lines = shown(tmp_path, capsys, [SWEPT], [SWEPT, larger]).splitlines()
    assert lines[0] == "# all_gather, 8 ranks, PAIRS round 1" and "# Out of bounds values : 0 OK" in lines
    rows = [line.split() for line in lines if not line.startswith("#")]
    assert [row[:9] for row in rows] == [
        ["64", "2", "float", "none", "-1", "2.50", "0.03", "0.02", "0"],
        ["128", "4", "float", "none", "-1", "2.50", "0.03", "0.02", "0"],
    ]
    assert max(map(len, lines)) > 100, "no line is wrapped"


def test_pairs_are_the_matrix_with_who_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(tmp_path, capsys, steps("pairs", 4, slowest_member({"node3": 0.5}), noise=0.01, seed=1))
    assert "PAIRS round 1: busbw between hosts" in out.replace("\n", " ")
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("10.0.0.")}
    assert [rows[f"10.0.0.{number}"].count(" !") for number in (1, 2, 3, 4)] == [1, 1, 3, 1]


def test_what_cannot_be_shown_is_left_to_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = steps("pairs", MATRIX_HOSTS + 1, slowest_member({}), noise=0.01, seed=1, repeats=1)
    assert shown(tmp_path / "many", capsys, many) == ""
    assert shown(tmp_path / "odd", capsys, [SWEPT | {"time_us": None}]) == ""
    assert "\x1b" not in shown(tmp_path / "escape", capsys, [SWEPT | {"dtype": "\x1b[2J"}])
    (tmp_path / "PAIRS" / "round1").mkdir(parents=True)
    (tmp_path / "PAIRS" / "round1" / "round.json").write_text("{")
    assert shown(tmp_path, capsys) == ""
