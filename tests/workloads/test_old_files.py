"""Reads forms of workloads that AICB ships and no longer writes; what they do not say is None and named once."""

import warnings
from pathlib import Path

import pytest

from common.errors import InputNote
from workloads.cli import main
from workloads.formats.csvfile import OLD_HEADER
from workloads.job.errors import WorkloadFileError
from workloads.library import CommType, SimaiWorkload, Workload
from workloads.rows.ops import HEADER

ROWS = """CommType.all_reduce,CommGroup.dp_group,8,8,init.model_setup,None,None,,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
CommType.isend,CommGroup.pp_group,1,33554432,backward_step,None,None,send_prev,None,None,None,1
CommType.epoch_end,None,None,0,,None,None,,None,None,None,1
"""
OLD_ROWS = """CommType.all_to_all,CommGroup.dp_group,4096,warmup,None,None,,None,None,None,1
CommType.epoch_end,None,0,,None,None,,None,None,None,1
CommType.broadcast,CommGroup.tp_group,8192,test_step,None,0,,None,None,None,1
CommType.epoch_end,None,0,,None,None,,None,None,None,1
"""
OLD_SIMAI = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: 2 checkpoints: 0 checkpoint_initiates: 0\n2\n"
    "norm\t-1\t0\tBROADCAST\t16384\t1\tNONE\t0\t1\tNONE\t0\t100\n"
    "Llama_layer1\t-1\t 14356000\tNONE\t0   4756000\tALLGATHER\t357468\t 1\tREDUCESCATTER\t1889785610\t100"
)


@pytest.mark.parametrize(
    "ranks", ["[rank0 ~ rank127]", "[ pp_stage0: [rank0, rank1, rank2, rank3] ]", "[pp_stage3: [rank48] ]"]
)
def test_a_list_of_ranks_may_stand_before_the_header(ranks: str, tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"{ranks}\n{HEADER}\n{ROWS}")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        workload, args = Workload.load(path)
    assert args is None
    assert [row.comm_type for row in workload][2] is CommType.isend
    assert [row.comm_group_size for row in workload] == [8, None, 1, None]


def test_a_workload_without_group_sizes_has_none_and_says_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"{OLD_HEADER}\n{OLD_ROWS}")
    assert OLD_HEADER == "comm_type,comm_group,msg_size,stage,dst,src,additional,_elapsed_time,algbw,busbw,count"
    with pytest.warns(InputNote, match="has no column comm_group_size") as said:
        workload, _ = Workload.load(path)
    assert len(said) == 1
    first, _, third, _ = workload
    assert (first.comm_group_size, first.msg_size, first.stage) == (None, 4096, "warmup")
    assert (third.src, third.msg_size) == (0, 8192)
    assert workload.iterations == 1
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().err == f"note: {path} has no column comm_group_size: it is None in every row\n"


def test_an_old_row_with_a_column_too_many_is_refused_by_its_line(tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    path.write_text(f"{OLD_HEADER}\n{ROWS}")
    with pytest.warns(InputNote), pytest.raises(WorkloadFileError, match="line 2: 12 columns where 11 are expected"):
        Workload.load(path)


def test_simai_text_of_before_expert_and_pipeline_parallelism(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.txt"
    path.write_text(OLD_SIMAI)
    with pytest.warns(InputNote, match="ep, pp, vpp, ga, all_gpus and pp_comm: they are None") as said:
        workload = SimaiWorkload.load(path)
    assert len(said) == 1
    assert workload.header is not None
    assert (workload.header.tp, workload.header.ep, workload.header.pp, workload.header.pp_comm) == (
        2,
        None,
        None,
        None,
    )
    assert [row.forward.comm for row in workload] == ["BROADCAST", "NONE"]
    workload.save(tmp_path / "again.txt")
    with pytest.warns(InputNote):
        again = SimaiWorkload.load(tmp_path / "again.txt")
    assert (again.header, list(again)) == (workload.header, list(workload))
    assert main(["show", str(path)]) == 0
    assert capsys.readouterr().err.startswith(f"note: {path}: its header is of before ep, pp")


def test_an_old_simai_text_with_a_wrong_number_of_rows_keeps_those_it_has(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text(OLD_SIMAI.replace("\n2\n", "\n839\n"))
    with pytest.warns(InputNote, match="line 2: says 839 rows, but 2 follow; these are taken"):
        assert len(SimaiWorkload.load(path)) == 2


@pytest.mark.parametrize(
    ("sound", "hostile", "complaint"),
    [
        ("ep: 1", "ep: 1e9", "line 1: ep is '1e9', not a whole number"),
        ("pp_comm: 8", "pp_comm: 1e400", "line 1: pp_comm is '1e400', not a whole number"),
        ("pp_comm: 8", "pp_comm: nan.0", "line 1: pp_comm is 'nan.0', not a whole number"),
        ("4096", "9" * 400, "line 3: not a row of a SimAI workload: the bytes of the weight gradient phase is 999"),
        ("4096", "-4096", "the bytes of the weight gradient phase is -4096, allowed is 0"),
        ("micro", "\x1b[31mred", r"line 3: not a row of a SimAI workload: name is '\\x1b\[31mred'"),
    ],
)
def test_simai_text_that_cannot_be_is_refused_by_its_line(
    sound: str, hostile: str, complaint: str, tmp_path: Path
) -> None:
    keys = "model_parallel_NPU_group: 2 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 2 checkpoints: 0 checkpoint_initiates: 0"
    row = "micro\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLGATHER\t4096\t1"
    text = f"HYBRID_TRANSFORMER_FWD_IN_BCKWD {keys} pp_comm: 8\n1\n{row}\n"
    path = tmp_path / "w.txt"
    path.write_text(text)
    assert len(SimaiWorkload.load(path)) == 1
    path.write_text(text.replace(sound, hostile))
    with pytest.raises(WorkloadFileError, match=complaint):
        SimaiWorkload.load(path)


def test_a_header_that_lacks_some_of_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    path.write_text(OLD_SIMAI.replace("checkpoints:", "pp: 2 checkpoints:"))
    with pytest.raises(WorkloadFileError, match="line 1: lacks ep, vpp, ga"):
        SimaiWorkload.load(path)
