"""Loads each workload that AICB ships, row for row: all 28 files, the CSVs reduced to a row of each form (shipped/)."""

import csv
import warnings
from pathlib import Path

import pytest

from common.errors import InputNote
from workloads.cli import main
from workloads.job.errors import WorkloadFileError
from workloads.library import Log, SimaiWorkload, Workload
from workloads.rows.ops import COLUMNS

DATA = Path(__file__).parents[1] / "data" / "aicb" / "shipped"
FILES = sorted(DATA.iterdir())
OLD_CSV = "has no column comm_group_size: it is None in every row"
OLD_TEXT = "its header is of before ep, pp, vpp, ga, all_gpus and pp_comm: they are None"
OTHER_COUNT = "line 2: says 839 rows, but 33 follow; these are taken"


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
    assert {each.category for each in said} <= {InputNote}
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


def test_a_file_with_a_section_for_each_stage_loads_stage_by_stage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As AICB ships L65B-M1-C05 (tp 2, pp 8): before each section its ranks and the header; made of its rows here."""
    part = (DATA / "L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv").read_text().splitlines()
    assert part[0].startswith("[ pp_stage0: [rank0, ") and part[0].endswith("rank15] ]")
    extra = "CommType.broadcast,CommGroup.tp_group,2,{},forward_step,None,0,,None,None,None,1"
    lines: list[str] = []
    for stage in range(8):
        ranks = ", ".join(f"rank{rank}" for rank in range(16 * stage, 16 * stage + 16))
        rows = [line for line in part[2:] if "CommGroup.pp_group,1," not in line]
        lines += [f"[ pp_stage{stage}: [{ranks}] ]", part[1], *rows[:-1], extra.format(1000 + stage), rows[-1]]
    path = tmp_path / "stages.csv"
    path.write_text("\n".join(lines))
    first, said = noted(path)
    assert said == ["has a section for each of 8 pipeline stages: this is the first"]
    for stage in range(8):
        items = list(Workload.load(path, stage)[0])
        assert len(items) == len(first) and items[-2].msg_size == 1000 + stage
    with pytest.raises(WorkloadFileError, match="has 8 pipeline stages, from 0 on; 8 is none of them"):
        Workload.load(path, 8)
    folder = tmp_path / "traces"
    assert main(["export", str(path), "--chakra", str(folder)]) == 0
    assert {file.name for file in folder.glob("*.et")} == {f"workload.{16 * stage}.et" for stage in range(8)}
    capsys.readouterr()
    broken = tmp_path / "broken.csv"
    broken.write_text("\n".join([*lines, "CommType.none,x"]))
    with pytest.raises(WorkloadFileError, match=f"line {len(lines) + 1}"):
        Workload.load(broken, 7)
