"""The shipped tables of kernels are those that the script makes of the package's."""

from __future__ import annotations

import csv
import json
import lzma
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from simulation.predict.job_table import preset
from simulation.predict.kernels import DATA, EXPERTS
from tests.simulation.predict.accuracy import ROOT
from tests.simulation.predict.kernel_tables import _version, attention_text, fitted, kernel_us

SAMPLES = ROOT / "tests" / "data" / "compute"


def shipped() -> dict[tuple[str, ...], float]:
    """By kernel, GPU, type and sizes."""
    rows = (line.split(",") for line in lzma.decompress(DATA.read_bytes()).decode().splitlines()[1:])
    return {tuple(row[:-1]): float(row[-1]) for row in rows}


@pytest.mark.parametrize(
    ("kernel", "sample", "places"),
    [("product", "gemm", 940), ("decode", "generation_attention", 17)],
)
def test_medians_of_the_engines_lie_near_what_one_of_them_took(kernel: str, sample: str, places: int) -> None:
    """Of latent attention engines differ threefold."""
    pytest.importorskip("pyarrow")
    known = shipped()
    its = kernel_us(kernel, [SAMPLES / f"h100_{sample}_perf.parquet"])
    ratios = [us / known[kernel, "H100", at[0], *map(str, at[1:])] for at, us in its.items()]
    assert len(ratios) == places
    assert median(ratios) == pytest.approx(1, abs=0.1)
    assert sorted(ratios)[places // 20] > 0.7 and sorted(ratios)[-places // 20] < 2.5


def test_training_attention_is_that_of_the_kept_passes() -> None:
    assert DATA.with_name("attention.csv").read_text(encoding="utf-8") == attention_text()


def test_the_search_finds_the_rates_of_experts_that_follow_them() -> None:
    """In FP8: a byte of each weight of the experts that are met, products of pairs, copies of 16 bits, and 41 us."""
    pytest.importorskip("scipy")
    draw, tables = random.Random(5), dict[str, list[Mapping[str, Any]]]()
    for engine in ("one", "other"):
        rows: list[dict[str, Any]] = [
            {"num_tokens": 2 ** draw.randrange(15), "topk": draw.choice((2, 8)), "moe_ep_size": draw.choice((1, 8)),
             "num_experts": 256, "hidden_size": 4096, "inter_size": 2048, "moe_tp_size": draw.choice((1, 4))}
            for _ in range(200)
        ]  # fmt: skip
        tables[engine] = [*rows]
        for row in rows:
            pairs = max(1, row["num_tokens"] * row["topk"] / row["moe_ep_size"])
            weights = 3 * row["hidden_size"] * row["inter_size"] / row["moe_tp_size"]
            ns = weights * min(256 / row["moe_ep_size"], pairs) / 3000 + 2 * pairs * weights / 650e3
            row["latency"] = (ns + 2 * row["num_tokens"] * row["topk"] * row["hidden_size"] / 1900 + 41e3) / 1e6
    rates, middle, most = fitted(tables, "H100", "fp8")
    assert rates == pytest.approx((41, 3000, 650, 1900), rel=0.01) and middle < most < 1


def test_a_release_is_newer_than_its_candidates() -> None:
    versions = ["0.20.0", "1.0.0rc4", "1.0.0rc10", "1.0.0", "1.0.1", "1.2.0rc5"]
    assert sorted(set(versions), key=_version) == versions


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder where the wheel of the tables is installed."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = ROOT / "requirements/gpu-tables.lock"
    words = ("install", "--quiet", "--require-hashes", "--no-deps", "--target", str(folder), "-r", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("model", "published"),
    [
        ("llama3_405b", "meta-llama--Meta-Llama-3.1-405B"),
        ("mixtral_8x7b", "mistralai--Mixtral-8x7B-v0.1"),
        ("mixtral_8x22b", "mistralai--Mixtral-8x22B-v0.1"),
        ("deepseek_v3", "deepseek-ai--DeepSeek-V3"),
        ("qwen3_235b", "Qwen--Qwen3-235B-A22B"),
    ],
)
def test_presets_reach_as_far_as_the_configurations_in_the_package(model: str, published: str, package: Path) -> None:
    config = json.loads((package / f"aiconfigurator_core/model_configs/{published}_config.json").read_text())
    assert int(preset(model)["max_position_embeddings"]) == config["max_position_embeddings"]


@pytest.mark.nightly
def test_the_script_makes_the_shipped_tables_of_the_package(package: Path) -> None:
    names = "kernels_text, experts_text"
    script = f"import json; from tests.simulation.predict.kernel_tables import {names}; texts = {names}; "
    script += "print(json.dumps([each() for each in texts]))"
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{package}:{ROOT}"}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    kernels, experts = json.loads(said)
    assert kernels == lzma.decompress(DATA.read_bytes()).decode()
    found, known = (list(csv.reader(text.splitlines())) for text in (experts, EXPERTS.read_text(encoding="utf-8")))
    assert [row[:2] for row in found] == [row[:2] for row in known]
    for now, before in zip(found[1:], known[1:], strict=True):
        assert [*map(float, now[2:])] == pytest.approx([*map(float, before[2:])], rel=0.01)
