"""Loads each workload that AICB ships, row for row: all 28 files, whole but for the log A100_example (shipped/)."""

import csv
import json
import lzma
import warnings
from pathlib import Path

import pytest

from common.errors import InputNote
from simulation.cli import main as simulate
from workloads.cli import main
from workloads.job.errors import WorkloadFileError
from workloads.library import Log, SimaiWorkload, Workload
from workloads.rows.ops import COLUMNS

DATA = Path(__file__).parents[1] / "data" / "aicb" / "shipped"
STAGES = "L65B-M1-C05_Llama65B_megatron_tp2_pp8_mbs1.csv"
NAMES = sorted(path.name.removesuffix(".xz") for path in DATA.iterdir())
# Bytes of the CSVs that are whole, as of the originals; of the log its first lines and forms of rows are here.
WHOLE = {
    "G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1.csv": 19_034,
    "G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp.csv": 45_280,
    "L13B-D1-C03_Llama13B_zero2_mbs1.csv": 33_702,
    "L13B-D1-C04_Llama13B_zero3_mbs1.csv": 156_179,
    "L30B-D1-C05_Llama30B_zero2_mbs1.csv": 52_974,
    "L30B-D1-C06_Llama30B_zero3_mbs1.csv": 234_719,
    "L65B-D1-C07_Llama65B_zero2_mbs1.csv": 78_398,
    "L65B-D1-C07_Llama65B_zero3_mbs1.csv": 317_590,
    STAGES: 2_226_392,
    "L7B-D1-C01_Llama7B_zero2_mbs1.csv": 26_005,
    "L7B-D1-C02_Llama7B_zero3_mbs1.csv": 124_167,
    "L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1.csv": 15_643,
    "all_gather_workload.csv": 195_697,
    "all_reduce_workload.csv": 195_697,
    "all_to_all_workload.csv": 169_297,
    "multi_all_reduce_workload.csv": 173_523,
    "reduce_scatter_workload.csv": 204_897,
}
OLD_CSV = "has no column comm_group_size: it is None in every row"
OLD_TEXT = "its header is of before ep, pp, vpp, ga, all_gpus and pp_comm: they are None"
OTHER_COUNT = "line 2: says 839 rows, but 33 follow; these are taken"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all files, compressed ones unpacked."""
    folder = tmp_path_factory.mktemp("shipped")
    for path in DATA.iterdir():
        data = path.read_bytes()
        (folder / path.name.removesuffix(".xz")).write_bytes(lzma.decompress(data) if path.suffix == ".xz" else data)
    return folder


def cells(path: Path, stage: int = 0) -> list[dict[str, str]]:
    """The rows of a CSV as they stand in it, by column; stage: of which section, if each begins with its ranks."""
    lines = path.read_text().splitlines()
    begins = [number for number, line in enumerate(lines) if line.startswith("[")]
    if begins:
        lines = lines[begins[stage] + 1 : [*begins, None][stage + 1]]
    return list(csv.DictReader(lines))


def missing(path: Path) -> list[str]:
    """What a file does not say."""
    lines = path.read_text().splitlines()
    if path.name == STAGES:
        return ["has a section for each of 8 pipeline stages: this is the first"]
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


def test_all_that_aicb_ships_is_here(shipped: Path) -> None:
    assert len(NAMES) == 28
    assert sum(missing(shipped / name) != [] for name in NAMES) == 12
    assert {name: (shipped / name).stat().st_size for name in WHOLE} == WHOLE


@pytest.mark.parametrize("name", NAMES)
def test_what_aicb_ships_loads_row_for_row(name: str, shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = shipped / name
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
        f"note: {path}{', ' if note == OTHER_COUNT else ': ' if note == OLD_TEXT else ' '}{note}" for note in said
    ]


def test_the_log_that_aicb_ships_has_its_times() -> None:
    path = DATA / "A100_example.csv"
    log, rows = Log.load(path), cells(path)
    ends = [row for row in rows if row["comm_type"] == "CommType.epoch_end"]
    assert log.epoch_times == [float(row["_elapsed_time"]) for row in ends]
    assert [row.busbw for row in log.comm_logs] == [float(row["busbw"]) for row in rows if row not in ends]


def test_the_file_with_a_section_for_each_stage_loads_whole(
    shipped: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows of all eight sections; embeddings, which the last stage sums with the first, stand in the last alone."""
    path = shipped / STAGES
    for stage in range(8):
        rows = cells(path, stage)
        loaded, _ = Workload.load(path, stage)
        assert [row.to_csv().split(",") for row in loaded] == [[row[name] for name in COLUMNS] for row in rows]
        assert any(row["comm_group"] == "CommGroup.embedding_group" for row in rows) == (stage == 7)
    with pytest.raises(WorkloadFileError, match="has 8 pipeline stages, from 0 on; 8 is none of them"):
        Workload.load(path, 8)
    folder = tmp_path / "traces"
    assert main(["export", str(path), "--chakra", str(folder)]) == 0
    assert {file.name for file in folder.glob("*.et")} == {f"workload.{16 * stage}.et" for stage in range(8)}
    assert [0, 112] in json.loads((folder / "comm_groups.json").read_text()).values()
    cluster = ["-g", "128", "-g_p_s", "8", "-n_p_s", "8", "-nic_t", "cx7", "-g_type", "A100"]
    assert simulate(["analytical", "-w", str(path), *cluster, "-r", str(tmp_path / "times_")]) == 0
    division = json.loads((tmp_path / "times_EndToEnd.json").read_text())["division"]
    assert (division["tp"], division["pp"], division["dp"], division["ga"]) == (2, 8, 8, 8)
    capsys.readouterr()
    broken = tmp_path / "broken.csv"
    text = path.read_text()
    broken.write_text(f"{text}CommType.none,x")
    with pytest.raises(WorkloadFileError, match=f"line {text.count(chr(10)) + 1}"):
        Workload.load(broken, 7)
