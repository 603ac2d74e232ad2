"""Passes of inference are held against AIConfigurator's estimator, which interpolates the same measured kernels."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from simulation.predict.inference import AGREES, one_pass
from simulation.predict.machine import machines
from tests.simulation.predict.accuracy import DATA, ROOT, estimated
from tests.simulation.predict.test_commands import asked
from tests.simulation.predict.test_commands import refused as refused_in_words
from tests.simulation.predict.test_counts import job

ESTIMATES = DATA / "inference_estimates.csv"
WORDS = ("predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "4", "--tp", "4")


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("phase", "worst"), [("prefill", 20), ("decode", 25)])
def test_passes_take_as_long_as_the_estimator_of_their_tables_says(phase: str, worst: float) -> None:
    """Llama-3 8B and 70B in two types on A100 to B200, tp 1 to 8, 1 to 64 sequences of 1,024 to 16,384 tokens."""
    found = estimated(phase)
    errors = sorted(abs(100 * (ours / its - 1)) for ours, (its, _, _) in found)
    assert len(errors) == 252
    assert median(errors) < 5 and errors[int(0.9 * len(errors))] < AGREES and errors[-1] < worst
    # Three engines differ among themselves by more than that.
    assert median(errors) < median(100 * (high / low - 1) for _, (_, low, high) in found)


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
    assert [row[:6] for row in kept] == [row[:6] for row in now]
    for before, after in zip(kept[1:], now[1:], strict=True):
        assert [*map(float, after[6:])] == pytest.approx([*map(float, before[6:])], rel=1e-3)


def test_lists_of_batches_and_lengths_give_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(capsys, *WORDS, "--phase", "decode", "--mbs", "1,8", "--seq", "1024,4096")
    passes = found["passes"]
    assert isinstance(passes, list)
    assert [(each["batch"], each["length"]) for each in passes] == [(1, 1024), (1, 4096), (8, 1024), (8, 4096)]
    for each in passes:
        its = one_pass(job(gpus=4, tp=4, mbs=each["batch"], seq=each["length"]), machines()["H100"], "decode")
        assert each["predicted_ms"] == pytest.approx(its.ms)
        assert sum(each["classes_ms"].values()) == pytest.approx(its.ms)


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
        (("--report", "page.html"), "--report page.html: has no effect with --phase"),
        (("--seq", "1024,x"), "'x'"),
        (("--seq", "1024,"), "--seq 1024,: must be whole numbers with commas between"),
        (("--model", "mixtral_8x7b", "--tp", "1"), "a dense model"),
        (("--tp", "3"), "tp"),
    ],
)
def test_what_a_pass_without_gradients_cannot_have_is_refused(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said.replace("'", "") in refused_in_words(capsys, *WORDS, "--phase", "decode", *words).replace("'", "")
