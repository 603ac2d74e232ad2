"""Each export, read back by another project's reader: JUnit, OpenMetrics, MLPerf, Parquet, pandas, nccl-tests'."""

import csv
import io
import json
import shutil
import tarfile
import time
from pathlib import Path

import pandas
import pyarrow.parquet
import pytest
from junitparser import JUnitXml
from mlperf_logging.compliance_checker import mlp_compliance, mlp_parser
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.parser import text_string_to_metric_families as of_node_exporter

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.export.formats import FORMATS, ExportError, write
from run_benchmarks.export.meanings import MEANINGS
from run_benchmarks.results import frame, load_run
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import DrainRecord, Verdict
from run_benchmarks.results.tables import TABLES
from tests.run_benchmarks.calling import call
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.recorded_runs import KEY, a_run, on_disk
from tests.run_benchmarks.results.rounds import host_record
from tests.training.benchmarks.network.nccl_parsers import cloudai, superbench

EVIL = '=cmd|"<b>\\ \x1b[31m`x`\u0001\ud800'
HOST = host_record("h1", devices=["H100"] * 8, state="degraded", state_reason="slow")


@pytest.fixture
def run(tmp_path: Path) -> LoadedRun:
    """Three rounds, of which one was degraded and one failed for a reason that attacks every format."""
    made = a_run("run20261101000000", [100.0, 101.0, 99.0])
    rounds = made.rounds["PAIRS"]
    phase = {"phase": {"started_ms": 20_000, "ended_ms": 80_000}}
    nodes = [node.model_copy(update={"monitor": phase}) for node in rounds[0].nodes]
    step = {"step": 1, "loss": 2.5, "time_us": {"p50": 10.5}, "values": [1, 2]}
    times = {"started_ms": 1000, "finished_ms": 91_000, "steps": [step, {**step, "step": 2, "name": EVIL}]}
    rounds[0] = rounds[0].model_copy(update={"nodes": nodes, **times})
    rounds[1] = rounds[1].model_copy(update={"verdict": Verdict.DEGRADED, "reason": "a slow link", "finished_ms": 5000})
    rounds[2] = rounds[2].model_copy(update={"verdict": Verdict.FAIL, "reason": EVIL, "metrics": {}})
    verdicts = [each.verdict for each in rounds]
    of_case = made.record.cases[0].model_copy(update={"verdict": Verdict.FAIL, "reason": EVIL, "rounds": verdicts})
    skipped = of_case.model_copy(
        update={
            "name": "LATER",
            "folder": "LATER",
            "verdict": Verdict.SKIPPED,
            "rounds": [],
            "attempts": [],
            "key": None,
        }
    )
    drain = [DrainRecord(host="h1", reasons=["it is slow"])]
    record = made.record.model_copy(update={"cases": [of_case, skipped], "hosts": [HOST], "drain": drain})
    return LoadedRun(folder=tmp_path, record=record, rounds={"PAIRS": rounds, "LATER": []})


def test_the_help_names_every_format_and_table() -> None:
    """It is written without their modules, which take long to import."""
    said = " ".join(call("export", "--help").stdout.split())
    assert list(MEANINGS) == list(FORMATS) and f"of a table: {', '.join(TABLES)}" in said


def test_tables_come_back_from_csv_json_lines_parquet_and_pandas(run: LoadedRun) -> None:
    lines = [json.loads(line) for line in write(run, "jsonl", "metrics").decode().splitlines()]
    assert [row["value"] for row in lines if row["metric"] == KEY] == [100.0, 101.0]
    assert {(row["unit"], row["better"], row["is_key"]) for row in lines if row["metric"] == KEY} == {
        ("samples/s", "higher", True)
    }
    rows = list(csv.DictReader(io.StringIO(write(run, "csv", "steps").decode())))
    assert [row["time_us.p50"] for row in rows] == ["10.5", "10.5"] and "values" not in rows[0]
    assert rows[1]["name"].startswith("'=cmd"), "no spreadsheet runs it"
    for table in ("cases", "metrics", "steps", "hosts", "findings"):
        read = pyarrow.parquet.read_table(io.BytesIO(write(run, "parquet", table))).to_pylist()
        known = [json.loads(line) for line in write(run, "jsonl", table).decode("utf-8").splitlines()]
        assert len(read) == len(known) == len(frame(run, table))
        pairs = zip(read, known, strict=True)
        assert all(kept[name] == value for kept, row in pairs for name, value in row.items())
    assert frame(run, "metrics").query("metric == @KEY").value.mean() == 100.5


def test_a_host_s_names_and_numbers_neither_take_a_column_s_place_nor_run_nor_break_a_file(run: LoadedRun) -> None:
    step = {"=1+1": 1, "run": "another", "round": 99, "huge": 10**30, "rate": float("nan")}
    rounds = [run.rounds["PAIRS"][0].model_copy(update={"steps": [step, {"huge": 1}]})]
    hostile = LoadedRun(folder=run.folder, record=run.record, rounds={**run.rounds, "PAIRS": rounds})
    first, *lines = csv.reader(io.StringIO(write(hostile, "csv", "steps").decode()))
    assert first == ["run", "started_ms", "case", "round", "'=1+1", "huge", "rate"]
    assert lines[0][:4] == ["run20261101000000", "0", "PAIRS", "1"] and lines[0][5:] == [str(10**30), ""]
    read = pyarrow.parquet.read_table(io.BytesIO(write(hostile, "parquet", "steps"))).to_pylist()
    assert [row["huge"] for row in read] == [str(10**30), "1"]


def test_junit_is_what_a_reader_of_ci_systems_counts(run: LoadedRun) -> None:
    suites = JUnitXml.fromstring(write(run, "junit", "").decode())
    assert (suites.tests, suites.failures, suites.errors, suites.skipped) == (4, 2, 0, 1)
    first, later = suites
    assert [(test.name, test.time) for test in first] == [("round 1", 90.0), ("round 2", 5.0), ("round 3", 0.001)]
    results = [test.result for test in first]
    assert results[0] == [] and results[1][0].message == "a slow link"
    assert results[2][0].message.startswith("=cmd|") and "\x1b" not in results[2][0].message
    assert [test.name for test in later] == ["the whole case"]
    assert {each.name: each.value for each in first.properties()}["metric"] == KEY  # type: ignore[no-untyped-call]


def test_openmetrics_is_read_by_both_of_prometheus_parsers_and_has_no_timestamps(run: LoadedRun) -> None:
    text = write(run, "openmetrics", "").decode()
    strict = {family.name: family for family in text_string_to_metric_families(text)}  # type: ignore[no-untyped-call]
    loose = {family.name: family for family in of_node_exporter(text)}
    assert set(strict) == set(loose) and all(family.type == "gauge" for family in strict.values())
    samples = strict["clusterdyno_case_metric"].samples
    (sample,) = [each for each in samples if (each.labels["metric"], each.labels["case"]) == (KEY, "PAIRS")]
    assert sample.value == 100.0 and sample.labels["unit"] == "samples/s" and sample.timestamp is None
    assert strict["clusterdyno_host_state"].samples[0].labels == {"host": "h1", "state": "degraded"}


def test_mlperf_s_checker_accepts_every_line_and_misses_only_what_a_submission_adds(
    run: LoadedRun, tmp_path: Path
) -> None:
    file = tmp_path / "result_0.txt"
    file.write_bytes(write(run, "mlperf", ""))
    lines, failed = mlp_parser.parse_file(str(file), ruleset="6.1.0")
    assert failed == [] and [line.key for line in lines][-1] == "run_stop"
    checker = mlp_compliance.make_checker("training", "6.1.0", True, False)
    checker.check_loglines(lines, "training_6.1.0/common.yaml")
    said = [*checker.overwritable.values(), *checker.not_overwritable]
    assert said and all("CHECK for" not in each for each in said), "no line breaks a rule"
    written = {line.key for line in lines}
    assert not [each for each in said if any(f"{key} " in each.splitlines()[0] for key in written)], said


def test_markdown_stays_a_table_whatever_a_reason_says(run: LoadedRun) -> None:
    lines = write(run, "markdown", "").decode().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 4 and all(line.count("|") - line.count("\\|") == 6 for line in table)
    assert "- h1: it is slow" in lines
    assert any(line.startswith("- PAIRS: =cmd\\|") and "\\<b\\>" in line for line in lines)


def test_nccl_tests_text_is_what_superbench_and_cloudai_read(run: LoadedRun, tmp_path: Path) -> None:
    sizes = (1 << 20, 1 << 25)
    steps = [
        {
            "pattern": "all", "collective": "all_reduce", "world_size": 8, "size_bytes": size, "count": size // 4,
            "dtype": "float32", "in_place": in_place, "algbw_GBps": 40.0, "busbw_GBps": 70.0, "correct": "pass",
            "op": "sum", "wrong_elements": 0, "convention": "nccl-tests",
            "time_us": {"p50": 100.0, "min": 90.0, "max": 120.0},
        }
        for size in sizes for in_place in (False, True)
    ]  # fmt: skip
    made = a_round(steps).model_copy(update={"case": "SWEEP"})
    sweep = case("network", sizes="1M..32M").model_copy(update={"name": "SWEEP", "folder": "SWEEP"})
    record = run.record.model_copy(update={"cases": [sweep]})
    text = write(LoadedRun(folder=tmp_path, record=record, rounds={"SWEEP": [made]}), "nccl-tests", "").decode()
    assert superbench(text, in_place=True) == dict.fromkeys(sizes, (100.0, 40.0, 70.0))
    assert [size for size, _ in cloudai(text)] == list(sizes)
    with pytest.raises(ExportError, match="no case of it can be written as nccl-tests"):
        write(run, "nccl-tests", "")


def test_the_command_names_every_mistake_and_writes_to_a_file_or_a_pipe(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, a_run("run20261101000000", [100.0, 101.0]))
    said = call("export", str(folder))
    assert said.exit_code == 0 and said.stdout.startswith("run,started_ms,case,round")
    file = tmp_path / "run.parquet"
    assert call("export", str(folder), "--format", "parquet", "--output", str(file)).exit_code == 0
    assert pandas.read_parquet(file).value.tolist() == [100.0, 101.0]
    wrong = call("export", str(folder), "--format", "xml", "--table", "step")
    assert "did you mean 'steps'" in wrong.complaint and "expected a format" in wrong.complaint
    whole = call("export", str(folder), "--format", "junit", "--table", "steps")
    assert "junit holds the whole run" in whole.complaint
    assert all(each.of_table is not None or each.of_run is not None for each in FORMATS.values())


def test_a_bundle_holds_one_case_without_its_secrets_or_another_case(tmp_path: Path) -> None:
    folder = on_disk(tmp_path, a_run("run20261101000000", [100.0], api_key="sk-0123456789"))
    node = folder / "PAIRS" / "round1" / "h1_noderank0"
    node.mkdir()
    (node / "rank0.out.log").write_text("HF_TOKEN=hf_abcdefgh\nsk-0123456789 at https://me:geheim@x/\n")
    (node / "link").symlink_to("/etc/passwd")
    (folder / "OTHER").mkdir()
    (folder / "OTHER" / "round.json").write_text("{}")
    output = tmp_path / "case.tar.gz"
    packed = call("bundle", str(folder), "PAIRS", "--output", str(output))
    assert packed.exit_code == 0 and f" files, {output.stat().st_size / 1024:.4g} KiB. " in packed.stdout
    time.sleep(1.1)  # an archive says whole seconds
    assert call("bundle", str(folder), "PAIRS", "--output", str(output)).exit_code == 0, "the same again"
    with tarfile.open(output) as archive:
        names = archive.getnames()
        texts = {name: archive.extractfile(name).read().decode() for name in names}  # type: ignore[union-attr]
        assert all(entry.isfile() and entry.uid == 0 and not entry.uname for entry in archive)
    top = "run20261101000000-PAIRS/"
    assert {f"{top}{name}" for name in ("README.txt", "run.json", "PAIRS/round1/h1_noderank0/rank0.out.log")} <= set(
        names
    )
    assert not [name for name in names if "OTHER" in name or "link" in name]
    whole = "".join(texts.values())
    assert not [secret for secret in ("hf_abcdefgh", "sk-0123456789", "geheim") if secret in whole]
    shutil.move(folder / "PAIRS", tmp_path / "elsewhere")
    (folder / "PAIRS").symlink_to(tmp_path / "elsewhere")
    assert "is there with other content" in call("bundle", str(folder), "PAIRS", "--output", str(output)).complaint
    assert call("bundle", str(folder), "PAIRS", "--output", str(output), "--force").exit_code == 0
    with tarfile.open(output) as archive:
        assert archive.getnames() == [f"{top}README.txt", f"{top}run.json"], "a folder is none by a link"
    wrong = call("bundle", str(folder), "OTHER")
    assert "expected a case of run20261101000000" in wrong.complaint


def test_the_notebook_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "docs" / "how-to" / "results-in-python.ipynb").read_text(encoding="utf-8"))
    runs = [a_run(f"run2026110{day}000000", [100.0 - day, 101.0 - day]) for day in (1, 2)]
    for each in runs:
        on_disk(tmp_path / "result", each)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 3 and len(cells[0].split("\n")) <= 4, "three lines to a frame"
    for cell in cells:
        exec(compile(cell, "results-in-python.ipynb", "exec"), names)
    metrics = names["metrics"]
    assert isinstance(metrics, pandas.DataFrame) and set(metrics.metric) == {KEY}
    assert frame(load_run(tmp_path / "result" / "run20261101000000"), "metrics").shape == metrics.shape
