"""Loads each workload that AICB ships, row for row: all 28 files, the CSVs reduced to a row of each form (shipped/)."""

import csv
import warnings
from pathlib import Path

import pytest

from training.benchmarks.aicb.cli import main
from workloads.job.errors import WorkloadNote
from workloads.library import Log, SimaiWorkload, Workload
from workloads.rows.ops import COLUMNS

DATA = Path(__file__).parents[1] / "data" / "aicb" / "shipped"
FILES = sorted(DATA.iterdir())
OLD_CSV = "has no column comm_group_size: it is None in every row"
OLD_TEXT = "its header is of before ep, pp, vpp, ga, all_gpus and pp_comm: they are None"
OTHER_COUNT = "line 2: says '839' rows, but 33 follow; these are taken"


def cells(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV as they stand in it, by column, without a list of ranks before the header."""
    lines = path.read_text().splitlines()
    return list(csv.DictReader(lines[lines[0].startswith("[") :]))


def missing(path: Path) -> list[str]:
    """What a file does not say."""
    lines = path.read_text().splitlines()
    if path.suffix == ".csv":
        return [] if "comm_group_size" in "".join(lines[:2]) else [OLD_CSV]
    said = [] if lines[0] == "MICRO" or "pp_comm:" in lines[0] else [OLD_TEXT]
    return [*said, *([] if lines[1] == str(len(lines) - 2) else [OTHER_COUNT])]


def noted(path: Path) -> tuple[Workload | SimaiWorkload, list[str]]:
    """The file, and what was said of it."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loaded = Workload.load(path)[0] if path.suffix == ".csv" else SimaiWorkload.load(path)
    assert {each.category for each in said} <= {WorkloadNote}
    return loaded, [str(each.message).removeprefix(str(path)).lstrip(":, ") for each in said]


def test_all_that_aicb_ships_is_here() -> None:
    assert len(FILES) == 28
    assert sum(missing(path) != [] for path in FILES) == 11


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_aicb_ships_loads_row_for_row(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loaded, said = noted(path)
    assert said == missing(path)
    if isinstance(loaded, Workload):
        wanted = [[row.get(name, "None") for name in COLUMNS] for row in cells(path)]
        assert [row.to_csv().split(",") for row in loaded] == wanted
        assert loaded.iterations == 1
    else:
        text = path.read_text().splitlines()
        assert [row.to_text().split() for row in loaded] == [line.split() for line in text[2:]]
        tensor = text[0].split()[2:3]
        assert tensor == ([] if loaded.header is None else [str(loaded.header.tp)])
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"note: {path}{', ' if note == OTHER_COUNT else ' ' if note == OLD_CSV else ': '}{note}" for note in said
    ]


def test_the_log_that_aicb_ships_has_its_times() -> None:
    path = DATA / "A100_example.csv"
    log, rows = Log.load(path), cells(path)
    ends = [row for row in rows if row["comm_type"] == "CommType.epoch_end"]
    assert log.epoch_times == [float(row["_elapsed_time"]) for row in ends]
    assert [row.busbw for row in log.comm_logs] == [float(row["busbw"]) for row in rows if row not in ends]
