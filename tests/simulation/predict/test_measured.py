"""Predictions are held against iterations that others measured on real GPUs: SimuMax's B200, Megatron-Bridge."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from statistics import median

import pytest

from simulation.predict import certainty
from simulation.predict.calibration import calibrated
from simulation.predict.iteration import Prediction, predict
from simulation.predict.job_table import job_of, jobs_of, preset, read_rows
from simulation.predict.kernels import product_us
from simulation.predict.machine import Machine, machines
from simulation.predict.report import families

DATA = Path(__file__).parents[2] / "data" / "measured"
TABLE = Path(__file__).parents[3] / "docs" / "data" / "simulation" / "predicted.csv"
Row = dict[str, str]
Held = list[tuple[Row, Prediction]]
OLD = ("25.09/", "25.11/")  # releases of Megatron-Bridge before the bars


def held(name: str, known: dict[str, Machine] | None = None) -> Held:
    rows = read_rows(DATA / name)
    its = known or dict(machines())
    return [(row, predict(job, its[job.gpu])) for row, job in zip(rows, jobs_of(rows), strict=True)]


def errors(rows: Held) -> list[float]:
    """In %, sorted by size."""
    return sorted(abs(100 * (found.ms / float(row["measured_ms"]) - 1)) for row, found in rows)


def within(found: list[float], bars: tuple[float, float, float]) -> bool:
    """Whether median, 90th percentile and worst keep the bars."""
    ninetieth = found[min(len(found) - 1, int(0.9 * len(found)))]
    return median(found) <= bars[0] and ninetieth <= bars[1] and found[-1] <= bars[2]


@pytest.mark.parametrize(
    ("family", "bars"),
    [("tp", (4, 8, 10)), ("pp", (8, 12, 15)), ("cp", (4, 8, 10)), ("moe", (8, 12, 15))],
)
def test_iterations_on_8_b200_are_predicted_within_the_bars_of_their_family(
    family: str, bars: tuple[float, float, float]
) -> None:
    found = errors([each for each in held("simumax.csv") if each[0]["family"] == family])
    assert within(found, bars), found


def test_dense_iterations_on_8_to_1024_gpus_in_fp8_and_lower_are_predicted() -> None:
    rows = [each for each in held("bridge.csv") if each[0]["family"] == "dense" and not each[0]["name"].startswith(OLD)]
    found = errors(rows)
    assert within(found, (5, 10, 12)), found


def test_nine_of_ten_measured_iterations_lie_in_the_stated_interval_of_each_kind() -> None:
    inside: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for name in ("simumax.csv", "bridge.csv"):
        for row, found in held(name):
            sure = certainty.interval(found)
            inside[name, row["family"]].append(sure.low <= float(row["measured_ms"]) <= sure.high)
    assert {key: sum(its) / len(its) for key, its in inside.items() if sum(its) < 0.9 * len(its)} == {}


def test_tables_do_better_than_one_mfu_and_as_well_as_another_simulator() -> None:
    rows = held("simumax.csv")
    ours = median(errors(rows))
    flat = median(abs(certainty.flat_mfu_ms(found) / float(row["measured_ms"]) - 1) * 100 for row, found in rows)
    simumax = median(abs(float(row["other_predicted_ms"]) / float(row["measured_ms"]) - 1) * 100 for row, _ in rows)
    assert ours < simumax < flat


def test_allocated_memory_of_each_stage_is_predicted_within_a_percent() -> None:
    for row, found in held("simumax.csv"):
        peaks = [float(text) for text in row["measured_alloc_gib_by_rank"].split()]
        assert found.memory.allocated == pytest.approx(max(peaks), rel=0.01), row["name"]
        assert found.memory.reserved == pytest.approx(float(row["measured_reserved_gib"]), rel=0.04), row["name"]


def torchtitan() -> Held:
    """Llama-3.1 8B by FSDP2 on H100 of 500 W, with torchtitan's selective recomputation per operator."""
    with (DATA / "torchtitan_h100.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("gpu", "gpus", "precision", "mbs", "seq", "fsdp", "recompute")
    jobs = [job_of({**preset("llama3_8b"), **{key: row[key] for key in keys}}, row["name"]) for row in rows]
    return [(row, predict(job, machines()[job.gpu])) for row, job in zip(rows, jobs, strict=True)]


def test_reserved_memory_of_fsdp2_is_predicted_on_8_and_128_gpus() -> None:
    found = [abs(100 * (found.memory.reserved / float(row["memory_GiB"]) - 1)) for row, found in torchtitan()]
    assert within(sorted(found), (5, 8, 10)), found


def test_ranks_of_a_copy_alone_decide_what_hsdp_holds() -> None:
    def resident(gpus: int, fsdp: int) -> float:
        row = {**preset("llama3_8b"), "gpu": "H100", "gpus": str(gpus), "fsdp": str(fsdp)}
        held = predict(job_of(row, "hsdp"), machines()["H100"]).memory
        return held.weights + held.gradients + held.optimizer

    assert resident(128, 8) == resident(8, 1) == pytest.approx(16 * 8.030e9 / 8 / 2**30, rel=1e-3)
    assert resident(128, 1) == pytest.approx(resident(8, 1) / 16)


def test_factors_fitted_to_half_of_the_layouts_predict_the_other_half() -> None:
    layouts: dict[str, Held] = defaultdict(list)
    for row, found in held("simumax.csv"):
        layouts[row["name"].rsplit("_mbc", 1)[0]].append((row, found))
    names = sorted(layouts)
    left = []
    for parity in (0, 1):
        fitted = [
            (found.job, float(row["measured_ms"]))
            for at, name in enumerate(names)
            for row, found in layouts[name]
            if at % 2 == parity
        ]
        machine = calibrated(machines()["B200"], fitted)
        others = [each for at, name in enumerate(names) if at % 2 != parity for each in layouts[name]]
        left += [(row, predict(found.job, machine)) for row, found in others]
    sizes = errors(left)
    assert within(sizes, (4, 9, 12)), sizes


@pytest.mark.parametrize("gpu", ["A100", "B200", "B300", "GB200", "GB300", "H100", "H200"])
def test_products_between_the_shipped_shapes_are_interpolated(gpu: str) -> None:
    """The held-out shapes are of the same tables, drawn at random where the shipped ones have none."""
    lines = (DATA / "products_held_out.csv").read_text(encoding="utf-8").splitlines()[1:]
    found = []
    for line in lines:
        name, dtype, m, n, k, us = line.split(",")
        if name == gpu:
            found.append(abs(product_us(gpu, dtype, int(m), int(n), int(k)) / float(us) - 1))
    found.sort()
    assert median(found) < 0.065
    assert found[int(0.9 * len(found))] < 0.16


def test_the_measured_best_layout_of_a_model_is_among_the_three_predicted_best() -> None:
    groups: dict[str, Held] = defaultdict(list)
    for row, found in held("simumax.csv"):
        model = row["name"].split("_tp")[0]
        groups[f"{model} {row['seq']} {row['micro_batches']}"].append((row, found))
    compared = 0
    for name, rows in groups.items():
        if len(rows) > 2:
            rate = [found.job.tokens_per_iteration / float(row["measured_ms"]) for row, found in rows]
            ranked = sorted(range(len(rows)), key=lambda at: -rows[at][1].tokens_per_second_and_gpu)
            assert rate.index(max(rate)) in ranked[:3], name
            compared += 1
    assert compared


def test_the_table_of_the_docs_has_these_errors() -> None:
    lines = ["measured by,family,rows,median,90th percentile,worst,in the interval"]
    for source, name in (("SimuMax", "simumax.csv"), ("Megatron-Bridge", "bridge.csv")):
        rows = held(name)
        for family, its in families([row for row, _ in rows], [found for _, found in rows]).items():
            cells = (f"{its[key]:.1f} %" for key in ("median", "p90", "worst", "inside"))
            lines.append(f"{source},{family},{its['rows']:.0f},{','.join(cells)}")
    fsdp = [
        (row | {"measured_reserved_gib": row["memory_GiB"], "family": "FSDP2"}, found) for row, found in torchtitan()
    ]
    for row, found in fsdp:
        row["measured_ms"] = str(found.job.tokens_per_iteration / float(row["tokens_s_gpu"]) / found.job.gpus * 1e3)
    for family, its in families([row for row, _ in fsdp], [found for _, found in fsdp]).items():
        cells = (f"{its[key]:.1f} %" for key in ("median", "p90", "worst", "inside"))
        lines.append(f"torchtitan,{family},{its['rows']:.0f},{','.join(cells)}")
    assert TABLE.read_text(encoding="utf-8").splitlines() == lines, "write the table again"
