"""Tests that tables of kernels measured on real GPUs are read, and how well products between their rows are told."""

import random
import shutil
from pathlib import Path
from statistics import median

import pytest

from tests.tiers import samples
from workloads.cli import main
from workloads.compute import database
from workloads.compute.lookup import EXACT, INTERPOLATED, ComputeTimes
from workloads.compute.measurement import ComputeDataError

# Rows of aiconfigurator-core 0.12.0 (Apache-2.0), systems/data/h100_sxm, TensorRT-LLM: bf16 products with m a power of
# two and n, k from 512 on; decoding with 32 heads in 8 groups; DeepSeek's attention with 16 and 128 heads.
DATA = Path(__file__).parents[2] / "data" / "compute"
PRODUCTS, DECODING = DATA / "h100_gemm_perf.parquet", DATA / "h100_generation_attention_perf.parquet"
LATENT = DATA / "h100_context_mla_perf.parquet"


def test_products_that_were_left_out_are_told_within_the_bars() -> None:
    rows = database.load(PRODUCTS)
    chosen = random.Random(30).sample(rows, len(samples(16, 300)))
    errors, covered = [], 0
    for row in chosen:
        answer = ComputeTimes(other for other in rows if other.shape != row.shape).look_up(
            "H100", "gemm", row.shape, "bf16"
        )
        assert answer.how == INTERPOLATED
        errors.append(abs(answer.ns / row.ns - 1))
        covered += answer.error >= errors[-1]
    errors.sort()
    assert median(errors) < 0.04 and errors[int(0.9 * len(errors))] < 0.15
    assert covered >= 0.7 * len(chosen)


def test_another_devices_rows_of_the_type_are_nearer_than_the_devices_own_of_the_other_half_type() -> None:
    """Of products of an H100 in bf16 between its own fp16 rows."""
    all_rows = database.shipped()
    times, halves = ComputeTimes(all_rows), ComputeTimes(row for row in all_rows if row.dtype == "fp16")
    errors = list[float](), list[float]()
    for row in random.Random(31).sample(database.load(PRODUCTS), len(samples(500, 2000))):
        if halves.look_up("H100", "gemm", row.shape, "fp16").how == INTERPOLATED:
            others, own = (of.look_up("H100", "gemm", row.shape, "bf16") for of in (times, halves))
            assert "scaled from H200" in others.why and "from gemm in fp16" in own.why
            for found, answer in zip(errors, (others, own), strict=True):
                found.append(abs(answer.ns / row.ns - 1))
    assert len(errors[0]) >= 50 and median(errors[0]) < 0.07 < 0.11 < median(errors[1])


def test_a_row_of_a_table_is_its_shape_on_its_device() -> None:
    import pyarrow.parquet

    cells = pyarrow.parquet.read_table(PRODUCTS).slice(7, 1).to_pylist()[0]
    answer = ComputeTimes(database.load(PRODUCTS)).look_up("h100", "gemm", "m={m} k={k} n={n}".format(**cells), "bf16")
    assert answer.how == EXACT and answer.ns == pytest.approx(cells["latency"] * 1e6)
    assert {row.device for row in answer.basis} == {"H100 SXM"}


def test_decoding_takes_longer_the_more_tokens_stand_before() -> None:
    rows = [row for row in database.load(DECODING) if row.axes["batch"] == 32]
    assert {row.op for row in rows} == {"attention_decode"} and len({row.shape for row in rows}) == len(rows) > 10
    times = {row.axes["context"]: row.ns for row in rows}
    assert times[max(times)] > 10 * times[min(times)]


def test_latent_attention_is_of_whole_sequences_with_the_widths_of_deepseek() -> None:
    import pyarrow.parquet

    cells = [row for row in pyarrow.parquet.read_table(LATENT).to_pylist() if row["mla_dtype"] == row["kv_cache_dtype"]]
    rows = database.load(LATENT)
    assert sorted(row.ns for row in rows) == pytest.approx(
        sorted(1e6 * each["latency"] for each in cells if not each["step"])
    )
    assert {(row.op, row.axes["qk"], row.axes["v"]) for row in rows} == {("attention", 192, 128)}


def test_tables_of_an_installed_package_are_read_by_the_name_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compute", "show", "--no_shipped", "--database"]
    assert main([*words, "gpu-tables/h100_sxm"]) == 1
    assert "requirements/gpu-tables.lock" in capsys.readouterr().err
    for verb in (words, ["compute", "merge", "all.db"]):
        assert main([*verb, "gpu-tables/h100_sxm", "none.db", "--what"]) == 2
        said = capsys.readouterr().err
        assert "none.db: No such file" in said and "h100_sxm" not in said
    folder = tmp_path / "aiconfigurator_core" / "systems" / "data" / "h100_sxm"
    for kind, table in {"gemm": PRODUCTS, "attention": DECODING, "mla": LATENT}.items():
        place = folder / kind / "trtllm" / "1.3.0rc20"
        place.mkdir(parents=True)
        shutil.copy(table, place / table.name.removeprefix("h100_"))
    (tmp_path / "aiconfigurator_core" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main([*words, "gpu-tables/h100_sxm"]) == 0
    count = len([row for table in (PRODUCTS, DECODING, LATENT) for row in database.load(table)])
    assert f"\n{count} rows of 1 devices" in capsys.readouterr().out
    assert main([*words, "gpu-tables/h1"]) == 2
    assert "gpu-tables/h1: is none of gpu-tables/GPU, GPU one of h100_sxm" in capsys.readouterr().err


def test_what_is_no_such_table_is_refused(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    text, other = tmp_path / "text.parquet", tmp_path / "other.parquet"
    text.write_text("m,n,k\n1,2,3\n")
    with pytest.raises(ComputeDataError, match="is no parquet table"):
        database.load(text)
    pyarrow.parquet.write_table(pyarrow.table({"m": [1], "n": [2]}), other)
    with pytest.raises(ComputeDataError, match="no table of products or attention"):
        database.load(other)
    broken = pyarrow.parquet.read_table(PRODUCTS).slice(0, 1)
    broken = broken.set_column(broken.column_names.index("latency"), "latency", pyarrow.array([-1.0]))
    pyarrow.parquet.write_table(broken, other)
    with pytest.raises(ComputeDataError, match="row 1: ns is"):
        database.load(other)
