"""The shipped tables of kernels are those that the script makes of the package's."""

from __future__ import annotations

import lzma
import os
import subprocess
import sys
from pathlib import Path
from statistics import median

import pytest

from simulation.predict.kernels import DATA
from tests.simulation.predict.accuracy import ROOT
from tests.simulation.predict.kernel_tables import _version, attention_text, kernel_us

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


def test_a_release_is_newer_than_its_candidates() -> None:
    versions = ["0.20.0", "1.0.0rc4", "1.0.0rc10", "1.0.0", "1.0.1", "1.2.0rc5"]
    assert sorted(set(versions), key=_version) == versions


@pytest.mark.nightly
def test_the_script_makes_the_shipped_tables_of_the_package(tmp_path: Path) -> None:
    wheel = ROOT / "requirements/gpu-tables.lock"
    words = ("install", "--quiet", "--require-hashes", "--no-deps", "--target", str(tmp_path), "-r", str(wheel))
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    script = "from tests.simulation.predict.kernel_tables import kernels_text; print(kernels_text(), end='')"
    said = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert said == lzma.decompress(DATA.read_bytes()).decode()
