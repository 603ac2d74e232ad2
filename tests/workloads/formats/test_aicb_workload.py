"""The library: building, iterating, slicing, totals, saving and loading."""

import json
import lzma
from pathlib import Path

import pytest

from tests.workloads.aicb_dialect import generate, simai
from workloads.library import (
    Block,
    CommGroup,
    CommType,
    LogItem,
    RankGroups,
    SimaiWorkload,
    Workload,
    WorkloadArgs,
    WorkloadFileError,
)
from workloads.rows.ops import HEADER

DATA = Path(__file__).parents[2] / "data" / "aicb"
ARGS = WorkloadArgs(
    world_size=8, tensor_model_parallel_size=2, num_attention_heads=16, global_batch=8, epoch_num=3, model_name="gpt"
)


def test_saved_workload_loads_with_its_parameters(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    workload = generate(ARGS)
    assert workload.save(path) == path.stat().st_size
    loaded, args = Workload.load(path)
    assert args == ARGS
    assert list(loaded) == list(workload)
    assert loaded.save(tmp_path / "again.csv") == path.stat().st_size
    assert (tmp_path / "again.csv").read_bytes() == path.read_bytes()


def test_loading_stores_equal_iterations_once(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    generate(WorkloadArgs(world_size=8, num_attention_heads=16, global_batch=32, epoch_num=50)).save(path)
    loaded, _ = Workload.load(path)
    assert loaded.iterations == 50
    iteration = loaded.rows.parts[-1]
    assert isinstance(iteration, Block)
    assert iteration.repeat == 50


@pytest.mark.parametrize("name", ["ds_z3_llama7b_ws8_comp", "deepseek16b_tp2_ep4_ws16_sp_do", "coll_broadcast_ws8"])
def test_files_of_aicb_load_and_come_back_as_they_were(name: str, tmp_path: Path) -> None:
    recorded = lzma.decompress((DATA / "csv" / f"{name}.csv.xz").read_bytes())
    (tmp_path / "aicb.csv").write_bytes(recorded)
    workload, args = Workload.load(tmp_path / "aicb.csv")
    assert args is None
    workload.save(tmp_path / "ours.csv")
    assert (tmp_path / "ours.csv").read_bytes() == recorded


def test_log_rows_keep_their_times() -> None:
    line = "CommType.all_reduce,CommGroup.dp_group,4,8,step,None,None,,1.25,0.5,0.75,1"
    item = LogItem.from_csv(line)
    assert (item.elapsed_time, item.algbw, item.busbw) == (1.25, 0.5, 0.75)
    assert item.to_csv() == line


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (
            "CommType.all_redoce,CommGroup.dp_group,4,8,s,None,None,,None,None,None,1",
            "comm_type is 'CommType.all_redoce'",
        ),
        ("CommType.all_reduce,CommGroup.xp_group,4,8,s,None,None,,None,None,None,1", "comm_group is"),
        ("CommType.all_reduce,CommGroup.dp_group,four,8,s,None,None,,None,None,None,1", "comm_group_size is 'four'"),
        ("CommType.all_reduce,CommGroup.dp_group,4,8,s,None,None,,None,None", "10 columns where 12"),
        ("CommType.computation,None,None,((1 2) (x y)),s,None,None,,None,None,None,1", "not two operand shapes"),
    ],
)
def test_a_broken_row_is_named(row: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(f"{HEADER}\n{row}\n")
    with pytest.raises(WorkloadFileError) as caught:
        Workload.load(path)
    assert str(path) in str(caught.value)
    assert "line 2" in str(caught.value)
    assert complaint in str(caught.value)


def test_files_that_are_no_workloads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadFileError, match="No such file"):
        Workload.load(tmp_path / "missing.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(WorkloadFileError, match="line 1: is not the header"):
        Workload.load(tmp_path / "other.csv")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WorkloadFileError, match="not a text file"):
        Workload.load(tmp_path / "binary.csv")


def test_parameters_of_another_file_are_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    generate(ARGS).save(path)
    path.write_text(f"{HEADER}\n")
    with pytest.raises(WorkloadFileError, match="belongs to a workload of"):
        Workload.load(path)
    (tmp_path / "workload.csv.args.json").write_text(json.dumps({"args": {"frame_": 1}, "workload_bytes": 1}))
    with pytest.raises(WorkloadFileError, match="unknown parameters: frame_"):
        Workload.load(path)


def test_totals_add_up() -> None:
    workload = generate(ARGS)
    by_hand = sum(int(item.comm_bytes) for item in workload)
    assert workload.total_bytes == by_hand
    for keys in (("comm_type",), ("comm_group", "stage"), ("phase",)):
        totals = workload.totals(*keys)
        assert sum(total.bytes for total in totals.values()) == by_hand
        assert sum(total.rows for total in totals.values()) == sum(item.is_communication for item in workload)
    with pytest.raises(ValueError, match="cannot total by colour"):
        workload.totals("colour")


def test_a_workload_is_built_from_rows_and_joined() -> None:
    row = LogItem(CommType.all_reduce, CommGroup.dp_group, 4, 100, "test")
    built = Workload([row, LogItem(CommType.epoch_end), Block([row, row, LogItem(CommType.epoch_end)], 2)])
    assert (len(built), built.iterations, built.total_bytes) == (8, 2, 500)
    assert list(built.epoch(2)) == [row, row, LogItem(CommType.epoch_end)]
    assert list(built.epoch(0) + built.epochs(1, 3)) == list(built)
    assert (generate(ARGS).epoch(0) + generate(ARGS).epoch(1)).args == ARGS
    assert (built + generate(ARGS)).args is None


def test_epochs_outside_are_refused() -> None:
    with pytest.raises(IndexError, match="0:4"):
        generate(ARGS).epoch(4)


def test_an_interrupted_write_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "workload.csv"
    path.write_text("old")

    class Trap(Block[LogItem]):
        def chunks(self, encode: object, limit: int = 0) -> object:  # type: ignore[override]
            yield b"half"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Workload(Trap([LogItem(CommType.barrier)]), ARGS).save(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["workload.csv"]


def test_simai_text_loads_as_it_was_written(tmp_path: Path) -> None:
    text = simai(ARGS_SIMAI)
    text.save(tmp_path / "text.txt")
    loaded = SimaiWorkload.load(tmp_path / "text.txt")
    assert loaded.header == text.header
    assert list(loaded) == list(text)


ARGS_SIMAI = WorkloadArgs(
    world_size=16,
    tensor_model_parallel_size=2,
    pipeline_model_parallel=2,
    num_attention_heads=16,
    global_batch=16,
    enable_sequence_parallel=True,
)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("pp_comm:", "pp_com:", "line 1: pp_com is unknown; there is model_parallel_NPU_group"),
        ("ALLREDUCE", "ALLREDOCE", "none of ALLREDUCE"),
        ("HYBRID", "HYBRYD", "does not begin with"),
        ("\n214\n", "\n213\n", "line 2: says 213 rows, but 214 follow"),
    ],
)
def test_a_broken_simai_text_is_named(old: str, new: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    simai(ARGS_SIMAI).save(path)
    content = path.read_text()
    assert old in content
    path.write_text(content.replace(old, new, 1))
    with pytest.raises(WorkloadFileError, match=complaint):
        SimaiWorkload.load(path)


def test_rank_groups_are_those_of_megatron() -> None:
    recorded = json.loads((DATA / "unit" / "rank_groups_tp-cp-ep-dp-pp.json").read_text())
    names = {
        "tp": CommGroup.tp_group,
        "pp": CommGroup.pp_group,
        "dp": CommGroup.dp_group,
        "ind_ep": CommGroup.ep_group,
        "ind_tp-ep": CommGroup.ep_tp_group,
        "ind_dp": CommGroup.ep_dp_group,
    }
    checked = 0
    for key, groups in recorded.items():
        sizes = {part.rstrip("0123456789"): int(part.lstrip("abcdefghijklmnopqrstuvwxyz")) for part in key.split("_")}
        if sizes["cp"] > 1 or sizes["ws"] // sizes["tp"] // sizes["pp"] % sizes["ep"]:
            continue
        ours = RankGroups(world_size=sizes["ws"], tp=sizes["tp"], pp=sizes["pp"], ep=sizes["ep"])
        for name, group in names.items():
            assert ours.groups(group) == groups[name], (key, name)
        checked += 1
    assert checked >= 4


def test_rank_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="does not divide"):
        RankGroups(world_size=8, tp=2, ep=3)
    with pytest.raises(ValueError, match="is not a multiple"):
        RankGroups(world_size=8, tp=3)
    assert RankGroups(world_size=8, tp=2, pp=2).group_of(5, CommGroup.dp_group) == [5, 7]
