"""Passes of inference are held against AIConfigurator's estimator, which interpolates the same measured kernels."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from common.errors import InputProblems
from simulation import cli
from simulation.predict import operations
from simulation.predict.inference import AGREES, Pass, one_pass
from simulation.predict.kernels import experts_us
from simulation.predict.machine import machines
from tests.simulation.predict.accuracy import DATA, ROOT, estimated
from tests.simulation.predict.calling import asked
from tests.simulation.predict.test_commands import refused as refused_in_words
from tests.simulation.predict.test_counts import job as training_job
from workloads.job.training_job import TrainingJob

ROW = ("tokens", "hidden", "inner", "topk", "experts", "tp", "ep")
ESTIMATES = DATA / "inference_estimates.csv"
WORDS = ("predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "4", "--tp", "4")


def job(model: str = "llama3_8b", **values: int | str) -> TrainingJob:
    """A job whose sequences nothing divides."""
    return training_job(model, **{"sp": 0, **values})


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.mark.parametrize(("phase", "worst"), [("prefill", 20), ("decode", 25)])
def test_passes_take_as_long_as_the_estimator_of_their_tables_says(phase: str, worst: float) -> None:
    """Llama-3 8B and 70B in two types on A100 to B200, tp 1 to 8, 1 to 64 sequences of 1,024 to 16,384 tokens."""
    found = estimated(phase)
    errors = sorted(abs(100 * (ours / its - 1)) for ours, (its, _, _) in found)
    assert len(errors) == 252
    assert median(errors) < 5 and errors[int(0.9 * len(errors))] < AGREES["dense"] and errors[-1] < worst
    # Three engines differ among themselves by more than that.
    assert median(errors) < median(100 * (high / low - 1) for _, (_, low, high) in found)


@pytest.mark.parametrize(("phase", "usual"), [("prefill", 13), ("decode", 8)])
def test_passes_with_experts_lie_among_those_that_the_estimator_says_of_its_engines(phase: str, usual: float) -> None:
    """Qwen3 235B and DeepSeek-V3 on H100, H200 and B200: experts in parts, over tensor ranks, over replicas."""
    found = estimated(phase, experts=True)
    errors = sorted(abs(100 * (ours / its - 1)) for ours, (its, _, _) in found)
    assert len(errors) == 297
    assert median(errors) < usual and errors[int(0.9 * len(errors))] < AGREES[phase]
    among = [low / 1.15 <= ours <= 1.15 * high for ours, (_, low, high) in found]
    assert sum(among) > 0.95 * len(among)


def test_experts_take_what_tables_of_every_gpu_say_that_no_rate_was_taken_from() -> None:
    """200 rows drawn at random; an engine's kernels of the same experts differ by that much."""
    wrong = []
    for row in csv.DictReader((DATA / "experts_tables.csv").read_text(encoding="utf-8").splitlines()):
        tokens, hidden, inner, topk, experts, tp, ep = (int(row[key]) for key in ROW)
        sizes = (3 * hidden * inner // tp, hidden)
        ours = experts_us(row["gpu"], row["dtype"], tokens * topk, tokens * topk / ep, experts // ep, sizes)
        wrong.append(abs(ours / float(row["us"]) - 1))
    assert len(wrong) == 200 and median(wrong) < 0.25


def test_a_token_reads_the_experts_that_it_takes_and_the_compressed_keys() -> None:
    """DeepSeek-V3 in FP8 over 8 ranks: of 256 experts of 44 MB one rank's share of 8 a token, 576 numbers a token."""
    its = operations.inference_parts(job("deepseek_v3", gpus=8, tp=8, ep=8, mbs=4), "decode").expert
    assert its is not None
    (experts,) = (each for each in its.forward if isinstance(each, operations.Experts))
    assert experts == operations.Experts(4 * 8, 4, 32, (3 * 7168 * 2048, 7168))
    summed = [each for each in its.forward if isinstance(each, operations.Collective) and each.op == "ALLREDUCE"]
    assert summed == [("ALLREDUCE", "tp", 4 * 7168 * 2)] * 2
    apart = operations.inference_parts(job("deepseek_v3", gpus=8, tp=1, ep=8, mbs=4), "decode").expert
    assert apart is not None
    away = [each for each in apart.forward if isinstance(each, operations.Collective)]
    # Each of 4 tokens goes to 8 ranks at most, and comes back.
    assert [each for each in away if each.group == "ep"] == [("ALLTOALL", "ep", 4 * 8 * 7168 * 2)] * 2
    one = one_pass(job("deepseek_v3", gpus=8, tp=8, ep=8, mbs=1, seq=4095), machines()["H200"], "decode")
    more = one_pass(job("deepseek_v3", gpus=8, tp=8, ep=8, mbs=9, seq=4095), machines()["H200"], "decode")
    assert (more.memory - one.memory) * 2**30 == pytest.approx(8 * 4096 * 61 * 576 * 2)


def test_a_decoding_token_reads_the_keys_of_its_window_in_the_layers_that_have_one() -> None:
    def its(**more: int | str) -> Pass:
        return one_pass(job("llama3_8b", gpus=4, tp=4, mbs=64, seq=16384, **more), machines()["H100"], "decode")

    none, every, half = its(), its(sliding_window=1024), its(sliding_window=1024, full_attention_every=2)
    assert every.classes["attention"] < 0.2 * none.classes["attention"] < half.classes["attention"]
    token = 64 * 2 * 2 * 128 * 2
    assert (none.memory - every.memory) * 2**30 == pytest.approx(32 * (16385 - 1024) * token)
    assert (none.memory - half.memory) * 2**30 == pytest.approx(16 * (16385 - 1024) * token)


@pytest.mark.parametrize("ep", [1, 2, 8])
def test_a_rank_holds_its_part_of_all_weights_however_experts_are_divided(ep: int) -> None:
    its = one_pass(job("mixtral_8x7b", gpus=8, tp=8, ep=ep, seq=1), machines()["H100"], "prefill")
    assert its.memory * 2**30 == pytest.approx(2 * 46.703e9 / 8, rel=0.01)


def test_experts_that_do_not_divide_are_refused() -> None:
    with pytest.raises(InputProblems, match="--ep 4: must be a multiple of tp 6"):
        one_pass(
            job("mixtral_8x7b", gpus=12, tp=6, ep=4, heads=36, kv_heads=6, head_dim=128), machines()["H100"], "decode"
        )


@pytest.mark.nightly
def test_the_estimator_itself_says_what_is_kept_of_it(tmp_path: Path) -> None:
    wheel = ROOT / "requirements/gpu-tables.lock"
    words = ("install", "--quiet", "--require-hashes", "--no-deps", "--target", str(tmp_path), "-r", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    said = subprocess.run(
        [sys.executable, "-m", "tests.simulation.predict.estimator"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    kept, now = (list(csv.reader(text.splitlines())) for text in (ESTIMATES.read_text(encoding="utf-8"), said))
    assert [row[:7] for row in kept] == [row[:7] for row in now]
    for before, after in zip(kept[1:], now[1:], strict=True):
        assert [*map(float, after[7:])] == pytest.approx([*map(float, before[7:])], rel=1e-3)


def test_lists_of_batches_and_lengths_give_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *WORDS, "--phase", "decode", "--mbs", "1, 1,8", "--seq", "1024,4096,1024")
    passes = found["passes"]
    assert isinstance(passes, list)
    assert [(each["batch"], each["length"]) for each in passes] == [(1, 1024), (1, 4096), (8, 1024), (8, 4096)]
    for each in passes:
        its = one_pass(job(gpus=4, tp=4, mbs=each["batch"], seq=each["length"]), machines()["H100"], "decode")
        assert each["predicted_ms"] == pytest.approx(its.ms)
        assert sum(each["classes_ms"].values()) == pytest.approx(its.ms)


def test_replicas_beside_the_one_that_is_predicted_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("predict", "--model", "llama3_70b", "--gpu", "H100", "--tp", "8", "--pp", "2", "--phase", "decode")
    found = asked(capsys, *words, "--gpus", "32")
    assert (found["gpus"], found["replicas"]) == (16, 2)
    assert cli.main([*words, "--gpus", "32"]) == 0
    assert "on 16 of 32 H100" in capsys.readouterr().out


def test_both_phases_over_batch_and_length_stand_on_one_page_and_in_one_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lists = ("--mbs", "1,8", "--seq", "4096,1024", "--output", "passes.csv", "--report", "page.html")
    found = asked(capsys, *WORDS, "--phase", "both", *lists)
    single = {phase: asked(capsys, *WORDS, "--phase", phase, *lists[:4]) for phase in ("prefill", "decode")}
    assert found["passes"] == [*single["prefill"]["passes"], *single["decode"]["passes"]]  # type: ignore[misc]
    assert found["notes"] == [*dict.fromkeys(note for its in single.values() for note in its["notes"])]  # type: ignore[attr-defined]
    rows = list(csv.DictReader(Path("passes.csv").read_text(encoding="utf-8").splitlines()))
    for row, each in zip(rows, found["passes"], strict=True):
        assert (row["phase"], row["mbs"], row["seq"]) == (each["phase"], str(each["batch"]), str(each["length"]))
        assert float(row["predicted_ms"]) == pytest.approx(each["predicted_ms"], abs=1e-4)
    page = Path("page.html").read_text(encoding="utf-8")
    charts = [json.loads(text) for text in re.findall(r'<script type="application/json">(.*?)</script>', page)]
    assert [chart["panels"][0]["y"]["name"] for chart in charts] == ["ms to the first token", "ms per token"]
    for chart, its in zip(charts, single.values(), strict=True):
        drawn = {
            (series["name"], length): ms
            for series in chart["panels"][0]["series"]
            for length, ms in zip(series["x"], series["y"], strict=True)
        }
        said = {(f"batch {each['batch']}", each["length"]): each["predicted_ms"] for each in its["passes"]}  # type: ignore[attr-defined]
        assert drawn == pytest.approx(said, rel=1e-4)
    Path("page.html").write_text("mine", encoding="utf-8")
    assert cli.main([*WORDS, "--phase", "decode", "--output", "new.csv", "--report", "page.html"]) == 2
    assert "page.html: is there with other content" in capsys.readouterr().err and not Path("new.csv").exists()
    assert cli.main([*WORDS, "--phase", "both", "--output", "new.csv", "--report", "./new.csv"]) == 2
    assert "new.csv: is the name of 2 outputs" in capsys.readouterr().err and not Path("new.csv").exists()


def test_memory_is_that_of_weights_and_of_the_keys_and_values_of_all_tokens() -> None:
    """Llama-3 8B: 8.03e9 weights of 2 bytes; 2 x 8 heads x 128 x 2 bytes a layer and token."""
    its = one_pass(job(mbs=8, seq=4095), machines()["H100"], "decode")
    cache = 8 * 4096 * 32 * 2 * 8 * 128 * 2
    assert its.memory * 2**30 == pytest.approx(2 * 8.030e9 + cache, rel=1e-3)
    divided = one_pass(job(gpus=8, tp=4, pp=2, mbs=8, seq=4095), machines()["H100"], "decode")
    assert divided.memory * 2**30 == pytest.approx((2 * 8.030e9 + 2 * cache) / 8, rel=0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gbs", "8"), "--gbs 8: has no effect with --phase: it is for training"),
        (("--recompute", "full"), "--recompute full: has no effect with --phase"),
        (("--measured", "run"), "--measured run: has no effect with --phase"),
        (("--seq", "1024,x"), "'x'"),
        (("--seq", "1024,"), "--seq 1024,: must be whole numbers with commas between"),
        (("--tp", "3"), "tp"),
    ],
)
def test_what_a_pass_without_gradients_cannot_have_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said.replace("'", "") in refused_in_words(capsys, *WORDS, "--phase", "decode", *words).replace("'", "")
