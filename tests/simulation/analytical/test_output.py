"""What `analytical` writes in the default dialect: CSV, JSON, chart, --json, --explain; files of bus bandwidths."""

import ast
import csv
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulation.analytical import command, evaluation
from simulation.analytical.parts import GPUS
from simulation.analytical.repairs import REPAIRS
from simulation.analytical.times import ROW_COLUMNS, SUMMARY_COLUMNS
from simulation.cli import main
from tests.docs.pages import ROOT
from tests.pages import charts_of
from tests.simulation.analytical import asking, recorded
from tests.simulation.analytical.asking import CLUSTER, Answer, ask, row, times, write

H100 = ("-g", "4096", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100", "-nic_t", "cx7")


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def read_csv(path: Path) -> tuple[list[str], dict[str, str], list[list[str]]]:
    """The lines after #, the summary by name, the rows."""
    lines = path.read_text().splitlines()
    remarks = [line for line in lines if line.startswith("# ")]
    names, values = (line.split(", ") for line in lines[len(remarks) : len(remarks) + 2])
    assert tuple(names) == SUMMARY_COLUMNS
    rows = list(csv.reader(lines[len(remarks) + 2 :]))
    assert rows[0] == [*ROW_COLUMNS, "kind"]
    return remarks, dict(zip(names, values, strict=True)), rows[1:]


def read_json(path: Path) -> dict[str, Any]:
    def refuse(text: str) -> float:
        raise AssertionError(text)

    return dict(json.loads(path.read_text(), parse_constant=refuse))


def test_the_csv_says_what_was_repaired_and_each_row_leads_to_its_inputs(tmp_path: Path) -> None:
    path = recorded.workload(recorded.LLAMA, tmp_path)
    assert ask("-w", str(path), *H100, "-r", "llama-").code == 0
    remarks, summary, rows = read_csv(tmp_path / "llama-EndToEnd.csv")
    assert all(f"{repair.name} ({repair.what})" in remarks[0] for repair in REPAIRS)
    assert "4096 GPUs" in remarks[1] and "NVLS 475 GB/s" in remarks[1] and "tp 8" in remarks[1]
    found = read_json(tmp_path / "llama-EndToEnd.json")
    assert found["format"] == "clusterdyno-analytical-1" and found["rows"] == len(rows) == 8717
    kinds = {kind["kind"]: kind for kind in found["kinds"]}
    assert len(kinds) == 14 and sum(kind["rows"] for kind in kinds.values()) == 8717
    total = 0.0
    for number, cells in enumerate(rows, start=1):
        kind = kinds[int(cells[-1])]
        assert kind["first_row"] <= number
        for name, compute, sent, exposed in (
            ("forward", 2, 8, 5),
            ("weight gradient", 3, 11, 6),
            ("input gradient", 4, 14, 7),
        ):
            phase = kind[name]
            assert float(cells[compute]) == pytest.approx(phase["compute_us"], abs=0.51)
            assert float(cells[sent]) == pytest.approx(phase["communication_us"], abs=0.51)
            assert float(cells[exposed]) == pytest.approx(phase.get("exposed_us", 0), abs=0.51)
            total += phase["compute_us"] + phase.get("exposed_us", 0)
    said = found["summary"]
    assert said["total_us"] == pytest.approx(total + said["bubble_us"] + said["pipeline_us"], rel=1e-6)
    assert float(summary["Total time"]) == pytest.approx(said["total_us"], abs=0.51)


def test_no_nan_and_no_nonsense_in_any_recorded_workload(tmp_path: Path) -> None:
    names = {run.workload for run in recorded.runs()}
    for name in sorted(names):
        path = recorded.workload(name, tmp_path)
        gpus = next(run.options[1] for run in recorded.runs() if run.workload == name)
        answer = ask("-w", str(path), "-g", gpus, *CLUSTER, "-r", "x-")
        assert answer.code == 0, answer.err
        _, summary, rows = read_csv(tmp_path / "x-EndToEnd.csv")
        for cells in rows:
            assert all(0 <= float(cell) < 1e12 for cell in cells[2:]), cells
        assert 0 < float(summary["Total time"]) < 1e12
        read_json(tmp_path / "x-EndToEnd.json")


def test_a_run_needs_python_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824")], tp=8)
    words = ["analytical", "-w", str(path), *H100, "--output", str(tmp_path / "x.csv")]
    script = f"import sys; from simulation.cli import main; main({words!r}); print([*sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in ast.literal_eval(done.stdout.splitlines()[-1])}
    heavy = {
        "numpy",
        "scipy",
        "pandas",
        "polars",
        "torch",
        "run_benchmarks",
        "training",
        "yaml",
        "google",
        "dataclasses",
    }
    assert "simulation" in loaded and not loaded & heavy


@pytest.mark.parametrize("dialect", ["simai", "clusterdyno"])
def test_a_layer_that_computes_for_seconds_has_its_time(dialect: str, tmp_path: Path) -> None:
    """From 2^31 ns on the original never ends."""
    path = recorded.workload("big_compute", tmp_path)
    summary = ask("-w", str(path), "-g", "8", *CLUSTER, "--dialect", dialect, "--json").summary
    assert summary["computation_us"] == pytest.approx(3e6, abs=1)


def test_an_iteration_of_nothing_has_shares_of_zero(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row()])
    assert ask("-w", str(path), "-g", "8", *CLUSTER, "-r", "x-").code == 0
    _, summary, rows = read_csv(tmp_path / "x-EndToEnd.csv")
    assert summary["total comp"] == "0 (0.00%)" and summary["Total time"] == "0"
    assert rows[0][2:-1] == [*["0"] * 6, *["0", "0.00", "0.00"] * 3]


def test_prefix_folder_and_output_name_the_files(tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row(ns=1000)])
    options = ("-w", str(path), "-g", "8", *CLUSTER)
    assert ask(*options).code == 0 and (tmp_path / "w-EndToEnd.csv").exists()
    assert ask(*options, "-r", "deep/a-").code == 0 and (tmp_path / "deep" / "a-EndToEnd.json").exists()
    assert ask(*options, "-r", "b-", "-r_f", "folder", "-v").code == 0
    names = {file.name for file in (tmp_path / "folder").iterdir()}
    assert names == {"b-EndToEnd.csv", "b-EndToEnd.json", "b-chart.html"}
    assert ask(*options, "--output", "own.csv").code == 0
    assert (tmp_path / "own.csv").exists() and (tmp_path / "own.json").exists()
    files = json.loads(ask(*options, "--output", "own.csv", "--json").out)["files"]
    assert files == ["own.csv", "own.json"]


def test_on_stdout_there_is_the_csv_alone(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = write(tmp_path / "w.txt", [row(ns=1000)])
    assert main(["analytical", "-w", str(path), "-g", "8", *CLUSTER, "--output", "-"]) == 0
    out = capfdbinary.readouterr().out.decode()
    assert out.startswith("# dialect clusterdyno: repaired ") and out.endswith(",1\n")
    assert [file.name for file in tmp_path.iterdir()] == ["w.txt"]


def test_files_of_another_run_are_named_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "w.txt", [row(ns=1000)])
    words = ["analytical", "-w", str(path), "-g", "8", *CLUSTER, "-r", "x-", "-v"]
    assert main(words) == main(words) == 0, "what is there is the same"
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write(path, [row(ns=2000)])
    capsys.readouterr()
    assert main(words) == 2
    errors = capsys.readouterr().err
    names = ("x-EndToEnd.csv", "x-EndToEnd.json", "x-chart.html")
    assert all(f"{name}: is there with other content; give --force" in errors for name in names)
    assert {name: (tmp_path / name).read_bytes() for name in names} == {name: before[name] for name in names}
    assert main([*words, "--force"]) == 0 and (tmp_path / names[0]).read_bytes() != before[names[0]]


def test_an_interrupted_run_changes_neither_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "w.txt", [row(ns=1000)])
    options = ("-w", str(path), "-g", "8", *CLUSTER)
    assert ask(*options).code == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def interrupted(*_arguments: object) -> Iterator[bytes]:
        yield b"half"
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "csv_chunks", interrupted)
    assert ask(*options, "-dp_o", "1").code == 130
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("part", sorted(GPUS))
def test_the_json_says_where_bandwidths_are_from(part: str, tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row(ns=1000)])
    assert ask("-w", str(path), "-g", "8", "-g_p_s", "8", "-n_p_s", "8", "-g_type", part, "-nic_t", "cx8").code == 0
    sources = read_json(tmp_path / "w-EndToEnd.json")["cluster"]["sources"]
    assert "NCCL" in sources["nvlink"] and "ConnectX-8" in sources["nic"]
    assert ("SimAI" in sources["nvls"]) == (GPUS[part].nvls is not None)


def test_the_chart_shows_every_part_and_loads_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row("ALLREDUCE 1073741824", ns=10_000_000)], tp=8)
    assert ask("-w", str(path), "-g", "8", *CLUSTER, "-r", "c-", "-v", "1").code == 0
    page = (tmp_path / "c-chart.html").read_text()
    bars = charts_of(page)[0]["bars"]
    assert [bar["name"] for bar in bars] == list(SUMMARY_COLUMNS[1:8])
    total = float(re.search(r": (\d+) us an iteration", page)[1])  # type: ignore[index]
    assert sum(bar["value"] for bar in bars) == pytest.approx(total, rel=1e-3) and total > 0
    assert "default-src 'none'" in page


def test_explain_says_all_that_decided_a_row_and_writes_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(), row("ALLREDUCE 1073741824", name="mlp")], tp=8)
    answer = ask("-w", str(path), *H100, "--explain", "2")
    assert answer.code == 0 and [file.name for file in tmp_path.iterdir()] == ["w"]
    for word in (
        "line 4: mlp",
        "group: TP",
        "bytes: 1073741824",
        "ranks: 8",
        "servers: 1",
        "ring",
        "NVLS",
        "efficiency",
    ):
        assert word in answer.out, word
    original = ask("-w", str(path), *H100, "--explain", "2", "--dialect", "simai")
    assert original.code == 0 and "bus_bandwidth_GiBps: 370.8" in original.out and "ring" in original.out


def test_a_layers_name_may_hold_anything(tmp_path: Path) -> None:
    names = ['a,b"c', "κ", "x" * 300]
    path = write(tmp_path / "w", [row(name=name, ns=1000) for name in names])
    assert ask("-w", str(path), "-g", "8", *CLUSTER, "-r", "x-").code == 0
    _, _, rows = read_csv(tmp_path / "x-EndToEnd.csv")
    assert [cells[0] for cells in rows] == names and {cells[-1] for cells in rows} == {"1"}


def test_more_kinds_than_are_remembered_give_the_same_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also: blocks that end within the rows."""
    draw = random.Random(7)
    lines = [row(f"ALLREDUCE {draw.randrange(1, 400) << 16}", ns=draw.randrange(50)) for _ in range(2000)]
    path = write(tmp_path / "w", lines, tp=8)
    options = ("-w", str(path), "-g", "8", *CLUSTER, "--json")
    whole = ask(*options, "-r", "a-").summary
    monkeypatch.setattr(evaluation, "REMEMBERED", 20)
    monkeypatch.setattr(evaluation, "NUMBERED", 5)
    monkeypatch.setattr("simulation.analytical.workload.BLOCK_BYTES", 3000)
    assert ask(*options, "-r", "b-").summary == whole
    _, _, rows = read_csv(tmp_path / "a-EndToEnd.csv")
    _, _, others = read_csv(tmp_path / "b-EndToEnd.csv")
    assert [cells[:-1] for cells in others] == [cells[:-1] for cells in rows]
    assert {cells[-1] for cells in others} == {"", "1", "2", "3", "4", "5"}
    found = read_json(tmp_path / "b-EndToEnd.json")
    assert sum(kind["rows"] for kind in found["kinds"]) == sum(bool(cells[-1]) for cells in others)


def measured(path: Path, text: str, *options: str) -> dict[str, Any]:
    """What a row with all groups takes, with a file of bus bandwidths."""
    Path("b.yaml").write_text(text)
    return times(path, "-g", "8", *CLUSTER, "-busbw", "b.yaml", *options)


def test_a_file_of_bus_bandwidths_is_yaml_and_each_value_counts(tmp_path: Path) -> None:
    path = write(
        tmp_path / "w", [row("REDUCESCATTER 1000000000", "ALLTOALL_EP 1000000000", "ALLTOALL 1000000000")], tp=2, ep=2
    )
    text = (
        "# measured on 2026-11-22\nTP:\n  allgather: 1\n  reducescatter: 100\nEP: {alltoall: 50}\nDP: {alltoall: 25}\n"
    )
    found = measured(path, text)
    assert [found[name]["communication_us"] for name in ("forward", "input gradient", "weight gradient")] == [
        pytest.approx(1e6 / 100 / 2), pytest.approx(1e6 / 50 / 2), pytest.approx(1e6 / 25 * 3 / 4),
    ]  # fmt: skip
    assert {found[name]["algorithm"] for name in ("forward", "input gradient", "weight gradient")} == {"measured"}
    computed = measured(path, "TP: {reducescatter: null}\n")
    assert computed["forward"]["algorithm"] == "ring"


def test_the_older_form_means_the_same(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1000000000", "ALLTOALL_EP 1000000000")], tp=2, ep=2)
    yaml = "TP: {allreduce: 300, alltoall: 230}\nEP: {allreduce: null, alltoall: 80}\nPP: {busbw: 47.5}\n"
    old = "test\nTP:\nallreduce,: 300\nalltoall,: 230\nEP:\nallreduce,: null\nalltoall,: 80\nPP:\nbusbw: 47.5"
    assert measured(path, yaml) == measured(path, old)
    assert measured(path, yaml)["forward"]["communication_us"] == pytest.approx(1e6 / 300)


def test_the_pipelines_bandwidth_is_measured_too(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1000)], tp=4, pp=2, ga=5, pp_comm=47_500_000)
    Path("b.yaml").write_text("PP: {busbw: 47.5}\n")
    assert (
        ask("-w", str(path), "-g", "8", *CLUSTER, "-busbw", "b.yaml", "--json").summary["pipeline_us"] == 2 * 5 * 1000
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "needs groups"),
        ("- 1\n", "needs groups"),
        ("TP: 3\n", "needs keys"),
        ("TP: {allreduce: fast, allgather: .inf}\n", "above 0"),
        ("TP: {allreduces: 1}\n", "is unknown"),
        ("PP: {allreduce: 1}\n", "busbw"),
        ("TP: {allreduce: 1\n", "is no YAML"),
        ("TP: {allreduce: true}\n", "True"),
        ("TP: {allreduce: 1" + "0" * 400 + "}\n", "at most 1,000,000"),
        ("[" * 3000, "nested"),
        ("TP: {allreduce: 1, allreduce: 2}", "line 1 allreduce: is there more than once"),
        ("title\nTP:\nallreduce,: 1\nTP:\nallreduce,: 2\n", "line 2 TP: is there more than once"),
    ],
)
def test_a_wrong_file_of_bus_bandwidths_is_refused(text: str, said: str, tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row()])
    Path("b.yaml").write_text(text)
    answer: Answer = ask("-w", str(path), "-g", "8", *CLUSTER, "-busbw", "b.yaml")
    assert answer.code == 2 and said in answer.err and "b.yaml" in answer.err


@pytest.mark.parametrize(("ns", "warned"), [(1, True), (10**9, False)])
def test_a_workload_without_compute_times_is_named_with_the_command_that_makes_them(
    ns: int, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = asking.write(tmp_path / "w.txt", [asking.row("ALLREDUCE 1073741824", ns=ns)], tp=8)
    answer = asking.ask("-w", str(path), "-g", "8", *asking.CLUSTER, "--json")
    assert answer.code == 0
    said = "COMPUTATION IS 0 %" in answer.err and "workloads aiob" in answer.err and "--comp_filepath" in answer.err
    assert said == warned == any("COMPUTATION" in note for note in json.loads(answer.out)["notes"])
