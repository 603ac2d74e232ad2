"""The database of compute times: look-up in three ways, error bars, merging, and files that are not to be trusted."""

import json
import math
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.base_runs import step, write_base_run
from tests.training.benchmarks.aicb.aiob_records import GPT, record
from training.benchmarks.aicb.measuring.command import Measured
from vendors.datasheets import datasheet
from workloads.cli import main
from workloads.compute import database
from workloads.compute.check import leave_one_out
from workloads.compute.lookup import ComputeTimes
from workloads.compute.measurement import ComputeDataError, ComputeTime
from workloads.library import Workload
from workloads.rows.ops import gemm_of

GEMM = ComputeTime(
    "H100 SXM", "gemm", "m=1024 k=1024 n=1024", "bf16", "cublas", "torch 2.13.0", 5000.0, 0.02, 10, "a test"
)


def _gemms(sizes: Iterable[tuple[int, int, int]], device: str = "H100 SXM", rate: float = 500e3) -> list[ComputeTime]:
    """Rows that take 1 us and their operations at `rate` FLOP per ns."""
    return [
        replace(GEMM, device=device, shape=f"m={m} k={k} n={n}", ns=1000 + 2.0 * m * k * n / rate) for m, k, n in sizes
    ]


def test_a_measured_shape_is_answered_exactly_with_its_own_spread() -> None:
    answer = ComputeTimes([GEMM]).look_up("NVIDIA H100 80GB HBM3", "gemm", "n=1024,k=1024,m=1024", "bf16")
    assert (answer.how, answer.ns, answer.error, answer.basis) == ("exact", 5000.0, 0.02, (GEMM,))


def test_measurements_of_two_sources_answer_with_their_median_and_disagreement() -> None:
    other = replace(GEMM, source="another", ns=6000.0)
    times = ComputeTimes([GEMM, other, replace(GEMM, kernel="triton", ns=9000.0)])
    answer = times.look_up("H100 SXM", "gemm", GEMM.shape, "bf16", kernel="cublas")
    assert answer.ns == 5500.0
    assert answer.error == pytest.approx(500 / 5500)
    assert times.look_up("H100 SXM", "gemm", GEMM.shape, "bf16").ns == 6000.0


def test_between_two_rows_of_one_axis_lies_the_straight_line_of_the_logarithms() -> None:
    rows = [replace(GEMM, shape=f"m={m} k=512 n=512", ns=ns) for m, ns in ((256, 4000.0), (4096, 64000.0), (8192, 1.0))]
    answer = ComputeTimes(rows).look_up("H100 SXM", "gemm", "m=1024 k=512 n=512", "bf16")
    assert answer.how == "interpolated"
    assert answer.ns == pytest.approx(16000.0)
    assert len(answer.basis) == 2


def test_a_shape_among_scattered_neighbours_is_within_its_error_bar() -> None:
    sizes = [(m, k, n) for m in (1024, 2048, 4096) for k in (2048, 4096) for n in (2048, 8192)]
    answer = ComputeTimes(_gemms(sizes)).look_up("H100 SXM", "gemm", "m=3000 k=3000 n=5000", "bf16")
    truth = 1000 + 2.0 * 3000 * 3000 * 5000 / 500e3
    assert answer.how == "interpolated"
    assert abs(answer.ns / truth - 1) < max(0.05, answer.error)
    assert 0 < answer.error < 0.3


def test_an_unmeasured_device_is_scaled_by_what_bounds_the_shape() -> None:
    rows = [*_gemms([(4096, 4096, 4096)]), *_gemms([(1, 8192, 8192)])]
    times = ComputeTimes(rows)
    h100, h200 = datasheet("H100 80GB HBM3"), datasheet("H200")
    assert h100 is not None and h200 is not None
    large = times.look_up("H200", "gemm", "m=4096 k=4096 n=4096", "bf16")
    assert (large.how, large.bound) == ("roofline", "compute")
    assert large.ns == pytest.approx(rows[0].ns)
    small = times.look_up("H200", "gemm", "m=1 k=8192 n=8192", "bf16")
    assert small.bound == "memory"
    assert small.ns == pytest.approx(rows[1].ns * h100.memory_GBps / h200.memory_GBps)
    assert small.error >= 0.2 and small.basis == (rows[1],)


def test_a_shape_far_from_the_measured_ones_keeps_their_share_of_the_peak() -> None:
    answer = ComputeTimes(_gemms([(4096, 4096, 4096)])).look_up("H100 SXM", "gemm", "m=65536 k=8192 n=8192", "bf16")
    assert answer.how == "roofline" and answer.bound == "compute"
    assert answer.ns == pytest.approx(_gemms([(4096, 4096, 4096)])[0].ns * 64)
    assert answer.error == pytest.approx(0.1 * (16 + 1 + 1) ** 0.5)


def test_what_is_shorter_than_the_start_of_a_kernel_has_no_upper_bound() -> None:
    answer = ComputeTimes(_gemms([(4096, 4096, 4096)])).look_up("H100 SXM", "gemm", "m=32 k=64 n=64", "bf16")
    assert answer.ns < 5000 and answer.error == float("inf") and "lower bound" in answer.why


def test_rows_of_the_other_half_type_and_of_the_same_product_stand_in() -> None:
    times = ComputeTimes(replace(row, dtype="fp16") for row in _gemms([(4096, 4096, 4096)]))
    answer = times.look_up("H100 SXM", "gemm_wgrad", "m=4096 k=4096 n=4096", "bf16")
    assert answer.how == "roofline" and answer.error >= 0.2 and answer.basis[0].dtype == "fp16"
    assert answer.ns == pytest.approx(_gemms([(4096, 4096, 4096)])[0].ns)
    assert "from gemm in fp16" in answer.why
    assert times.look_up("H100 SXM", "experts", "experts=1 m=4096 k=4096 n=4096", "bf16").error == float("inf")


def test_attention_with_a_mask_does_not_answer_for_one_without() -> None:
    shape = "batch=1 seq={} heads=8 groups=8 qk=128 v=128 causal={}"
    masked = [replace(GEMM, op="attention", shape=shape.format(seq, 1), ns=0.1 * seq**2) for seq in (1024, 4096)]
    times = ComputeTimes(masked)
    assert times.look_up("H100 SXM", "attention", shape.format(2048, 1), "bf16").how == "interpolated"
    for seq in (1024, 2048):
        answer = times.look_up("H100 SXM", "attention", shape.format(seq, 0), "bf16")
        assert (answer.how, answer.basis, answer.error) == ("roofline", (), float("inf"))


def test_a_workload_is_filled_with_the_times_of_its_products(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, out = tmp_path / "plain.csv", tmp_path / "out.csv"
    words = ["--dialect=aicb", "--world_size=2", "--tp=2", "--hidden_size=4096", "--num_attention_heads=32"]
    assert main(["generate", *words, "--computation_enable", "--output", str(plain)]) == 0
    fill = ["compute", "fill", str(plain), "--output", str(out), "--device", "H200"]
    assert main(fill) == 0
    assert "largest error bar: " in capsys.readouterr().out
    times = ComputeTimes(database.shipped())
    rows = [(item, gemm_of(item)) for item in Workload.load(out)[0].rows if item.comm_type.name == "computation"]
    assert rows
    for item, gemm in rows:
        assert gemm is not None
        assert item.elapsed_time == round(times.look_up("H200", gemm.op, gemm.shape, "bf16").ns)
    assert main(["generate", *words, "--output", str(plain), "--force"]) == 0
    assert main(fill) == 2
    assert "has no computation rows" in capsys.readouterr().err


def test_without_measurements_the_datasheet_gives_a_lower_bound() -> None:
    answer = ComputeTimes([]).look_up("A100-SXM4-80GB", "gemm", "m=4096 k=4096 n=4096", "bf16")
    assert answer.ns == pytest.approx(2 * 4096**3 / 312e3)
    assert answer.error == float("inf")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--device", "abacus", "--op", "gemm", "--shape", "m=1 k=1 n=1"], "measured devices: A100 80GB, H100 SXM"),
        (["--device", "H100 SXM", "--op", "gemm", "--shape", "m=1 k=1"], "lacks n=N"),
        (["--device", "H100 SXM", "--op", "gemm", "--shape", "m=1 k=1 n=0"], "n must be from 1"),
        (["--device", "H100 SXM", "--op", "gemm", "--shape", "m=1 k=1 x=1"], "expected m=N k=N n=N"),
        (["--device", "V100 SXM2 16GB", "--op", "gemm", "--shape", "m=1 k=1 n=1"], "has no rate of bf16"),
    ],
)
def test_what_cannot_be_answered_says_why(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "look-up", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_the_shipped_tables_predict_their_rows_within_ten_percent(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compute", "check"]) == 0
    output = capsys.readouterr().out
    assert float(output.split("median ")[-1].split("%")[0]) < 10
    assert main(["compute", "show"]) == 0
    assert "microsoft/vidur" in capsys.readouterr().out


def test_tables_that_do_not_predict_themselves_fail_the_check(tmp_path: Path) -> None:
    wild = [
        replace(row, ns=row.ns * (5 if at % 2 else 1))
        for at, row in enumerate(_gemms([(2**e, 64, 64) for e in range(8)]))
    ]
    database.write(tmp_path / "wild.db", wild)
    assert main(["compute", "check", "--no_shipped", "--database", str(tmp_path / "wild.db")]) == 1


def test_a_row_is_left_out_with_all_measurements_of_its_shape() -> None:
    rows = _gemms([(1024, 1024, 1024), (4096, 1024, 1024)])
    left, alone = leave_one_out([*rows, replace(rows[0], source="again")])
    assert {each.how for each in left} == {"roofline"} and not alone


def test_the_scaled_time_of_the_shipped_h100_agrees_with_the_measured_a100() -> None:
    shipped = database.shipped()
    h100 = ComputeTimes(row for row in shipped if row.device == "H100 SXM")
    for row in shipped:
        if row.device == "A100 80GB" and row.op == "gemm" and row.axes["m"] == 4096:
            answer = h100.look_up("A100 PCIe 80GB", "gemm", row.shape, "fp16")
            assert answer.how == "roofline"
            assert abs(answer.ns / row.ns - 1) < answer.error, row.shape


def test_products_measured_on_an_h200_lie_within_the_bars_of_what_an_h100s_table_predicts() -> None:
    shipped = database.shipped()
    h100 = ComputeTimes(row for row in shipped if row.device == "H100 SXM")
    measured = [row for row in shipped if row.device == "H200 SXM" and row.op.startswith("gemm")]
    answers = [(row, h100.look_up("H200 SXM", row.op, row.shape, row.dtype)) for row in measured]
    assert len(answers) > 100 and {answer.how for _, answer in answers} == {"roofline"}
    within = [abs(answer.ns / row.ns - 1) <= answer.error <= 1 for row, answer in answers]
    assert sum(within) >= 0.9 * len(within)


def test_databases_merge_and_keep_what_differs_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs, out = tmp_path / "mine.db", tmp_path / "their ?#%.db", tmp_path / "all.db"
    newer, elsewhere = replace(GEMM, versions="torch 2.14.0", ns=4000.0), replace(GEMM, source="elsewhere", ns=7000.0)
    database.write(mine, [GEMM, newer])
    database.write(theirs, [GEMM, elsewhere])
    assert main(["compute", "merge", str(out), str(mine), str(theirs)]) == 0
    assert set(database.load(out)) == {GEMM, newer, elsewhere}
    assert main(["compute", "merge", str(out), str(theirs)]) == 0
    assert "3 rows, 0 of them new" in capsys.readouterr().out
    assert main(["compute", "show", "--no_shipped", "--rows", "--database", str(out)]) == 0
    table = tmp_path / "all.csv"
    table.write_text(capsys.readouterr().out)
    assert set(database.load(table)) == {GEMM, newer, elsewhere}


WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from workloads.compute import database
from tests.workloads.compute.test_compute import GEMM
for number in range(20):
    database.add(Path(sys.argv[1]), [replace(GEMM, source=f"{sys.argv[2]} {number}")])
"""


def test_products_of_base_and_times_of_aiob_are_rows_beside_those_of_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 1,024 squares 2**31 operations are 2.147 us at 1,000 TFLOPS; what ran for seconds is no burst."""
    run = tmp_path / "run"
    rates = [step("matmul_bf16", 1000.0, 500.0), step("matmul_fp8", 2000.0, 2000.0), step("matmul_sustained", 1.0, 1.0)]
    write_base_run(
        run, "NVIDIA H100 80GB HBM3", [*rates, {**step("matmul_fp32", 1.0), "correct": "fail"}], matmul_size=1024
    )
    made = Measured(record(GPT))
    (tmp_path / "aiob.json").write_text(made.to_json())
    assert main(["compute", "merge", str(tmp_path / "all.db"), str(run), str(tmp_path / "aiob.json")]) == 0
    rows = database.load(tmp_path / "all.db")
    of_base = {row.dtype: row for row in rows if row.source == "base, run1"}
    assert set(rows) - set(of_base.values()) == set(made.times()) and len(rows) > 20
    bf16, fp8 = of_base.pop("bf16"), of_base.pop("fp8")
    assert not of_base and (bf16.op, fp8.op) == ("gemm_dgrad", "gemm")
    assert bf16.ns == pytest.approx(1.5 * 2147.483648) and bf16.spread == pytest.approx(1 / 3) and bf16.count == 40
    assert fp8.ns == pytest.approx(1073.741824) and fp8.spread == 0
    assert (bf16.device, bf16.versions) == ("H100 SXM", "torch 2.13.0")
    capsys.readouterr()
    words = ["look-up", "--device", "H100", "--op", "gemm", "--dtype", "fp8", "--shape", "m=1024 k=1024 n=1024"]
    assert main(["compute", *words, "--database", str(run), "--no_shipped"]) == 0
    assert "1.074 us, exact" in capsys.readouterr().out
    old = json.loads(made.to_json())
    del old["times"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert main(["compute", "show", "--database", str(tmp_path / "old.json"), str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "is no record of aiob: lacks the key 'times'" in said and "is no folder of a run" in said


def test_odd_records_of_base_are_left_out_or_refused(tmp_path: Path) -> None:
    odd = [step("matmul_bf16", *rates) for rates in ([math.inf], [math.nan], [700.0, 0.0], [1e-320], [10**400])]
    odd += [{**step("matmul_bf16"), "values_of_ranks": [700.0, None]}, {**step("matmul_bf16", 1.0), "test": ["x"]}]
    run = write_base_run(tmp_path / "run", "NVIDIA H100", [*odd, step("matmul_fp16", 500.0)], watts=math.inf)
    assert [row.dtype for row in database.load(run)] == ["fp16"]
    write_base_run(run, "x" * 401, [step("matmul_fp16", 500.0)])
    with pytest.raises(ComputeDataError, match="row 2: device is 'xxxx"):
        database.load(run)


def test_two_processes_that_write_at_once_lose_no_row(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    paths = {"one": tmp_path / "real" / "ours.db", "two": tmp_path / "link" / "ours.db"}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name, path in paths.items()]
    assert [writer.wait(timeout=200) for writer in writers] == [0, 0]
    sources = {row.source for row in database.load(paths["one"])}
    assert sources == {f"{name} {number}" for name in paths for number in range(20)}
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["ours.db"]


def test_a_database_that_stays_with_another_writer_is_refused_and_a_dead_writers_lock_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ours.db"
    (tmp_path / ".ours.db.lock").touch()
    database.add(path, [GEMM])
    monkeypatch.setattr(database, "PATIENCE_SECONDS", 0.05)
    with database.only_writer(path), pytest.raises(ComputeDataError, match="another process has been changing it"):
        database.add(path, [replace(GEMM, source="late")])
    assert database.load(path) == [GEMM]


def test_a_huge_row_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.db"
    database.write(path, [GEMM])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE measurement SET kernel = hex(zeroblob(40000))")
        connection.commit()
    with pytest.raises(ComputeDataError, match=r"huge\.db: is no sound SQLite database: string or blob too big"):
        database.load(path)


def _foreign(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_files_that_are_no_database_of_ours_are_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, out = tmp_path / "good.db", tmp_path / "out.db"
    database.write(good, [GEMM])
    _foreign(tmp_path / "other.db", "CREATE TABLE users (name)")
    _foreign(
        tmp_path / "view.db",
        "CREATE VIEW measurement AS WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x FROM r) SELECT x FROM r",
    )
    (tmp_path / "trigger.db").write_bytes(good.read_bytes())
    _foreign(
        tmp_path / "trigger.db",
        "CREATE TRIGGER t AFTER INSERT ON measurement BEGIN DELETE FROM measurement; END",
    )
    (tmp_path / "cut.db").write_bytes(good.read_bytes()[:5000])
    (tmp_path / "text.db").write_text("hello")
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    os.mkfifo(tmp_path / "pipe.db")
    os.mkfifo(tmp_path / "pipe.csv")
    names = ("other.db", "view.db", "trigger.db", "cut.db", "text.db", "table.csv", "none.db", "pipe.db", "pipe.csv")
    bad = [tmp_path / name for name in names]
    assert main(["compute", "merge", str(out), str(good), *map(str, bad)]) == 2
    errors = capsys.readouterr().err
    for path in bad:
        assert str(path) in errors
    assert not out.exists() and not list(tmp_path.glob(".out*"))


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("ns", -1.0, "ns is -1.0"),
        ("ns", float("inf"), "ns is inf"),
        ("ns", "soon", "ns is 'soon', not a number"),
        ("count", 1.5, "expected a whole number"),
        ("spread", -0.1, "spread is -0.1"),
        ("dtype", "int3", "dtype 'int3' is none of fp64"),
        ("op", "sorcery", "op 'sorcery' is none of gemm"),
        ("shape", "m=1 k=2", "lacks n=N"),
        ("shape", "m=1 k=2 n=99999999999999", "n must be from 1"),
        ("source", "\x1b[31mred", "source is '\\x1b[31mred'; expected 1 to 400 printable"),
        ("source", "x" * 401, "expected 1 to 400"),
        ("kernel", b"\x00", "kernel is "),
    ],
)
def test_a_row_that_cannot_be_is_named(column: str, value: object, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.db"
    database.write(path, [GEMM])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"UPDATE measurement SET {column} = ?", (value,))
        connection.commit()
    with pytest.raises(ComputeDataError) as caught:
        database.load(path)
    assert str(caught.value).startswith(f"{path}, row 1: ") and complaint in str(caught.value)


@pytest.mark.parametrize(
    ("limit", "most", "says"),
    [("LARGEST_FILE", 4096, "bytes; at most 4096 are read"), ("MOST_ROWS", 1, "has more than 1 rows")],
)
def test_a_file_beyond_a_limit_is_refused(
    limit: str, most: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "times.db"
    database.write(path, _gemms([(8, 8, 8), (16, 8, 8)]))
    assert len(database.load(path)) == 2
    monkeypatch.setattr(database, limit, most)
    with pytest.raises(ComputeDataError, match=says):
        database.load(path)
