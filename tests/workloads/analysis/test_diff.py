"""The comparison of two workloads: totals side by side, and the first call that differs with its module."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from workloads.analysis.diff import compare
from workloads.cli import main
from workloads.library import Block, CommGroup, CommType, LogItem, Workload
from workloads.rows.ops import EPOCH_END
from workloads.rows.ranks import Ranks

GATHER = LogItem(
    CommType.all_gather_into_tensor, CommGroup.tp_group, 8, 64, "forward", dtype="bfloat16", ranks=Ranks.of(range(8)),
    module="decoder.layers.0.mlp.linear_fc1", phase="forward",
)  # fmt: skip
SCATTER = replace(GATHER, comm_type=CommType.reduce_scatter_tensor, module="decoder.layers.0.mlp.linear_fc2")
NORM = LogItem(CommType.all_reduce, CommGroup.mp_group, 16, 4, "step", phase="step", dtype="float32")
ROWS = Workload([EPOCH_END, Block([Block([GATHER, SCATTER], 4, (1, 0)), NORM, EPOCH_END], 2)])


def test_a_workload_equals_itself_in_any_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ROWS.save(tmp_path / "a.csv")
    Workload(list(ROWS)).save(tmp_path / "b.csv")
    ROWS.save(tmp_path / "c.csv", "aicb")
    assert main(["diff", str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]) == 0
    assert capsys.readouterr().out.startswith("same\n")
    found = compare(ROWS, Workload.load(tmp_path / "c.csv")[0])
    assert [each.differing for each in found.mismatches] == [("group",)], "mp is no group of AICB's"
    assert found.totals[("forward", "tp", "all_gather")][0] == found.totals[("forward", "tp", "all_gather")][1]


@pytest.mark.parametrize(
    ("changes", "differing"),
    [
        ({"msg_size": 63}, ["bytes"]),
        ({"comm_type": CommType.broadcast}, ["type"]),
        ({"comm_group": CommGroup.dp_group}, ["group"]),
        ({"comm_group_size": 4}, ["comm_group_size"]),
        ({"dtype": "float32"}, ["dtype"]),
        ({"ranks": Ranks.of(range(8, 16))}, ["ranks"]),
        ({"comm_type": CommType.reduce_scatter, "dtype": None, "ranks": None}, []),
    ],
)
def test_the_first_call_that_differs_is_named(changes: dict[str, object], differing: list[str]) -> None:
    rows = list(ROWS)
    rows[6] = replace(rows[6], **changes)  # type: ignore[arg-type]
    found = compare(ROWS, Workload(rows))
    assert found.same is not bool(differing)
    if differing:
        (mismatch,) = found.mismatches
        assert (mismatch.phase, mismatch.number, list(mismatch.differing)) == ("forward", 5, differing)
        said = "\n".join(found.lines())
        assert "module decoder.layers.2.mlp.linear_fc2" in said and said.startswith("different\n")


def test_a_missing_call_an_order_and_an_iteration_are_differences() -> None:
    shorter = compare(ROWS, Workload([*list(ROWS)[:-2], EPOCH_END]))
    assert [(each.phase, each.number, each.second) for each in shorter.mismatches] == [("step", 1, None)]
    assert shorter.totals[("step", "mp", "all_reduce")][1].rows == 1
    rows = list(ROWS)
    rows[8], rows[9] = rows[9], rows[8]
    order = compare(ROWS, Workload(rows))
    assert not order.same and not order.mismatches and "another order" in order.lines()[-1]
    assert not compare(ROWS, Workload([*ROWS, EPOCH_END])).same


def test_json_and_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b, none = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "none.csv"
    ROWS.save(a)
    ROWS.epochs(0, 2).save(b)
    assert main(["diff", str(a), str(b), "--json"]) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["same"] is False and record["iterations"] == [2, 1]
    assert record["totals"][0] == {
        "phase": "forward", "group": "tp", "type": "all_gather", "rows": [8, 4], "bytes": [512, 256],
    }  # fmt: skip
    assert record["first_differences"][0]["calls"][1] is None and record["first_differences"][0]["call"] == 8
    assert main(["diff", str(a), str(none)]) == 2 and "No such file" in capsys.readouterr().err
