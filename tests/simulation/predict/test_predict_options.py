"""What stands beside a prediction: a network's description, a run that was measured, a page."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median

import pytest

from simulation import cli
from simulation.analytical import nvlink_times
from simulation.predict.duration import Stopwatch
from simulation.predict.iteration import _pipeline, predict
from simulation.predict.machine import NIC_SHARE, machines
from simulation.predict.measured_network import MeasuredLinks
from simulation.predict.network import Network
from simulation.predict.page import timeline
from tests.base_runs import step, write_base_run
from tests.simulation.predict.calling import asked, refused
from tests.simulation.predict.test_counts import job, simulated_1f1b

WORDS = ("predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "32", "--tp", "4", "--gbs", "32")


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def network_file(capsys: pytest.CaptureFixture[str], gpus: int = 32, bandwidth: str = "400Gbps") -> str:
    words = ("-topo", "Spectrum-X", "-g", str(gpus), "-gt", "H100", "-bw", bandwidth, "-nvbw", "2880Gbps")
    assert cli.main(["topology", *words, "--output", f"net{gpus}{bandwidth}"]) == 0
    capsys.readouterr()
    return f"net{gpus}{bandwidth}"


@pytest.mark.parametrize(("op", "turns"), [("ALLGATHER", 1), ("REDUCESCATTER", 1), ("ALLREDUCE", 2)])
@pytest.mark.parametrize(("ranks", "stride"), [(4, 8), (8, 4), (32, 1)])
def test_flows_of_a_ring_take_what_the_nics_need_on_a_network_without_contention(
    op: str, turns: int, ranks: int, stride: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bus bandwidth: each of the group's NICs in a server sends (ranks - 1) / ranks of the bytes over their number."""
    flows = Network(Path(network_file(capsys)), "flow")
    size, nics = 1 << 28, max(1, 8 // stride)
    closed = turns * size * (1 - 1 / ranks) / nics / (50e9 * NIC_SHARE) * 1e6
    found = flows.collective_us(op, ranks, stride, size, 32)
    assert flows.source(op, ranks, stride, size) == "simulated"
    assert found is not None and closed <= found <= 1.16 * closed  # more: what precedes each send


def test_slower_nics_of_a_network_make_data_parallelism_slower_at_both_levels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fast, slow = network_file(capsys), network_file(capsys, bandwidth="100Gbps")
    words = (*WORDS, "--overlap", "none")
    for level in ("analytical", "flow"):
        sent = [
            float(asked(capsys, *words, "-n", name, "--level", level)["classes_ms"]["dp"])  # type: ignore[index]
            for name in (fast, slow)
        ]
        assert sent[1] == pytest.approx(4 * sent[0], rel=0.1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--level", "flow"), "--level flow: needs -n"),
        (("-n", "NET", "--gpus-per-node", "4"), "--gpus-per-node 4: NET has servers of 8"),
        (("-n", "NET", "--gpus", "64", "--gbs", "64"), "--gpus 64: NET has 32 GPUs"),
        (("--against", "nowhere"), "--against nowhere: is no folder of a run"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = network_file(capsys)
    found = refused(capsys, *WORDS, *(word.replace("NET", name) for word in words))
    assert said.replace("NET", name) in found
    assert "has no effect with --rows" in refused(capsys, "predict", "--rows", "x.csv", "-n", name)


@pytest.mark.parametrize("wrong", [("--tp", "3"), ("--model", "llama9")])
def test_mistakes_of_files_are_told_beside_those_of_the_job(
    wrong: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    files = ("--calibrate", "-n", "--measured", "--against")
    found = refused(capsys, *WORDS, *wrong, *(word for flag in files for word in (flag, f"no{flag}")))
    assert all(f"no{flag}" in found for flag in files), found
    assert wrong[1] in found or "must be tp x pp" in found
    folder = str(run_folder(1.0, ranks=8))
    found = refused(capsys, *WORDS, *wrong, "--calibrate", folder, "--against", folder)
    assert folder + ":" not in found, found


def run_folder(*seconds: float, ranks: int = 32) -> Path:
    """A run's folder, as far as predict reads it."""
    for number, each in enumerate(seconds, 1):
        path = Path("run") / "llama" / f"round{number}" / "round.json"
        path.parent.mkdir(parents=True)
        record = {"case": "llama", "verdict": "pass", "world_size": ranks, "metrics": {"step_time_p50": each}}
        path.write_text(json.dumps(record))
    return Path("run")


def test_measured_iterations_stand_beside_the_prediction_with_the_deviation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ms = float(asked(capsys, *WORDS)["predicted_ms"])  # type: ignore[arg-type]
    folder = run_folder(ms / 900, ms / 901, ms / 899)
    its = asked(capsys, *WORDS, "--against", str(folder))["against"][0]  # type: ignore[index]
    assert its["measured_ms"] == pytest.approx(ms / 0.9) and its["deviation"] == pytest.approx(-0.1)
    assert "inside the interval" in its["sentence"]
    assert "of 32 ranks, not 16" in refused(capsys, *WORDS, "--gpus", "16", "--gbs", "16", "--against", str(folder))


@pytest.mark.parametrize(("times", "said"), [(4, "longer than the interval"), (0.25, "less than the interval")])
def test_a_run_outside_of_the_interval_is_said_to_be(
    times: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ms = float(asked(capsys, *WORDS)["predicted_ms"])  # type: ignore[arg-type]
    run_folder(times * ms / 1000)
    assert cli.main([*WORDS, "--against", "run"]) == 0
    assert said in capsys.readouterr().out


def test_the_part_that_deviates_most_is_named_where_a_profile_measured_parts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = asked(capsys, *WORDS, "--overlap", "none")
    ms, classes = float(found["predicted_ms"]), found["classes_ms"]  # type: ignore[arg-type]
    sent = sum(classes.get(key, 0.0) for key in ("tp", "dp"))  # type: ignore[attr-defined]
    update = classes["optimizer"]  # type: ignore[index]
    run_folder((ms + 500) / 1000)
    path = Path("run/llama/round1/round.json")
    record = json.loads(path.read_text())
    record["metrics"] |= {
        "phase_exposed_communication": (sent + 500) / 1000, "phase_optimizer": (update + 20) / 1000,
        "phase_forward": (ms - sent - update) / 3000, "phase_backward": (ms - sent - update) / 1500,
    }  # fmt: skip
    path.write_text(json.dumps(record))
    assert cli.main([*WORDS, "--overlap", "none", "--against", "run"]) == 0
    assert "most of it in exposed communication (+500.0 ms)" in capsys.readouterr().out


def test_the_timeline_ends_when_an_independent_loop_over_the_passes_ends() -> None:
    its = job(gpus=4, pp=4, gbs=12, overlap="none")
    found = predict(its, machines()["H100"])
    drawn = timeline(found)
    end = max(end for _, _, end in drawn.spans[1])
    assert end == pytest.approx(simulated_1f1b(list(found.stages_ms), 12), rel=1e-9)
    watch = Stopwatch(its, machines()["H100"])
    us = [1e3 * ms for ms in found.stages_ms]
    bubble, sent = _pipeline(its, watch, us)
    assert end * 1e3 == pytest.approx(max(us) * 12 + bubble + sent.visible, rel=0.05)


def test_the_page_holds_the_charts_and_the_measured_run_and_loads_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run_folder(1.0)
    asked(capsys, *WORDS, "--pp", "2", "--report", "page.html", "--against", "run")
    page = Path("page.html").read_text(encoding="utf-8")
    charts = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert [chart["kind"] for chart in charts] == ["spans", "bars", "bars", "bars", "bars"]
    assert charts[0]["rows"] == [bar["name"] for bar in charts[3]["bars"]] == ["stage 0", "stage 1"]
    assert any(bar["name"] == "measured: llama" for bar in charts[4]["bars"])
    assert "one MFU of 40%" in page and not re.search(r'(src|href)="http', page)


def test_a_measured_job_calibrates_the_machine_for_the_prediction_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    ms = float(asked(capsys, *WORDS)["predicted_ms"])  # type: ignore[arg-type]
    run_folder(1.3 * ms / 1000)
    found = asked(capsys, *WORDS, "--calibrate", "run")
    assert float(found["predicted_ms"]) > 1.15 * ms  # type: ignore[arg-type]
    assert "calibrated on 1 rows" in found["factors"]["source"]  # type: ignore[index]


def test_a_burn_of_products_calibrates_the_machine_of_any_job(capsys: pytest.CaptureFixture[str]) -> None:
    """The H200 of the shipped factor 1.3 kept 667 TFLOPS: one that keeps 580 needs 1.3 * 667 / 580. Of FP8 no such
    figure is known: 8,192 squares take 884.2 us in the table, and 2 * 8192**3 operations at 1,000 TFLOPS 1,099.5.
    """
    for rate in (600.0, 580.0, 560.0):
        burns = [step("matmul_sustained", rate, 700.0), step("matmul_fp8", 1200.0, 1000.0)]
        burns.append(step("matmul_bf16", 9000.0, 9000.0))  # for a quarter of a second
        write_base_run(Path("burn"), "NVIDIA H200", burns, watts=600.0, iterations=2000)
    words = ("predict", "--model", "llama3_8b", "--gpu", "H200", "--gpus", "8", "--gbs", "8", "--tp", "8")
    plain, found = (asked(capsys, *words, *more) for more in ((), ("--calibrate", "burn")))
    narrow = asked(capsys, *words, "--calibrate", "burn", "--precision", "fp8")
    for each, factor in ((found, 1.3 * 667 / 580), (narrow, 2 * 8192**3 / 1000e6 / 884.2)):
        assert each["factors"]["products"] == pytest.approx(factor, rel=1e-3)  # type: ignore[index]
        assert each["factors"]["source"] == "the median of 3 burns of products, at 600 W"  # type: ignore[index]
    assert found["power_W"] == 600
    assert found["predicted_ms"] > plain["predicted_ms"]  # type: ignore[operator]
    limited = asked(capsys, *words, "--calibrate", "burn", "--power-limit", "600")
    assert limited["predicted_ms"] == found["predicted_ms"]
    for watts, limit in ((700, "700"), (700, "900"), (500, "500")):
        its = asked(capsys, *words, "--calibrate", "burn", "--power-limit", limit)
        assert its["power_W"] == watts
        factor = 1.3 * 667 / 580 * (600 / watts) ** (1 / 3)
        assert its["factors"]["products"] == pytest.approx(factor, rel=1e-3)  # type: ignore[index]
        assert f"burns of products, at 600 W; at {watts} instead of 600 W" in its["factors"]["source"]  # type: ignore[index]
    sweep = ("sweep", "--model", "llama3_8b", "--gpu", "H200", "--gpus", "8", "--gbs", "8", "--tp", "8", "--pp", "1")
    assert cli.main([*sweep, "--calibrate", "burn", "--output", "-"]) == 0


@pytest.mark.parametrize(
    ("device", "seconds", "said"),
    [
        ("NVIDIA H200", 10.0, "its products ran on H200, not H100"),
        ("NVIDIA H100 PCIe", 10.0, "its products ran on NVIDIA H100 PCIe; there are tables of A100"),
        ("AMD EPYC", 10.0, "its products ran on AMD EPYC; there are tables of A100"),
        ("NVIDIA H100 80GB HBM3", 0.5, "its products ended after 0.5 s; take matmul_sustained"),
    ],
)
def test_products_of_another_device_or_of_a_moment_calibrate_nothing(
    device: str, seconds: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_base_run(Path("burn"), device, [step("matmul_sustained", 600.0)], sustained_seconds=seconds)
    assert said in refused(capsys, *WORDS, "--calibrate", "burn")


@pytest.mark.parametrize(
    ("test", "size", "precision", "said"),
    [
        ("matmul_sustained", 4096, "bf16", "its products are squares of 4096, factors are of matmul_size = 8192"),
        ("matmul_fp32", 8192, "bf16", "there is no table of products in fp32 on H100"),
        ("matmul_sustained", 8192, "fp8", "its products are of bf16, not fp8"),
    ],
)
def test_products_of_another_size_or_type_calibrate_nothing(
    test: str, size: int, precision: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"matmul_size": size, "iterations": 10**6}
    write_base_run(Path("burn"), "NVIDIA H100", [step(test, 600.0)], **settings)
    words = (*WORDS, "--precision", precision, "--calibrate", "burn")
    assert said in refused(capsys, *words)
    write_base_run(Path("burn"), "NVIDIA H100", [step("matmul_sustained", 600.0), step("matmul_fp8", 900.0)])
    # The record of the case says the size of all rounds.
    write_base_run(Path("burn"), "NVIDIA H100", [step(test, 600.0)], iterations=10**6)
    source = asked(capsys, *words)["factors"]["source"]  # type: ignore[index]
    assert re.fullmatch("the median of [123] burns? of products", source), "no host tells its power limit"


def test_a_burn_calibrates_no_row_and_no_sweep_of_another_gpu_or_precision(capsys: pytest.CaptureFixture[str]) -> None:
    """As one job's (above): all that lack a burn are named at once."""
    write_base_run(Path("burn"), "NVIDIA H100", [step("matmul_sustained", 600.0)], iterations=10**6)
    columns = ("gpu", "precision", "gpus", "hidden", "layers", "heads", "vocab", "seq")
    sizes = ("8", "4096", "4", "32", "32000", "4096")
    of = {"fitting": [("H100", "bf16")], "others": [("H100", "bf16"), ("H100", "fp8"), ("B200", "bf16")]}
    for name, its in of.items():
        lines = [",".join(columns), *(",".join((*gpu, *sizes)) for gpu in its)]
        Path(f"{name}.csv").write_text("\n".join(lines) + "\n")
    said = refused(capsys, "predict", "--rows", "others.csv", "--calibrate", "burn")
    assert "its products are of bf16, not fp8" in said and "its products ran on H100, not B200" in said
    assert cli.main(["predict", "--rows", "fitting.csv", "--calibrate", "burn", "--output", "-"]) == 0
    capsys.readouterr()
    sweep = ("sweep", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "8", "--gbs", "8", "--calibrate", "burn")
    assert "its products are of bf16, not fp8" in refused(capsys, *sweep, "--precision", "fp8")


def add_round(folder: Path, *steps: Mapping[str, object], case: str = "case") -> None:
    """One more round of the network benchmark that passed, with these steps."""
    path = folder / case / f"round{1 + len([*folder.glob(f'{case}/round*')])}" / "round.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"verdict": "pass", "steps": steps}))


def network_folder() -> Path:
    """A run of the network benchmark over four ranks, as far as predict reads it: 10 us and 1 us for each KiB."""
    steps = [
        {"collective": name, "world_size": 4, "size_bytes": size, "time_us": {"p50": 10 + size / 1024}}
        for name in ("all_gather", "reduce_scatter")
        for size in (1 << 10, 1 << 20, 1 << 22, 1 << 30)
    ]
    add_round(Path("network"), *steps)
    return Path("network")


def test_collectives_that_a_run_measured_replace_those_of_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    links = MeasuredLinks(network_folder())
    for size in (1 << 10, 1 << 15, 1 << 21, 1 << 26, 1 << 32):
        assert links.collective_us("ALLGATHER", 4, 1, size, 32) == pytest.approx(10 + size / 1024)
    assert links.collective_us("ALLGATHER", 4, 1, 100, 32) == 11.0
    sources = [links.source("ALLGATHER", 4, 1, size) for size in (1 << 10, 1 << 15, 100, 1 << 32)]
    assert sources == ["measured", "interpolated", "extrapolated", "extrapolated"]
    assert links.collective_us("ALLGATHER", 8, 1, 1 << 20, 32) is None
    words = (*WORDS, "--overlap", "none")
    plain, slow = (asked(capsys, *words, *more) for more in ((), ("--measured", "network")))
    assert slow["classes_ms"]["tp"] > 20 * plain["classes_ms"]["tp"]  # type: ignore[index]
    assert slow["classes_ms"]["dp"] == plain["classes_ms"]["dp"]  # type: ignore[index]
    assert "ALLGATHER of 4 ranks (4 sizes)" in str(slow["measured"])
    record = json.loads(Path("network/case/round1/round.json").read_text())
    record["steps"] += [step | {"after_compute_ms": 5.0, "last_rank_us": 100.0} for step in record["steps"]]
    Path("network/case/round1/round.json").write_text(json.dumps(record))
    assert MeasuredLinks(Path("network")).collective_us("ALLGATHER", 4, 1, 1 << 20, 32) == pytest.approx(100.0)
    record["steps"] = [step | ({"added_us": 60.0} if "last_rank_us" in step else {}) for step in record["steps"]]
    Path("network/case/round1/round.json").write_text(json.dumps(record))
    assert MeasuredLinks(Path("network")).collective_us("ALLGATHER", 4, 1, 1 << 20, 32) == pytest.approx(60.0)
    hidden = [step | {"added_us": 0.0, "size_bytes": size} for step in record["steps"][-1:] for size in (1024, 2048)]
    add_round(Path("hidden"), *hidden, *({**step, "time_us": {"p50": 0}} for step in record["steps"][:1]))
    assert MeasuredLinks(Path("hidden")).curves == {("REDUCESCATTER", 4, None): [(1024, 0.0), (2048, 0.0)]}
    assert asked(capsys, *words, "--measured", "hidden")["predicted_ms"] < plain["predicted_ms"]  # type: ignore[operator]
    run_folder(1.0)
    Path("run/llama/round1/round.json").write_text('{"verdict": "pass", "steps": []}')
    assert "no round that passed measured all_reduce" in refused(capsys, *words, "--measured", "run")


def test_what_was_measured_inside_a_host_is_not_taken_for_a_group_over_several(tmp_path: Path) -> None:
    """Four ranks on one host, and one on each of four: the job's servers have 8 GPUs."""
    steps = [
        {"collective": "all_gather", "world_size": 4, "size_bytes": 1 << 20, "time_us": {"p50": us}, "hosts": hosts}
        for hosts, us in ((["a"], 10.0), (["a", "b", "c", "d"], 900.0))
    ]
    add_round(tmp_path, *steps)
    links = MeasuredLinks(tmp_path)
    assert links.machine_on(machines()["H100"]).server == 8
    found = [links.collective_us("ALLGATHER", 4, stride, 1 << 20, 64) for stride in (1, 2, 4, 8, 16)]
    assert found == [10.0, 10.0, None, 900.0, 900.0]
    assert "of 4 ranks on 1 host (1 sizes), ALLGATHER of 4 ranks on 4 hosts (1 sizes)" in links.said()


def test_of_several_rounds_the_median_counts(tmp_path: Path) -> None:
    for us in (140.0, 100.0, 130.0):
        step = {"collective": "all_gather", "world_size": 4, "size_bytes": 1 << 20, "time_us": {"p50": us}}
        add_round(tmp_path, step)
    assert MeasuredLinks(tmp_path).collective_us("ALLGATHER", 4, 1, 1 << 20, 4) == 130.0


def test_of_several_cases_and_variants_the_fastest_counts(tmp_path: Path) -> None:
    """Medians of rounds: 130 us by gloo, 70 us by nccl, which takes 60 us in place; a slow case changes nothing."""
    for case, in_place, every in (
        ("gloo", False, (140.0, 100.0, 130.0)),
        ("nccl", False, (75.0, 70.0, 50.0)),
        ("nccl", True, (60.0, 65.0, 10.0)),
        ("tuned", False, (500.0, 400.0, 300.0)),
    ):
        for us in every:
            step = {"collective": "all_gather", "world_size": 4, "size_bytes": 1 << 20, "in_place": in_place}
            add_round(tmp_path, step | {"time_us": {"p50": us}}, case=case)
    assert MeasuredLinks(tmp_path).collective_us("ALLGATHER", 4, 1, 1 << 20, 4) == 60.0


def test_measured_times_of_which_none_fits_are_told_with_what_the_job_needs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = network_folder() / "case/round1/round.json"
    record = json.loads(file.read_text())
    words = (*WORDS, "--measured", "network")
    assert "none of it fits" not in str(asked(capsys, *words)["measured"])
    record["steps"] = [step | {"hosts": ["a", "b", "c", "d"]} for step in record["steps"]]
    file.write_text(json.dumps(record))
    said = str(asked(capsys, *words)["measured"])
    assert "none of it fits this job, which needs" in said and "ALLGATHER of 4 ranks on 1 host" in said
    assert "; it has" in said and "ALLGATHER of 4 ranks on 4 hosts (4 sizes)" in said


def test_measured_sizes_tell_nccls_times_of_the_sizes_between_them(tmp_path: Path) -> None:
    """One half of NVIDIA's tables, sizes a factor of four apart, judged by the other half."""
    beside = Path(__file__).parents[2] / "data" / "simulation" / "nvlink" / "held_back.csv"
    curves: list[dict[tuple[str, str, str], dict[int, float]]] = []
    for file in (nvlink_times.DATA, beside):
        half: dict[tuple[str, str, str], dict[int, float]] = {}
        for row in csv.DictReader(file.open(encoding="utf-8")):
            if row["type"] == "half":
                half.setdefault((row["gpu"], row["operation"], row["gpus"]), {})[int(row["bytes"])] = float(row["us"])
        curves.append(half)
    errors = []
    for number, (key, measured) in enumerate(curves[0].items()):
        steps = [
            {"collective": "all_reduce", "world_size": 8, "size_bytes": size, "time_us": {"p50": us}}
            for size, us in measured.items()
        ]
        add_round(tmp_path / str(number), *steps)
        links = MeasuredLinks(tmp_path / str(number))
        for size, us in curves[1][key].items():
            if min(measured) < size < max(measured):
                found = links.collective_us("ALLREDUCE", 8, 1, size, 8)
                assert found is not None
                errors.append(100 * (found / us - 1))
    assert len(errors) > 400 and abs(fmean(errors)) < 1.0
    assert median(map(abs, errors)) < 3.0 and sorted(map(abs, errors))[int(0.9 * len(errors))] < 12.0
