"""`sweep` as a user calls it: ranking, target, interruption, configurations, page."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from common.errors import InputProblems
from common.summary import Summary
from simulation import cli
from simulation.predict import sweep_command, sweep_report
from simulation.predict.iteration import predict
from simulation.predict.job_table import jobs_of, preset, read_rows
from simulation.predict.kept import Estimate, KeptLayouts
from simulation.predict.layouts import Layout
from simulation.predict.machine import machines
from tests.simulation.predict.calling import asked, refused
from tests.simulation.predict.test_counts import job

ROOT = Path(__file__).parents[3]


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


SWEEP = ("sweep", "--model", "llama3_70b", "--gpu", "H100", "--gbs", "256")


def test_a_sweep_ranks_layouts_that_fit_and_says_why_the_second_is_second(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *SWEEP, "--gpus", "128", "--mbs", "1", "--recompute", "none", "--output", "all.csv")
    rows = list(csv.DictReader(Path("all.csv").read_text().splitlines()))
    times = [float(row["predicted_ms"]) for row in rows]
    assert times == sorted(times)
    assert all(float(row["predicted_reserved_gib"]) <= 80 for row in rows)
    assert len(rows) == found["fitting"] < found["layouts"]  # type: ignore[operator]
    longer = sum(found["second_behind_ms"].values())  # type: ignore[attr-defined]
    assert longer == pytest.approx(times[1] - times[0], abs=0.02)
    assert f"--tensor-model-parallel-size {rows[0]['tp']} " in str(found["megatron"])


def test_a_target_gives_the_fewest_gpus_that_reach_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SWEEP, "--mbs", "1", "--vpp", "1", "--cp", "1", "--recompute", "none")
    found = asked(capsys, *words, "--target", "1e11 tokens in 10 days")
    needed = 1e11 / 10 / 86400
    rate = float(found["best"][0]["tokens_per_second_and_gpu"])  # type: ignore[index]
    gpus = int(found["gpus"])  # type: ignore[call-overload]
    assert rate * gpus >= needed
    assert found["target_days"] == pytest.approx(1e11 / rate / gpus / 86400)
    half = asked(capsys, *words, "--gpus", str(gpus // 2))
    assert float(half["best"][0]["tokens_per_second_and_gpu"]) * gpus / 2 < needed  # type: ignore[index]


@pytest.mark.parametrize(("gbs", "most", "tokens"), [("480", "1024", "1e12"), ("96", "48", "8e11")])
def test_fewest_gpus_are_no_power_of_two_where_the_batch_divides_otherwise(
    gbs: str, most: str, tokens: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Held against a sweep of every number of GPUs; 48 are the most that are allowed, and are tried, too."""
    words = ("sweep", "--model", "llama3_8b", "--gpu", "H100", "--gbs", gbs, "--mbs", "1", "--vpp", "1", "--cp", "1",
             "--pp", "1", "--tp", "2,4", "--recompute", "none", "--seq", "2048")  # fmt: skip
    found = asked(capsys, *words, "--gpus", most, "--target", f"{tokens} tokens in 30 days")
    needed, reached = float(tokens) / 30 / 86400, []
    for gpus in range(8, int(str(found["gpus"])) + 1, 8):
        if cli.main([*words, "--gpus", str(gpus), "--json"]) == 0:
            best = json.loads(capsys.readouterr().out)["best"][0]
            reached += [gpus] if best["tokens_per_second_and_gpu"] * gpus >= needed else []
        capsys.readouterr()
    assert reached == [found["gpus"]] and reached[0] & (reached[0] - 1)


@pytest.mark.parametrize(("most", "tokens", "fewest"), [("128", "6.5e11", 24), ("128", "1.3e12", 72)])
def test_fewest_gpus_are_found_beside_powers_of_two_that_do_not_divide_the_batch(
    most: str, tokens: str, fewest: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("sweep", "--model", "llama3_8b", "--gpu", "B200", "--gbs", "72", "--mbs", "1", "--tp", "1", "--pp", "1",
             "--cp", "1", "--seq", "2048")  # fmt: skip
    found = asked(capsys, *words, "--gpus", most, "--target", f"{tokens} tokens in 30 days")
    assert found["gpus"] == fewest


def test_layouts_may_be_held_to_sizes_of_data_parallelism_and_with_whole_optimizers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("sweep", "--model", "llama3_8b", "--gpu", "H100", "--gbs", "64", "--gpus", "32", "--vpp", "1", "--cp", "1")
    found = asked(capsys, *words, "--zero", "0,1", "--dp", "8,16", "--top", "100")["best"]
    assert isinstance(found, list)
    assert {(each["dp"], each["distributed_optimizer"]) for each in found} == {
        ("8", "0"), ("8", "1"), ("16", "0"), ("16", "1"),
    }  # fmt: skip
    assert "zero 0" in " ".join(map(sweep_report._named, (job(distributed_optimizer=0), job())))
    assert "--zero 2: must be 0, 1" in refused(capsys, *words, "--zero", "2")


def test_a_job_with_whole_optimizers_is_swept_with_fsdp_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.json").write_text(json.dumps({**preset("llama3_8b"), "seq": 2048, "distributed_optimizer": 0}))
    words = ("sweep", "--job", "job.json", "--gpu", "B200", "--gbs", "64", "--gpus", "32", "--fsdp", "0,1", "--pp", "1")
    found = asked(capsys, *words, "--vpp", "1", "--cp", "1", "--mbs", "1", "--top", "99")["best"]
    assert isinstance(found, list)
    assert {(each["fsdp"] != "0", each["distributed_optimizer"]) for each in found} == {(False, "0"), (True, "1")}


def test_a_model_that_does_not_fit_says_how_much_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--gpus", "8", "--mbs", "1", "--vpp", "1", "--cp", "1")
    assert cli.main([*SWEEP, *words, "--output", "none.csv"]) == 1
    assert "the least memory is" in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_what_does_not_divide_is_told_with_what_was_to_be_divided(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SWEEP, "--gpus", "100000", "--tp", "8"]) == 1
    assert "no layout divides evenly: 256 samples, 64 heads and the lists over 100000 GPUs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--ep", "2"), "ep 2: needs experts"),
        (("--zero", "0", "--fsdp", "1"), "no whole optimizer"),
    ],
)
def test_a_rule_that_refuses_all_layouts_is_told(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*SWEEP, "--gpus", "64", *words]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("layout", [("--cp", "2", "--tp", "1"), ("--cp", "1", "--tp", "8"), ("--cp", "2", "--tp", "2")])
def test_predict_and_sweep_refuse_a_sequence_that_ranks_cannot_divide_in_the_same_words(
    layout: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*layout, "--seq", "4098", "--gpus", "64", "--pp", "1", "--gbs", "256")
    assert cli.main([*SWEEP, *words, "--fsdp", "0", "--mbs", "1"]) == 1
    said = "seq 4098: must be a multiple of tp with sequence parallelism, times 2 x cp with context parallelism"
    assert said in capsys.readouterr().err
    assert said in refused(capsys, "predict", "--model", "llama3_70b", "--gpu", "H100", *words)


def test_a_target_for_a_model_that_does_not_fit_says_how_much_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SWEEP, "--gpus", "8", "--target", "2e9 tokens in 1 days", "--mbs", "1", "--cp", "1"]) == 1
    assert "the least memory is" in capsys.readouterr().err


def test_lists_of_an_option_that_is_given_twice_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SWEEP, "--gpus", "64", "--vpp", "1", "--cp", "1", "--mbs", "1", "--recompute", "none", "--tp", "8")
    assert asked(capsys, *words, "--tp", "4")["layouts"] == asked(capsys, *words[:-1], "4,8")["layouts"]


def test_a_value_that_a_list_has_twice_is_one_layout(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SWEEP, "--gpus", "64", "--vpp", "1", "--cp", "1", "--mbs", "1", "--recompute", "none")
    once = asked(capsys, *words, "--tp", "4,8")
    assert once["layouts"] and asked(capsys, *words, "--tp", "8,4,8, 08")["layouts"] == once["layouts"]


def test_ctrl_c_while_the_best_are_predicted_again_keeps_the_layouts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep_command, "_best", interrupted)
    words = (*FEW, "--recompute", "none")
    assert cli.main([*words, "--output", "out.csv"]) == 130
    assert "the same command goes on" in capsys.readouterr().err and Path("out.csv.partial").exists()
    assert cli.main([*words, "--output", "-"]) == 130
    assert "without --output nothing is kept" in capsys.readouterr().err


def test_mistakes_of_a_sweep_are_told_together(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--model",
        "llama3_8b",
        "--gpu",
        "TPU",
        "--gbs",
        "0",
        "--target",
        "soon",
        "--top",
        "0",
        "--dialect",
        "simai",
    )
    said = refused(capsys, "sweep", *words)
    for told in ("--gpu TPU", "--gbs 0", "--target soon", "--top 0", "--dialect simai"):
        assert told in said
    assert "--tp x" in refused(capsys, *SWEEP, "--gpus", "8", "--tp", "x")
    said = refused(capsys, *SWEEP, "--gpus", "12", "--target", "2e9 tokens in 1 day")
    assert "--gpus 12: must be a multiple of 8 with --target" in said
    assert "--target 1.2.3 tokens" in refused(capsys, *SWEEP, "--target", "1.2.3 tokens in 1 day")


FEW = (*SWEEP, "--gpus", "64", "--tp", "4,8", "--vpp", "1", "--cp", "1", "--mbs", "1,2")


@pytest.mark.parametrize(
    ("gpu", "more"),
    [("H100", {}), ("H100 HBM2e 96GB", {}), ("H100", {"precision": "fp8 delayed"}),
     ("H100", {"precision": "fp8 delayed", "framework": "Megatron", "fsdp": "1"}),
     ("H100", {"attention": "cuDNN", "fsdp": "1"})],
)  # fmt: skip
def test_rows_of_a_sweep_are_predicted_the_same_by_predict(
    gpu: str, more: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("job.json").write_text(json.dumps(preset("llama3_70b") | {k: v for k, v in more.items() if k != "fsdp"}))
    words = ("--fsdp", more.get("fsdp", "0"), "--gpu", gpu, "--output", "all.csv")
    asked(capsys, "sweep", "--job", "job.json", *FEW[3:], *words)
    model = json.dumps({"hidden": 8192, "ffn": 28672, "layers": 80, "heads": 64, "kv_heads": 8, "vocab": 128256})
    rows = list(csv.DictReader(Path("all.csv").read_text().splitlines()))
    kept = {key: value for key, value in rows[0].items() if not key.startswith("predicted")}
    assert (kept["framework"], kept["attention"]) == (more.get("framework", ""), more.get("attention", ""))
    with Path("rows.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*kept, *json.loads(model)])
        writer.writeheader()
        writer.writerow(kept | json.loads(model))
    (again,) = jobs_of(read_rows(Path("rows.csv")))
    assert predict(again, machines()["H100"]).ms == pytest.approx(float(rows[0]["predicted_ms"]), rel=1e-5)


@pytest.mark.nightly
def test_an_interrupted_sweep_keeps_its_layouts_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """It ends as one that was not interrupted; what was kept is not predicted again."""
    words = [*SWEEP, "--gpus", "512", "--output", "out.csv"]
    process = subprocess.Popen(
        [sys.executable, "-m", "simulation", *words], cwd=tmp_path, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin"},
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    partial = tmp_path / "out.csv.partial"
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and not (partial.exists() and partial.stat().st_size):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=200)[1]
    assert process.returncode == 130 and "the same command goes on" in said
    kept = partial.read_text().splitlines()
    # A mark in what was kept shows that it is taken as it is. What the signal interrupted was written again, twice.
    first = kept[1].split(", ")[:2]
    marked = [", ".join([*first, "1.5", "1.0]"]) if line.split(", ")[:2] == first else line for line in kept]
    partial.write_text("\n".join([*marked, kept[-1][:7]]))
    assert cli.main(words) == 0
    assert not partial.exists()
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert float(rows[0]["predicted_ms"]) == 1.5
    assert cli.main([*SWEEP, "--gpus", "512", "--output", "whole.csv"]) == 0
    whole = {line.split(",")[-4] for line in (tmp_path / "whole.csv").read_text().splitlines()}
    assert len(whole - {row["predicted_ms"] for row in rows}) <= 1


def test_the_partial_file_of_another_sweep_is_refused_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    Path("out.csv.partial").write_text("another\n[64, 0, 1.0, 1.0]\n")
    assert "out.csv.partial: is what another sweep left" in refused(capsys, *FEW, "--output", "out.csv")
    with pytest.raises(InputProblems, match="is what another sweep left"):
        KeptLayouts(Path("out.csv"), "one")
    assert Path("out.csv.partial").exists()
    found = asked(capsys, *FEW, "--output", "out.csv", "--force")
    assert float(found["best"][0]["predicted_ms"]) > 1.0  # type: ignore[index]


def test_the_best_are_predicted_again_on_the_flows_of_a_network(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-topo", "Spectrum-X", "-g", "64", "-gt", "H100", "-bw", "25Gbps", "-nvbw", "2880Gbps")
    assert cli.main(["topology", *words, "--output", "net"]) == 0
    capsys.readouterr()
    plain, slow = (asked(capsys, *FEW, *more)["best"] for more in ((), ("-n", "net")))
    times = [float(each["predicted_ms"]) for each in slow]  # type: ignore[attr-defined]
    assert times == sorted(times) and times[0] > float(plain[0]["predicted_ms"])  # type: ignore[index]
    assert "--gpus 128: net has 64 GPUs" in refused(capsys, *SWEEP, "--gpus", "128", "--mbs", "1", "-n", "net")
    assert cli.main([*SWEEP, "--mbs", "1", "--target", "1e13 tokens in 1 day", "--vpp", "1", "-n", "net"]) == 1
    assert "no layout of at most 64 GPUs reaches" in capsys.readouterr().err
    assert cli.main(["topology", *words[:3], "4", "-gps", "4", *words[4:], "--output", "few"]) == 0
    capsys.readouterr()
    said = refused(capsys, *SWEEP, "--mbs", "1", "--target", "1e13 tokens in 1 day", "-n", "few")
    assert "few: GPUs 4: must be a multiple of 8 with --target" in said


def test_the_front_holds_what_no_other_layout_beats_in_time_and_memory() -> None:
    one = job()
    found = [Layout(one, Estimate(ms, gib)) for ms, gib in ((1, 60), (2, 70), (3, 50), (4, 50), (5, 20))]
    edge = [each.estimate for each in sweep_report.front(found)]
    beaten = [
        a.estimate for a in found
        if any(b.estimate.ms <= a.estimate.ms and b.estimate.reserved_gib <= a.estimate.reserved_gib and b is not a
               for b in found)
    ]  # fmt: skip
    assert edge == [each.estimate for each in found if each.estimate not in beaten]


def test_no_file_is_written_where_another_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = (*FEW, "--recompute", "none", "--tp", "8", "--mbs", "1")
    targets = ("--output", "out.csv", "--report", "page.html", "--configs", "ready")
    for name in ("page.html", "ready/torchtitan_layout.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("mine")
    said = refused(capsys, *words, *targets)
    assert "page.html: is there" in said and "torchtitan_layout.py: is there" in said
    # What was swept is kept: with --force the same command writes it.
    assert {str(path) for path in Path().rglob("*.*")} == {"page.html", "ready/torchtitan_layout.py", "out.csv.partial"}
    asked(capsys, *words, *targets, "--force")
    assert len(list(Path("ready").iterdir())) == 3 and not Path("out.csv.partial").exists()


def test_gpus_that_miss_the_target_on_their_network_are_not_said_to_reach_it() -> None:
    its = predict(job("llama3_8b", gpus=8, gbs=8), machines()["H100"])
    rate, answer = its.tokens_per_second_and_gpu * its.job.gpus, Summary("1 layout\n...", {})
    for share, said in ((0.9, "the fewest for"), (1.1, "which without its network reach")):
        text = sweep_command._with_days(answer, "1e12 tokens in 14 days", share * rate, its).text
        assert f"1 layout, {said} 1e12 tokens in 14 days: the first takes {14 * share:.1f} days" in text


def test_the_page_shows_the_front_and_why_each_layout_is_not_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *FEW, "--report", "page.html", "--configs", "ready")
    page = Path("page.html").read_text(encoding="utf-8")
    charts = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert [chart["kind"] for chart in charts] == ["xy", "bars"]
    assert len(charts[0]["panels"][0]["series"][0]["x"]) == found["fitting"]
    assert page.count("<tr><td>") == len(found["best"]) - 1  # type: ignore[arg-type]
    assert {path.name for path in Path("ready").iterdir()} == {
        "megatron.sh", "torchtitan_layout.py", "config_layout.py",
    }  # fmt: skip
