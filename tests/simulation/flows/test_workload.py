"""Flows of a whole workload."""

import csv
import json
from collections import Counter
from pathlib import Path

import pytest

from simulation import cli
from simulation.flows.command import COLUMNS_1_6

HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: {vpp} ga: {ga} "
    "all_gpus: {ranks} checkpoints: 0 checkpoint_initiates: 0 pp_comm: {pp_comm}\n"
)


def workload(folder: Path, rows: list[str], **sizes: int) -> Path:
    values = {"tp": 8, "ep": 1, "pp": 1, "vpp": 1, "ga": 1, "ranks": 16, "pp_comm": 0} | sizes
    file = folder / "workload.txt"
    file.write_text(HEADER.format(**values) + f"{len(rows)}\n" + "".join(f"{row}\n" for row in rows))
    return file


def cells(forward: str = "NONE 0", gradient: str = "NONE 0", weight: str = "NONE 0") -> str:
    return f"layer -1 1 {forward} 1 {gradient} 1 {weight} 1"


def run(folder: Path, file: Path, *words: str) -> list[dict[str, str]]:
    output = folder / "flows.csv"
    assert cli.main(["flows", "-w", str(file), "--output", str(output), "--force", *words]) == 0
    lines = [line for line in output.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def test_every_collective_has_its_flows_in_order_with_ids_that_go_on(tmp_path: Path) -> None:
    rows = [
        cells("ALLREDUCE 16777216", "ALLGATHER 8192", "REDUCESCATTER 1000003"),
        cells(),
        cells("ALLTOALL_EP 4096", "NONE 0", "ALLREDUCE_DP_EP 4096"),
    ]
    found = run(tmp_path, workload(tmp_path, rows, tp=2, ep=4), "--algorithm", "ring")
    keys = list(dict.fromkeys(row["collective"] for row in found))
    assert keys == [
        "TP_0_0_0_3_16777216",
        "DP_8_0_1_1_1000003",
        "TP_0_0_2_2_8192",
        "EP_10_2_0_4_4096",
        "DP_EP_14_2_1_3_4096",
    ]
    assert sorted(int(row["flow_id"]) for row in found) == list(range(len(found)))
    for row in found:
        parents = [int(parent) for parent in row["parent_flow_ids"].split(";") if parent]
        same = {int(other["flow_id"]) for other in found if other["collective"] == row["collective"]}
        assert same.issuperset(parents), "a flow waits for another collective"


def test_equal_collectives_can_be_written_once(tmp_path: Path) -> None:
    file = workload(tmp_path, [cells("ALLREDUCE 4096")] * 5 + [cells("ALLREDUCE 8192")])
    every, once = run(tmp_path, file), run(tmp_path, file, "--distinct")
    assert len(every) == 3 * len(once)
    assert Counter(row["data_size"] for row in once) == Counter({"4096": len(once) // 2, "8192": len(once) // 2})


def test_a_pipelines_transfers_follow_for_each_micro_batch(tmp_path: Path) -> None:
    found = run(tmp_path, workload(tmp_path, [cells()], tp=2, pp=4, vpp=2, ga=3, pp_comm=4096))
    assert len(found) == 3 * 2 * (2 * 4 - 1)
    first = [row for row in found if row["collective"].startswith("PP_") and row["collective"].split("_")[2] == "1"]
    forward = {(int(row["src"]), int(row["dest"]), int(row["chunk_id"])) for row in first if row["channel_id"] == "0"}
    assert forward == {(0, 4, 0), (4, 8, 0), (8, 12, 0), (12, 0, 0), (0, 4, 1), (4, 8, 1), (8, 12, 1)}


def test_groups_of_one_rank_are_counted_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, workload(tmp_path, [cells("ALLREDUCE 4096")] * 2, tp=1)) == []
    assert "without flows: 2 collectives: TP groups have one rank" in capsys.readouterr().out


def test_the_originals_dialect_writes_its_rows_and_names_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workload(tmp_path, [cells("ALLTOALL 4096"), cells("BROADCAST 4096")])
    found = run(tmp_path, file, "--dialect", "simai", "--json")
    assert (tmp_path / "flows.csv").read_text().startswith(COLUMNS_1_6) and {row["op"] for row in found} == {"AlltoAll"}
    assert json.loads(capsys.readouterr().out)["skipped"] == {"Broadcast: the original has no flows of it": 1}


@pytest.mark.parametrize(
    ("row", "words", "said"),
    [
        (cells("ALLREDUCES 4096"), "", "line 3: 'ALLREDUCES' is none of ALLREDUCE"),
        (cells("ALLREDUCE x"), "", "line 3: the bytes of the forward phase is 'x'"),
        (cells(), "--tp 4", "--tp 4: the workload's header says 8"),
        (cells(), "--op AllReduce --size 1M", "--op AllReduce: the workload says it"),
        (cells(), "--rings r.csv", "--rings r.csv: is of one group"),
        (cells(), "--ranks 12", "--ranks 12: must be a multiple of --tp 8"),
    ],
)
def test_mistakes_are_named_and_nothing_is_written(
    tmp_path: Path, row: str, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file, output = workload(tmp_path, [row]), tmp_path / "flows.csv"
    assert cli.main(["flows", "-w", str(file), "--output", str(output), *words.split()]) == 2
    assert said in capsys.readouterr().err and not output.exists()


def test_groups_of_frameworks_have_flows(tmp_path: Path) -> None:
    row = cells("ALLREDUCE_ALL 65536", "ALLGATHER_EP_TP 65536", "ALLREDUCE_EMBEDDING 65536")
    found = run(tmp_path, workload(tmp_path, [row], tp=2, ep=2, pp=2))
    ranks: dict[str, set[int]] = {}
    for each in found:
        ranks.setdefault(each["collective"].split("_0_")[0].rstrip("_0123456789"), set()).add(int(each["src"]))
    gpus = {kind: {rank for rank in its if rank < 16} for kind, its in ranks.items()}
    assert gpus == {"ALL": set(range(16)), "EP_TP": set(range(4)), "EMBEDDING": {0, 8}}
