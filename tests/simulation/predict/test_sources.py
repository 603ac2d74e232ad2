"""Each kernel's time says where it is from, and how far off such times are."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest

from simulation.predict import sources
from simulation.predict.duration import Stopwatch
from simulation.predict.iteration import predict
from simulation.predict.job_table import job_of, preset
from simulation.predict.kernels import product_us
from simulation.predict.machine import machines
from simulation.predict.operations import Attention, Product, Traffic
from simulation.predict.report import added_cells, data, text
from tests.simulation.predict.accuracy import DATA, own_kernels
from workloads.compute import database

ROW = {**preset("llama3_8b"), "gpu": "H200", "gpus": "8"}


def watch() -> Stopwatch:
    return Stopwatch(job_of(ROW, "sources"), machines()["H200"])


def nine_of_ten(off: list[float]) -> float:
    """In %, what nine of ten are within."""
    return 100 * sorted(off)[int(0.9 * len(off))]


def test_nine_of_ten_times_are_within_the_error_of_their_source() -> None:
    """Measured and roofline: an H200 of ours that no table is from; interpolated: shapes that were left out."""
    off: dict[str, list[float]] = defaultdict(list)
    for row in database.shipped():
        if row.device == "H200 SXM" and row.op.startswith("gemm"):
            m, n, k = (int(row.axes[key]) for key in "mnk")
            source = sources.source_of(watch(), Product("products", m, n, k))
            off[source].append(abs(product_us("H200", "bf16", m, n, k) / row.ns * 1e3 - 1))
    off[sources.ROOFLINE] = [abs(ratio - 1) for ratio in own_kernels()["memory-bound"]]
    held_out = csv.reader((DATA / "products_held_out.csv").read_text(encoding="utf-8").splitlines()[1:])
    off["left out"] = [abs(product_us(gpu, kind, *map(int, at)) / float(us) - 1) for gpu, kind, *at, us in held_out]
    off["attention"] = [abs(ratio - 1) for key in ("attention", "attention, backward") for ratio in own_kernels()[key]]
    off.pop(sources.EXTRAPOLATED)
    assert min(map(len, off.values())) >= 24 and len(off["left out"]) > 300
    bars = {**sources.ERRORS, **dict.fromkeys(("left out", "attention"), sources.ERRORS[sources.INTERPOLATED])}
    assert {key: nine_of_ten(its) for key, its in off.items() if nine_of_ten(its) > (bars[key] or 0.0)} == {}


@pytest.mark.parametrize(
    ("kernel", "source"),
    [
        (Product("products", 4096, 4096, 4096), sources.MEASURED),
        (Product("products", 1024, 4096, 4096, 4), sources.MEASURED),
        (Product("products", 4096, 4097, 4096), sources.INTERPOLATED),
        (Product("products", 40000, 4096, 4096), sources.EXTRAPOLATED),
        (Attention(4096, 32, 128, 128, backward=True), sources.INTERPOLATED),
        (Attention(10**6, 32, 128, 128, backward=False), sources.EXTRAPOLATED),
        (Traffic("memory-bound", 1e9), sources.ROOFLINE),
    ],
)
def test_a_kernel_says_where_its_time_is_from(kernel: Product | Attention | Traffic, source: str) -> None:
    """Products of experts run four beside one another."""
    assert sources.source_of(watch(), kernel) == source


def test_the_answer_has_the_kernels_their_sources_and_the_shares() -> None:
    found = predict(job_of(ROW, "sources"), machines()["H200"])
    answer = data(found)
    its, shares = answer["kernels"], answer["kernels_percent"]
    assert isinstance(its, list) and isinstance(shares, dict)
    assert sum(shares.values()) == pytest.approx(100) and set(shares) >= {sources.INTERPOLATED, sources.ROOFLINE}
    compute = sum(found.classes[key] for key in ("products", "attention", "head"))
    listed = sum(each["us"] * each["times"] for each in its if each["part"] in ("products", "attention", "head"))
    assert listed / 1e3 * found.job.micro_batches == pytest.approx(compute)
    said = sources.sentence(sources.kernels_of(found))
    assert f"kernels     {said}" in text(found) and added_cells(found)["predicted_kernels"] == said
    assert f"{shares[sources.ROOFLINE]:.0f} % roofline (9 of 10 within 10 %)" in said
