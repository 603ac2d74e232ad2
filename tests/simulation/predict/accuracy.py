"""Holds predictions against iterations that others measured on real GPUs, and writes their errors as a table.

`python -m tests.docs` writes docs/data/simulation/predicted.csv; a test compares it.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path

from simulation.predict.calibration import calibrated
from simulation.predict.certainty import flat_efficiency_ms, flat_mfu_ms
from simulation.predict.duration import Stopwatch
from simulation.predict.inference import one_pass
from simulation.predict.iteration import Prediction, predict
from simulation.predict.job_table import job_of, jobs_of, preset, read_rows
from simulation.predict.kernels import product_us
from simulation.predict.machine import MEMORY_SHARE, machines
from simulation.predict.operations import Attention, Part
from simulation.predict.report import families, measured_ms
from tests.simulation.predict.estimator import DENSE
from workloads.compute import database
from workloads.compute.operators import OPERATORS
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES

ROOT = Path(__file__).parents[3]
DATA = ROOT / "tests" / "data" / "measured"
TABLE = ROOT / "docs" / "data" / "simulation" / "predicted.csv"
OWN = {"own_h200.csv": "this project's H200", "own_h100.csv": "this project's H100"}
"""Rows of own_h100.csv have the ms that were predicted before (blind_ms), the GiB that nvidia-smi showed at most
(used_gib), and allocated ones where training decided: in the others the evaluation did, beside the last gradients.
"""
LARGE_NS = 40_000  # of a kernel that the memory's rate bounds
HEADER = "measured by,predicted by,family,rows,median,90th percentile,worst,in the interval,bar"
Row = dict[str, str]
Held = list[tuple[Row, Prediction]]


@cache
def _held(name: str) -> tuple[tuple[Row, Prediction], ...]:
    rows = read_rows(DATA / name)
    return tuple((row, predict(job, machines()[job.gpu])) for row, job in zip(rows, jobs_of(rows), strict=True))


def held(name: str) -> Held:
    """The rows of a file with their predictions by the shipped factors."""
    return list(_held(name))


def by_family(rows: Held) -> dict[str, Held]:
    """The rows of each family."""
    found: dict[str, Held] = defaultdict(list)
    for row, prediction in rows:
        found[row["family"]].append((row, prediction))
    return found


def torchtitan() -> Held:
    """Llama-3 8B by FSDP2 on H100 of 500 W, with torchtitan's selective recomputation per operator; torchtitan's rows,
    and those that torchao measured with it.
    """
    with (DATA / "torchtitan_h100.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    keys = ("gpu", "gpus", "precision", "mbs", "seq", "fsdp", "recompute", "power_limit_W", "compile")
    found = []
    for row in rows:
        job = job_of({**preset("llama3_8b"), **{key: row[key] for key in keys}}, row["name"])
        measured = {"measured_tokens_s_gpu": row["tokens_s_gpu"], "measured_reserved_gib": row["memory_GiB"]}
        found.append((row | measured | {"family": "FSDP2"}, predict(job, machines()[job.gpu])))
    return found


def own_kernels() -> dict[str, list[float]]:
    """Predicted over measured times of the kernels that this project measured on an H200, by what they are."""
    gpu, found = machines()["H200"], defaultdict(list)
    watch = Stopwatch(job_of({**preset("llama3_8b"), "gpu": "H200", "gpus": "8"}, "H200"), gpu)
    for row in database.shipped():
        at = row.axes
        if row.device != "H200 SXM":
            continue
        if row.op.startswith("gemm"):
            found["products"].append(product_us("H200", "bf16", at["m"], at["n"], at["k"]) / row.ns * 1e3)
        elif row.op.startswith("attention"):
            its = Attention(at["seq"], at["heads"] * at["batch"], at["qk"], at["v"], row.op.endswith("backward"))
            name = "attention, backward" if its.backward else "attention"
            found[name].append(watch.part(Part((its,), ()))["attention"] / row.ns * 1e3)
        elif row.op in ("residual", "activation", "activation_backward", "adam") and row.ns >= LARGE_NS:
            moved = OPERATORS[row.op].elements(at) * SIZES[{"bf16": BFLOAT16, "fp32": FLOAT32}[row.dtype]]
            found["memory-bound"].append(moved / gpu.memory_GBps / MEMORY_SHARE / row.ns)
            found[row.op].append(moved / gpu.memory_GBps / row.ns)
    return found


OLD = ("25.09/", "25.11/")  # releases of Megatron-Bridge before the bars


def _by_others(rows: Held, layout: Callable[[Row], str]) -> Iterator[tuple[Row, Prediction]]:
    """Rows predicted by factors that were fitted to half of their GPU's layouts, without their own."""
    layouts: dict[str, dict[str, Held]] = defaultdict(lambda: defaultdict(list))
    for row, found in rows:
        layouts[found.job.gpu][layout(row)].append((row, found))
    for gpu, its in layouts.items():
        names = sorted(its)
        for parity in (0, 1):
            fitted = [(found.job, measured_ms(row, found.job)) for name in names[parity::2] for row, found in its[name]]
            machine = calibrated(machines()[gpu], fitted) if fitted else machines()[gpu]
            for name in names[1 - parity :: 2]:
                yield from ((row, predict(found.job, machine)) for row, found in its[name])


@cache
def other_half() -> tuple[tuple[Row, Prediction], ...]:
    """SimuMax's rows, each predicted by factors that were fitted to half of the layouts, without its own."""
    return tuple(_by_others(held("simumax.csv"), lambda row: row["name"].rsplit("_mbc", 1)[0]))


@cache
def other_dense() -> tuple[tuple[Row, Prediction], ...]:
    """The same of Megatron-Bridge's dense models, all releases of a layout together."""
    dense = by_family(bridge())["dense"]
    return tuple(_by_others(dense, lambda row: row["name"].split("/", 1)[1].rsplit("/", 1)[0]))


def bridge() -> Held:
    """Megatron-Bridge's rows; dense models of releases before the bars are a family of their own."""
    return [
        ({**row, "family": "dense before 26.02"} if _is_old(row) else row, found) for row, found in held("bridge.csv")
    ]


def _is_old(row: Row) -> bool:
    return row["family"] == "dense" and row["name"].startswith(OLD)


def own_h100() -> Held:
    """Our H100's rows, with what nvidia-smi showed less 0.6 GiB of the driver as reserved memory."""
    return [
        (row | ({"measured_reserved_gib": str(float(row["used_gib"]) - 0.6)} if row["used_gib"] else {}), found)
        for row, found in held("own_h100.csv")
    ]


def between_shapes() -> list[float]:
    """Interpolated over measured times of products at shapes that were left out, of every GPU."""
    rows = csv.reader((DATA / "products_held_out.csv").read_text(encoding="utf-8").splitlines()[1:])
    return [product_us(gpu, kind, *map(int, at)) / float(us) for gpu, kind, *at, us in rows]


SHIPPED, OTHERS = "shipped factors", "factors of other layouts"
BARS = {
    **dict.fromkeys((("SimuMax", SHIPPED, f"{family}: time") for family in ("tp", "pp")), (8, 18, 22)),
    **dict.fromkeys((("SimuMax", OTHERS, f"{family}: time") for family in ("tp", "pp")), (5, 8, 10)),
    ("SimuMax", SHIPPED, "cp: time"): (7, 12, 15), ("SimuMax", OTHERS, "cp: time"): (4, 6, 8),
    ("SimuMax", SHIPPED, "moe: time"): (15, 20, 25), ("SimuMax", OTHERS, "moe: time"): (6, 9, 12),
    ("Megatron-Bridge", SHIPPED, "dense: time"): (9, 16, 22), ("Megatron-Bridge", OTHERS, "dense: time"): (6, 14, 20),
    ("tables left out", "tables", "kernels: products"): (4, 15, None),
}  # fmt: skip
MEMORY_BARS = {"alloc memory": (1, 2, 3), "reserved memory": (5, 8, 10)}
"""What was asked for before anything was measured, in %."""


def _judged(line: str) -> str:
    """A line of the table with its bar, and whether it is kept."""
    source, by, family, _, *shown = line.split(",")
    bars = MEMORY_BARS.get(family.partition(": ")[2]) or BARS.get((source, by, family))
    if bars is None:
        return f"{line},"
    errors = [abs(float(cell.removesuffix(" %"))) for cell in shown[:3]]
    is_met = all(bar is None or error <= bar for error, bar in zip(errors, bars, strict=True))
    asked = " / ".join(str(bar) for bar in bars if bar is not None)
    return f"{line},{asked} %: {'met' if is_met else 'missed'}"


@cache
def estimated(phase: str, *, experts: bool = False) -> tuple[tuple[float, tuple[float, float, float]], ...]:
    """Passes of inference of models with experts or without, in ms: ours, and AIConfigurator's, the median of its
    engines, the lowest and highest.
    """
    found = []
    for row in csv.DictReader((DATA / "inference_estimates.csv").read_text(encoding="utf-8").splitlines()):
        if experts != (row["model"] not in DENSE):
            continue
        of_pass = {"gpu": row["gpu"], "gpus": str(max(int(row["tp"]), int(row["ep"]))), "tp": row["tp"],
                   "ep": row["ep"], "mbs": row["batch"], "seq": row["length"]}  # fmt: skip
        job = job_of({**preset(row["model"]), **of_pass, "precision": row["precision"]}, row["model"])
        ours = one_pass(job, machines()[job.gpu], phase).ms
        theirs = (float(row[f"{phase}_ms"]), float(row[f"{phase}_low"]), float(row[f"{phase}_high"]))
        found.append((ours, theirs))
    return tuple(found)


def text() -> str:
    """The table: medians, 90th percentiles and worst errors by family, misses and baselines, too."""
    simumax, of_bridge, fsdp = held("simumax.csv"), bridge(), torchtitan()
    lines = []
    own = [(OWN["own_h200.csv"], held("own_h200.csv")), (OWN["own_h100.csv"], own_h100())]
    for source, rows in (("SimuMax", simumax), ("Megatron-Bridge", of_bridge), ("torchtitan", fsdp), *own):
        lines += _lines(source, SHIPPED, rows)
    for family, rows in by_family(held("own_h100.csv")).items():
        blind = [float(row["blind_ms"]) / measured_ms(row, found.job) for row, found in rows if row["blind_ms"]]
        if blind:
            lines.append(_baseline(OWN["own_h100.csv"], "rules of before", blind, f"{family}: time"))
    for source, its in (("SimuMax", other_half()), ("Megatron-Bridge", other_dense())):
        lines += [each for each in _lines(source, OTHERS, list(its)) if ": time" in each]
    for source, rows in (("SimuMax", simumax), ("Megatron-Bridge", of_bridge), ("torchtitan", fsdp)):
        for baseline, of in (("one MFU", flat_mfu_ms), ("one efficiency of products", flat_efficiency_ms)):
            lines.append(_baseline(source, baseline, [of(found) / measured_ms(row, found.job) for row, found in rows]))
    for phase, experts in product(("prefill", "decode"), (False, True)):
        ratios = [ours / its for ours, (its, _, _) in estimated(phase, experts=experts)]
        name = f"inference: {phase}{' with experts' if experts else ''}"
        lines.append(_baseline("AIConfigurator (estimates)", "tables", ratios, name))
    for kernel in ("products", "attention", "attention, backward", "memory-bound"):
        name = f"kernels: {kernel.replace(',', '')}"
        lines.append(_baseline(OWN["own_h200.csv"], "tables", own_kernels()[kernel], name))
    lines.append(_baseline("tables left out", "tables", between_shapes(), "kernels: products"))
    theirs = [float(row["other_predicted_ms"]) / float(row["measured_ms"]) for row, _ in simumax]
    lines.append(_baseline("SimuMax", "SimuMax itself", theirs))
    return "\n".join([HEADER, *map(_judged, lines), ""])


def _lines(source: str, by: str, rows: Held) -> list[str]:
    found = families([row for row, _ in rows], [prediction for _, prediction in rows])
    return [
        f"{source},{by},{family},{its['rows']:.0f},"
        + ",".join(f"{its[key]:.1f} %" for key in ("median", "p90", "worst"))
        + (f",{its['inside']:.1f} %" if family.endswith("time") else ",")
        for family, its in found.items()
    ]


def _baseline(source: str, by: str, ratios: list[float], family: str = "all: time") -> str:
    """A row of a family; ratios: predicted over measured."""
    errors = sorted((100 * (ratio - 1) for ratio in ratios), key=abs)
    places = (errors[len(errors) // 2], errors[min(len(errors) - 1, int(0.9 * len(errors)))])
    shown = [*(f"{abs(error):.1f} %" for error in places), f"{errors[-1]:.1f} %"]
    return f"{source},{by},{family},{len(errors)},{','.join(shown)},"
