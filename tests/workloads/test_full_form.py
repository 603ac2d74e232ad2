"""The second form of a workload CSV: what it holds comes back, AICB's form is what it was, and mistakes are named."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import samples
from workloads.cli import main
from workloads.formats.fullcsv import FULL_HEADER
from workloads.library import Block, CommGroup, CommType, LogItem, Workload, WorkloadFileError
from workloads.rows.ops import EPOCH_END, HEADER
from workloads.rows.ranks import Ranks

TEXT = st.text(st.characters(codec="utf-8", exclude_characters=",\r\n", exclude_categories=["C", "Z"]), min_size=1)
MODULE = st.sampled_from(["decoder.layers.70.mlp", "model.norm", "0.layers.31", "h.40.layers.9"]) | TEXT
SPLITS = st.lists(st.integers(0, 3) | st.integers(0, 1 << 40), min_size=1, max_size=8).map(tuple)
ITEM = st.builds(
    LogItem,
    st.sampled_from([member for member in CommType if member is not CommType.computation]),
    st.none() | st.sampled_from(CommGroup),
    st.none() | st.integers(1, 1 << 20),
    st.integers(0, 1 << 50),
    st.just("") | TEXT,
    dtype=st.none() | st.sampled_from(["bfloat16", "float32"]),
    ranks=st.none() | st.lists(st.integers(0, 1 << 20), min_size=1, max_size=5, unique=True).map(Ranks.of),
    in_splits=st.none() | SPLITS,
    out_splits=st.none() | SPLITS,
    peer=st.none() | st.integers(0, 1 << 20),
    module=st.none() | MODULE,
    micro_batch=st.none() | st.integers(50, 1000),
    phase=st.none() | st.sampled_from(["forward", "step"]),
    overlap=st.none() | st.integers(-1, 1000),
)
SMALL = st.integers(-1, 1)


def blocks(parts: st.SearchStrategy[LogItem | Block[LogItem]]) -> st.SearchStrategy[LogItem | Block[LogItem]]:
    return st.builds(Block, st.lists(parts, min_size=1, max_size=3), st.integers(1, 3), st.tuples(SMALL, SMALL))


def may_shift(rows: Block[LogItem]) -> bool:
    try:
        return bool(list(rows)) or True
    except ValueError:
        return False


ROWS = st.lists(st.recursive(ITEM, blocks, max_leaves=6), max_size=5).map(Block).filter(may_shift)


@settings(
    max_examples=len(samples(60, 1500)), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=ROWS)
def test_rows_and_repetitions_come_back(rows: Block[LogItem], tmp_path: Path) -> None:
    path = tmp_path / "w.csv"
    workload = Workload(rows)
    assert workload.save(path, "full") == path.stat().st_size
    loaded, args = Workload.load(path)
    assert list(loaded) == list(workload) and args is None
    again = tmp_path / "again.csv"
    loaded.save(again, "full")
    assert again.read_bytes() == path.read_bytes()


def test_the_form_is_chosen_by_what_the_rows_need(tmp_path: Path) -> None:
    plain = [LogItem(CommType.all_reduce, CommGroup.dp_group, 8, 64, "step"), EPOCH_END]
    for rows, header in (
        (plain, HEADER),
        ([LogItem(CommType.gather), *plain], FULL_HEADER),
        ([LogItem(CommType.all_reduce, CommGroup.mp_group), *plain], FULL_HEADER),
        ([LogItem(CommType.all_reduce, dtype="float32"), *plain], FULL_HEADER),
        ([Block(plain, 2, (0, 1))], FULL_HEADER),
    ):
        Workload(rows).save(tmp_path / "w.csv")
        assert (tmp_path / "w.csv").read_text().splitlines()[0] == header


def test_aicbs_form_keeps_what_has_a_place_in_it(tmp_path: Path) -> None:
    row = LogItem(
        CommType.all_to_all_single, CommGroup.tp_ep_group, 4, 64, "forward", module="decoder.layers.3.mlp", overlap=2,
        dtype="bfloat16", micro_batch=0, phase="forward", in_splits=(1, 2, 30, 31),
    )  # fmt: skip
    workload = Workload([Block([row, LogItem(CommType.all_reduce, CommGroup.mp_group, 16, 4, "step")], 5, (1, 1))])
    workload.save(tmp_path / "w.csv", "aicb")
    loaded, _ = Workload.load(tmp_path / "w.csv")
    assert (tmp_path / "w.csv").read_text().startswith(f"{HEADER}\n") and len(loaded) == 10
    assert list(loaded)[8] == LogItem(CommType.all_to_all, CommGroup.ep_tp_group, 4, 64, "forward.decoder.layers.mlp")
    assert list(loaded)[9] == LogItem(CommType.all_reduce, CommGroup.all, 16, 4, "step")
    with pytest.raises(ValueError, match="gather has no place in AICB's format"):
        Workload([LogItem(CommType.gather)]).save(tmp_path / "no.csv", "aicb")
    assert not (tmp_path / "no.csv").exists()


@pytest.mark.parametrize("wrong", [LogItem(CommType.isend, module="a,b"), LogItem(CommType.isend, phase="")])
def test_a_text_without_a_place_in_a_csv_is_refused(wrong: LogItem, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no place in a CSV"):
        Workload([wrong]).save(tmp_path / "w.csv", "full")
    assert list(tmp_path.iterdir()) == []


ROW = "CommType.all_reduce,CommGroup.tp_group,8,64,forward,None,None,,None,None,None,1"


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        ("bfloat16,0:1:8,,,,m.layers.1,0,forward,0", "21 columns where 22"),
        (",0:0:8,,,,,,,,", "ranks are '0:0:8'"),
        (",0:1:99999999999,,,,,,,,", "ranks are"),
        (",,1+x,,,,,,,", "splits are '1+x'"),
        (",,1*999999999,,,,,,,", "more than"),
        (",,,,-1,,,,,", "peer is '-1'"),
        (",,,,,,one,,,", "micro_batch is 'one'"),
        (",,,,,,,,-2,", "overlap is '-2'"),
        (",,,,,,,,,8", "repeat is '8'"),
        (",,,,,,,,,]", "closes a block that is not open"),
        (",,,,,,,,,8[", "1 blocks of the column repeat are not closed"),
        (",,,,,,,,,0[]", "repeat makes no rows"),
        (",,,,,,,,,9999999999999[]", "more than"),
        (",,,,,,,,," + "2[" * 60, "more than 50 blocks"),
        (",,,,,m.layers.1,,,,3:-1:0[]", "below 0"),
        (",,,,,,1,,,2[3:0:-1[]]", "below 0"),
    ],
)
def test_a_broken_cell_is_named(cells: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text(f"{FULL_HEADER}\n{ROW},{cells}\n")
    with pytest.raises(WorkloadFileError) as caught:
        Workload.load(path)
    assert f"{path}, line 2" in str(caught.value) and complaint in str(caught.value)


def test_show_reads_it_and_generate_writes_the_form_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = LogItem(CommType.all_gather, CommGroup.dp_cp_group, 8, 1000, "step", dtype="bfloat16")
    Workload([EPOCH_END, Block([row, EPOCH_END], 1000)]).save(tmp_path / "w.csv")
    assert main(["show", str(tmp_path / "w.csv")]) == 0
    assert "dp_cp_group" in (said := capsys.readouterr().out) and "1.00 MB" in said
    given = ["generate", "--dialect", "aicb", "--num_attention_heads", "16", "--output"]
    for name, form in (("plain", []), ("aicb", ["--format", "aicb"]), ("full", ["--format", "full"])):
        assert main([*given, str(tmp_path / name), *form]) == 0
    assert (tmp_path / "plain").read_bytes() == (tmp_path / "aicb").read_bytes()
    assert (tmp_path / "full").read_text().startswith(FULL_HEADER)
    assert list(Workload.load(tmp_path / "full")[0]) == list(Workload.load(tmp_path / "aicb")[0])
