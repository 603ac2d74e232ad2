"""The flow level against the bus bandwidths of AllReduce that SimAI's tutorial publishes, simulated by its ns-3.

They are 2(n-1)/n times the bytes over the time of the whole iteration, in 2**30 bytes a second.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from common.units import size_bytes
from simulation.cli import main

PUBLISHED = Path(__file__).resolve().parents[2] / "data" / "simulation" / "simai_tutorial.csv"
RANKS = {"NVLS": 8, "RING": 8, "Spectrum-X": 32}  # of a group
PERCENT = {"NVLS": 0.1, "RING": 0.4, "Spectrum-X": 0.7}
ROWS = list(csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("table", RANKS)
def test_bus_bandwidths_are_those_that_simai_published(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row for row in ROWS if row["table"] == table]
    assert len(rows) == 6 and len({row["topology"] for row in rows}) == 1
    fabric = tmp_path / "fabric"
    assert main(["topology", *rows[0]["topology"].split(), "--output", str(fabric)]) == 0
    words = ["network", "--dialect", "simai", "--level", "flow", "-n", str(fabric), "-r", f"{tmp_path}/"]
    for row in rows:
        capsys.readouterr()
        size = ["--op", "AllReduce", "--size", row["size"], *row["options"].split(), "--json", "--force"]
        assert main([*words, *size]) == 0
        took_s = json.loads(capsys.readouterr().out)["iteration_us"] / 1e6
        ranks = RANKS[table]
        busbw = size_bytes(row["size"]) * 2 * (ranks - 1) / ranks / took_s / 2**30
        assert busbw == pytest.approx(float(row["busbw_GiBps"]), rel=PERCENT[table] / 100), row["size"]
