"""`make accelerator`: which rows fit a device, in which order they run, what is written, and what disagrees."""

import csv
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.performance import accelerator, accelerator_rows
from tests.performance.accelerator import TABLES, as_result, commands_of, filled, in_order, measure_rows
from tests.performance.accelerator_remarks import remarks
from tests.performance.accelerator_rows import ROWS, Device, Row, cases_of, estimate, missing_library

MEASURED = Path(__file__).parents[1] / "data/measured/own_h100.csv"
GB = 10**9
H200 = Device(vendor="nvidia", name="NVIDIA H200", memory_bytes=150 * GB, count=1, driver="580.95.05")
H100 = Device(vendor="nvidia", name="NVIDIA H100 80GB HBM3", memory_bytes=85 * GB, count=1, driver="580.95.05")
MI300X = Device(vendor="amd", name="AMD Instinct MI300X", memory_bytes=206 * GB, count=1, driver="6.16")
CPU = Device(vendor="cpu", name="a processor", memory_bytes=8 * GB, count=2, driver="")
BY_NAME = {row.name: row for row in ROWS}


def entry(problem: str = "", **figures: float) -> dict[str, Any]:
    return {
        "date": "2026-12-01", "device": "NVIDIA H200", "driver": "580.95.05", "seconds": 61.0, "problem": problem,
        "figures": figures, "remarks": ["BASE: memory_GBps is 40% of the datasheet's 4800"] if figures else [],
    }  # fmt: skip


def quick(name: str, script: str) -> Row:
    """A row whose command is a line of Python, in place of a minute's run."""
    command = f"python -c '{script}'"
    return Row(name=name, begins=10, minutes=1, table="benchmarks.csv", marks=f"`{name}`", on_cpu=(command,))


def test_every_row_of_the_order_has_a_line_in_its_table_and_ten_minutes_come_first() -> None:
    for row in ROWS:
        lines = list(csv.reader((TABLES / row.table).read_text(encoding="utf-8").splitlines()))
        assert any(row.marks in cell for line in lines for cell in line[:2]), row.name
        assert row.minutes * 60 <= accelerator.LONGEST_S
    assert [row.begins for row in ROWS] == sorted(row.begins for row in ROWS)
    for begins in (10, 30):
        assert sum(row.minutes for row in ROWS if row.begins <= begins and row.devices == 1) <= begins


@pytest.mark.parametrize("device", [H200, H100, MI300X, CPU], ids=lambda device: device.name)
def test_a_row_runs_the_device_s_own_configs(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator_rows, "estimate", lambda *_: None)  # seconds each; the next test has one
    for row in ROWS:
        if row.file and row.devices == 1:
            cases = cases_of(row, device)
            own = (f"config_{device.hardware}x1x", "config_short_")  # and what is for all vendors
            assert all(str(case.settings["config"]).startswith(own) for case in cases)


def test_a_case_whose_library_is_not_there_is_left_out_and_the_others_are_measured() -> None:
    plain, flash = cases_of(BY_NAME["cpm"], H200)
    assert (missing_library(plain), missing_library(flash)) == ("", "flash_attn is not installed")
    assert not any(map(missing_library, cases_of(BY_NAME["llama_fp8"], H200))), "torchao is there"
    layers = [missing_library(case) for case in cases_of(BY_NAME["llama_layers"], H200)]
    assert layers == ["", "transformer_engine is not installed", ""]
    kernels = commands_of(BY_NAME["kernels"], H200, [], Path("x"))
    assert [" ".join(argv).partition("--output ")[2] for argv in kernels] == [
        "x/sdpa.txt",
        "x/mla.txt",
        "x/experts.txt",
    ]


def test_what_does_not_fit_is_left_out_with_the_reason() -> None:
    small = Device(vendor="nvidia", name="NVIDIA H200", memory_bytes=70 * GB, count=1, driver="")
    with pytest.raises(ValueError, match=r"LLAMA_7B needs 1\d\d GB, the device has 70 GB"):
        cases_of(BY_NAME["llama"], small)
    with pytest.raises(ValueError, match="needs 8 devices, 1 are here"):
        cases_of(BY_NAME["base_1x8"], H200)
    partly = Device(vendor="ascend", name="NVIDIA A800-SXM4-80GB", memory_bytes=85 * GB, count=1, driver="")
    with pytest.raises(ValueError, match="vendor ascend has no config_A800x1x1 of base"):
        cases_of(BY_NAME["base"], partly)
    unknown = Device(vendor="nvidia", name="NVIDIA T4", memory_bytes=16 * GB, count=1, driver="")
    with pytest.raises(ValueError, match="no datasheet names 'NVIDIA T4'"):
        cases_of(BY_NAME["bert"], unknown)


def test_rows_that_were_measured_are_passed_over_and_failed_ones_come_last() -> None:
    state = {"environment": entry(), "base": entry("ended with 1"), "bert": entry()}
    names = [row.name for row in in_order(state)]
    assert (names[0], names[-1]) == ("llama_tiny", "base")
    assert not {"environment", "bert"} & set(names)


def opened(name: str) -> str:
    """A table of the documentation as it was before anything was measured."""
    with (TABLES / name).open(encoding="utf-8", newline="") as table:
        header, *rows = csv.reader(table)
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows([header, *([*row[:3], "", "open"] for row in rows)])
    return out.getvalue()


def test_a_result_goes_into_the_open_lines_of_its_row_and_device_alone() -> None:
    text = opened("benchmarks.csv")
    lines = list(csv.reader(filled(text, {"base": entry(memory_GBps=1920)}, H200).splitlines()))
    done = [line for line in lines if line[3] == "2026-12-01"]
    expected = "NVIDIA H200, driver 580.95.05: memory_GBps 1920; BASE: memory_GBps is 40% of the datasheet's 4800"
    assert done and {line[4] for line in done} == {expected}
    assert all("`base.py`" in line[1] and "H200" in line[2] for line in done)
    others = list(csv.reader(filled(text, {"bert": entry()}, H100).splitlines()))
    assert others == list(csv.reader(text.splitlines())), "the line of BERT is of an H200"
    assert as_result(entry("ended with 1: see x")) == "open: NVIDIA H200: ended with 1"


def test_figures_that_disagree_with_datasheet_memory_or_prediction_are_named() -> None:
    base = cases_of(BY_NAME["base"], H200)
    assert remarks(base, {"matmul_bf16_TFLOPS": 700, "memory_GBps": 2000}, H200) == [
        "BASE: memory_GBps is 42% of the datasheet's 4800"
    ]
    (case,) = cases_of(BY_NAME["llama_tiny"], H200)
    (memory, speed) = remarks([case], {"peak_memory_bytes": 90e9, "tokens_per_second_per_device_steady": 10.0}, H200)
    assert memory.startswith("LLAMA_TINY: peak memory is 90.00 GB, the estimate 1")
    assert speed.startswith("LLAMA_TINY: 10 tokens/s a device, ") and speed.endswith(" are predicted")
    predicted = float(speed.split(", ")[1].split()[0])
    estimated = float(memory.split("estimate ")[1].split()[0])
    agreed = {"peak_memory_bytes": estimated * 1e9, "tokens_per_second_per_device_steady": predicted}
    assert remarks([case], agreed, H200) == []


@pytest.mark.torch
@pytest.mark.parametrize("name", ["TWO_SAMPLES", "LLAMA3_1B", "LONG_32K", "SMALL"])
def test_what_training_allocated_on_one_h100_agrees_with_its_estimate(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TWO_SAMPLES is COMPILED with another batch; torch was 2.11."""
    from training.benchmarks.driver.training.layout import described

    monkeypatch.setattr(described, "are_norms_cast", lambda: False)
    with MEASURED.open(encoding="utf-8") as file:
        (row,) = (row for row in csv.DictReader(file) if row["case"] == name)
    cases = {case.name: case for case in cases_of(BY_NAME["predicted"], H200)}
    case = cases.get(name) or cases["COMPILED"]
    sized = replace(case, config=case.config.model_copy(update={"train_batch_size": int(row["mbs"])}))
    measured = float(row["measured_alloc_gib"]) * 2**30
    assert remarks([sized], {"peak_memory_bytes": measured}, H100) == []
    assert estimate(sized, H100, allocated=True) == pytest.approx(measured, rel=0.01)


def test_a_call_goes_on_where_the_last_one_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    count = 'open("{out}/ran", "a").write("x")'
    rows = (quick("one", count), quick("two", "raise SystemExit(3)"), quick("three", count))
    monkeypatch.setattr(accelerator, "ROWS", rows)
    assert measure_rows(CPU, tmp_path, minutes=0) == 0
    assert "the next call goes on with two" in capsys.readouterr().out
    assert measure_rows(CPU, tmp_path, minutes=9) == 1
    state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert [name for name, each in state.items() if not each["problem"]] == ["one", "three"]
    assert state["two"]["problem"].startswith("ended with 3: see ")
    assert [(tmp_path / name / "ran").read_text() for name in ("one", "three")] == ["x", "x"]
    rows = (rows[0], quick("two", count), rows[2])
    monkeypatch.setattr(accelerator, "ROWS", rows)
    assert measure_rows(CPU, tmp_path, minutes=9) == 0
    assert "no row is left" in capsys.readouterr().out
    assert [len((tmp_path / row.name / "ran").read_text()) for row in rows] == [1, 1, 1]


def test_a_row_that_was_interrupted_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "ROWS", (quick("monitor", 'open("{out}/monitor.jsonl", "x")'),))
    (tmp_path / "monitor").mkdir()
    (tmp_path / "monitor" / "monitor.jsonl").touch()
    assert measure_rows(CPU, tmp_path, minutes=1) == 0


def test_a_row_that_hangs_is_ended_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "LONGEST_S", 0.5)
    hanging = quick(
        "hanging", 'import subprocess as s, sys; s.run([sys.executable, "-c", "import time; time.sleep(100)"])'
    )
    monkeypatch.setattr(accelerator, "ROWS", (hanging,))
    assert measure_rows(CPU, tmp_path, minutes=1) == 1
    state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert state["hanging"]["problem"] == "was ended after 0.5 s" and state["hanging"]["seconds"] < 60


def test_the_rehearsal_writes_tables_of_its_own_and_none_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documented = tmp_path / "documented"
    documented.mkdir()
    for table in TABLES.glob("*.csv"):
        (documented / table.name).write_text(opened(table.name), encoding="utf-8")
    before = {table: table.read_bytes() for table in documented.iterdir()}
    monkeypatch.setattr(accelerator, "TABLES", documented)
    accelerator.write_results({"environment": entry(device_samples=3)}, CPU, tmp_path)
    assert {table: table.read_bytes() for table in documented.iterdir()} == before
    assert "device_samples 3" in (tmp_path / "benchmarks.csv").read_text(encoding="utf-8")


def test_a_row_of_a_file_is_a_run_with_its_results_beside_it(tmp_path: Path) -> None:
    cases = cases_of(BY_NAME["network"], CPU)
    (argv,) = commands_of(BY_NAME["network"], CPU, cases, tmp_path)
    assert argv[0] == sys.executable and argv[-1] == str(tmp_path / "test_conf.py")
    written: dict[str, Any] = {}
    exec((tmp_path / "test_conf.py").read_text(encoding="utf-8"), written)
    assert (written["VENDOR"], written["CASES"]) == ("cpu", ["NETWORK"])
    assert written["FLAGPERF_LOG_PATH_HOST"] == str(tmp_path / "runs") and written["NETWORK"]["nproc"] == 2


@pytest.mark.nightly
def test_all_rows_run_as_a_rehearsal_on_the_processors(tmp_path: Path) -> None:
    device = accelerator.device_here("cpu")
    assert measure_rows(device, tmp_path, minutes=60) == 0
    state = json.loads((tmp_path / "state.json").read_text(encoding="utf-8"))
    assert [*state] == [row.name for row in ROWS if row.devices == 1]
    assert all(each["figures"] for each in state.values())
    assert any("the estimate" in remark for remark in state["llama_tiny"]["remarks"])
