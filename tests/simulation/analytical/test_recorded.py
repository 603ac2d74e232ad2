"""Dialect simai writes what SimAI's analytical program wrote, cell for cell, in every recorded run."""

import hashlib
from pathlib import Path

import pytest

from simulation.cli import main
from tests.simulation.analytical import recorded
from tests.simulation.analytical.recorded import RecordedRun


@pytest.mark.parametrize("run", recorded.runs(), ids=lambda run: run.name)
def test_csv_and_summary_are_the_recorded_ones(
    run: RecordedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = recorded.workload(run.workload, tmp_path)
    assert main(["analytical", "--dialect", "simai", "-w", str(path), *run.options]) == 0
    made = Path(run.file).read_bytes()
    assert run.first_difference(made) == ""
    assert hashlib.sha256(made).hexdigest() == run.sha256


def test_all_recorded_runs_are_there() -> None:
    assert len(recorded.runs()) == 93
    assert sum(run.csv is None for run in recorded.runs()) == 3


def test_the_first_differing_cell_is_named() -> None:
    run = next(run for run in recorded.runs() if run.name == "ex_seed_9216")
    assert run.csv is not None
    assert run.first_difference(run.csv.replace(b"355670", b"355671", 1)) == (
        "line 8, column 7: '355671', recorded is '355670'"
    )


@pytest.mark.parametrize(("overlap", "total"), [((), "7234189"), (("-pp_o", "0"), "7613136")])
def test_a_file_of_bus_bandwidths_means_what_it_meant(
    overlap: tuple[str, ...], total: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = recorded.workload(recorded.SEED, tmp_path)
    file = recorded.DATA / "busbw_old_form.yaml"
    options = [*recorded.SEED_OPTIONS, "-r", "b-", "-busbw", str(file), *overlap]
    assert main(["analytical", "--dialect", "simai", "-w", str(path), *options]) == 0
    assert Path("b-EndToEnd.csv").read_text().split("\n")[1].split(", ")[-1] == total
