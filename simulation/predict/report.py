"""Shows predictions: a job's in text and as data, many jobs' as rows of a CSV with their errors by family."""

import csv
import io
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from common.summary import JsonValue
from simulation.predict import certainty, sources
from simulation.predict.iteration import Prediction
from workloads.job.memory import Memory
from workloads.job.training_job import TrainingJob
from workloads.job.weights import parameters

ADDED = (
    "predicted_ms", "predicted_low_ms", "predicted_high_ms", "predicted_alloc_gib", "predicted_reserved_gib",
    "predicted_tokens_s_gpu", "predicted_mfu", "flat_mfu_ms", "flat_efficiency_ms", "predicted_source",
    "predicted_kernels", "predicted_collectives", "predicted_memory_source", "predicted_notes",
)  # fmt: skip


def added_cells(found: Prediction) -> dict[str, str]:
    """The cells that a row gets: its columns are ADDED."""
    sure, held = certainty.interval(found), found.memory
    source = found.machine.factors.source.get(found.job.precision, "")
    values = (
        f"{found.ms:.2f}", f"{sure.low:.2f}", f"{sure.high:.2f}", f"{held.allocated:.3f}", f"{held.reserved:.3f}",
        f"{found.tokens_per_second_and_gpu:.1f}", f"{found.mfu:.4f}", f"{certainty.flat_mfu_ms(found):.2f}",
        f"{certainty.flat_efficiency_ms(found):.2f}", f"tables of {found.machine.gpu}; {source}",
        sources.sentence(sources.kernels_of(found)), sources.sent_sentence(found.sent),
        certainty.memory_source(found.job), "; ".join(sure.notes),
    )  # fmt: skip
    return dict(zip(ADDED, values, strict=True))


def csv_text(rows: Sequence[Mapping[str, str]], predictions: Sequence[Prediction]) -> str:
    """The rows as they came, with what was predicted of each."""
    out = io.StringIO(newline="")
    names = [key for key in rows[0] if key and key not in ADDED]
    writer = csv.DictWriter(out, [*names, *ADDED], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row, found in zip(rows, predictions, strict=True):
        writer.writerow({**row, **added_cells(found)})
    return out.getvalue()


def measured_ms(row: Mapping[str, str], job: TrainingJob) -> float:
    """Milliseconds that the row says were measured, also as tokens a second and GPU; 0: it says none."""
    if text := (row.get("measured_ms") or "").strip():
        return float(text)
    rate = (row.get("measured_tokens_s_gpu") or "").strip()
    return job.tokens_per_iteration / job.gpus / float(rate) * 1e3 if rate else 0.0


def families(rows: Sequence[Mapping[str, str]], predictions: Sequence[Prediction]) -> dict[str, dict[str, float]]:
    """Errors in % by family, of the rows that have a measurement: median, 90th percentile, worst; and the coverage."""
    errors: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row, found in zip(rows, predictions, strict=True):
        family = row.get("family") or "all"
        if ms := measured_ms(row, found.job):
            sure = certainty.interval(found)
            errors[f"{family}: time"].append((found.ms / ms - 1, sure.low <= ms <= sure.high))
        for key, value in (("alloc", found.memory.allocated), ("reserved", found.memory.reserved)):
            if gib := (row.get(f"measured_{key}_gib") or "").strip():
                of_ranks = row.get("measured_alloc_gib_by_rank", "").strip() if key == "alloc" else ""
                peak = max(map(float, (of_ranks or gib).split()))
                errors[f"{family}: {key} memory"].append((value / peak - 1, True))
    return {family: _statistics(found) for family, found in sorted(errors.items())}


def _statistics(found: list[tuple[float, bool]]) -> dict[str, float]:
    sizes = sorted(abs(error) for error, _ in found)
    worst = max((error for error, _ in found), key=abs)
    return {
        "rows": len(found),
        "median": round(100 * median(sizes), 2),
        "p90": round(100 * sizes[min(len(sizes) - 1, int(0.9 * len(sizes)))], 2),
        "worst": round(100 * worst, 2),
        "inside": round(100 * sum(inside for _, inside in found) / len(found), 1),
    }


def families_text(found: Mapping[str, Mapping[str, float]]) -> str:
    """The table of errors in %."""
    lines = [f"{'family':<28} {'rows':>4} {'median':>7} {'p90':>7} {'worst':>7}  in the interval"]
    for family, its in found.items():
        inside = f"{its['inside']:.0f} %" if family.endswith("time") else ""
        shares = " ".join(f"{its[key]:>6.1f}%" for key in ("median", "p90", "worst"))
        lines.append(f"{family:<28} {its['rows']:>4.0f} {shares}  {inside}".rstrip())
    return "\n".join(lines)


def text(found: Prediction) -> str:
    """A job's prediction for a person."""
    job, held, sure = found.job, found.memory, certainty.interval(found)
    fits = "fits" if held.reserved <= found.machine.memory_GiB else "DOES NOT FIT"
    lines = [
        f"{job.name} on {job.gpus} {found.machine.gpu}: tp {job.tp}, pp {job.pp} (vpp {job.vpp}), cp {job.cp}, "
        f"dp {job.dp}, ep {job.ep}; {job.micro_batches} micro-batches of {job.mbs} x {job.seq}, {job.precision}",
        f"iteration   {found.ms:.1f} ms ({sure.low:.1f} to {sure.high:.1f} in 9 of 10 cases)",
        f"throughput  {found.tokens_per_second_and_gpu:.0f} tokens/s/GPU, MFU {100 * found.mfu:.1f} %",
        f"memory      {held.allocated:.1f} GiB allocated, {held.reserved:.1f} reserved of {found.machine.memory_GiB:g}"
        f" on stage {held.stage}: {fits}",
        f"            weights {held.weights:.1f}, gradients {held.gradients:.1f}, optimizer {held.optimizer:.1f}, "
        f"activations {held.activations:.1f}, transient {held.transient:.1f}",
        f"            {certainty.memory_source(job)}",
        f"energy      at most {found.most_joules / 1e6:.3g} MJ an iteration, "
        f"{found.most_joules / job.tokens_per_iteration:.3g} J a token: each GPU at {found.machine.power_W:g} W",
        *_stages(found),
        "time on the slowest stage, exposed:",
        *(_class(found, key) for key in {**found.classes, **found.hidden}),
        f"one MFU of {certainty.FLAT_MFU:.0%} would say {certainty.flat_mfu_ms(found):.1f} ms, "
        f"products at {certainty.FLAT_EFFICIENCY:.0%} of the peak {certainty.flat_efficiency_ms(found):.1f} ms",
        f"sustained   {found.machine.factors.products[job.precision]:.2f} x the tables' products: "
        f"{found.machine.factors.source.get(job.precision, 'unknown')}",
        f"kernels     {sources.sentence(sources.kernels_of(found))}",
        *([f"collectives {sources.sent_sentence(found.sent)}"] if found.sent else []),
        *(f"note: {note}" for note in sure.notes),
    ]
    return "\n".join(lines)


def _class(found: Prediction, key: str) -> str:
    ms, hidden = found.classes.get(key, 0.0), found.hidden.get(key, 0.0)
    beside = f"  and {hidden:.1f} ms beside compute" if hidden else ""
    return f"  {key:<14} {ms:>10.1f} ms  {100 * ms / found.ms:>5.1f} %{beside}"


def _stages(found: Prediction) -> list[str]:
    """The stages of a pipeline, side by side."""
    if found.job.pp == 1:
        return []
    times = " ".join(f"{ms:.1f}" for ms in found.stages_ms)
    held = " ".join(f"{each.reserved:.1f}" for each in found.stages_memory)
    return [f"stages      a micro-batch takes {times} ms", f"            reserved {held} GiB"]


def _gib(held: Memory) -> dict[str, JsonValue]:
    return {
        "stage": held.stage, "weights": held.weights, "gradients": held.gradients, "optimizer": held.optimizer,
        "activations": held.activations, "transient": held.transient, "allocated": held.allocated,
        "reserved": held.reserved,
    }  # fmt: skip


def data(found: Prediction) -> dict[str, JsonValue]:
    """A job's prediction for a program."""
    held, sure, its = found.memory, certainty.interval(found), sources.kernels_of(found)
    return {
        "name": found.job.name, "gpu": found.machine.gpu, "gpus": found.job.gpus, "predicted_ms": found.ms,
        "low_ms": sure.low, "high_ms": sure.high, "notes": list(sure.notes),
        "tokens_per_second_and_gpu": found.tokens_per_second_and_gpu, "mfu": found.mfu,
        "classes_ms": dict(found.classes), "hidden_ms": dict(found.hidden), "parameters": parameters(found.job),
        "model_flops": found.flops, "most_joules": found.most_joules, "power_W": found.machine.power_W,
        "stages": [
            {"ms": ms, **_gib(its)} for ms, its in zip(found.stages_ms, found.stages_memory, strict=True)
        ],
        "memory_gib": {
            **_gib(held), "capacity": found.machine.memory_GiB, "source": certainty.memory_source(found.job),
        },
        "fits": held.reserved <= found.machine.memory_GiB,
        "kernels": [each._asdict() for each in its],
        "kernels_percent": sources.shares(its), "collectives": [each._asdict() for each in found.sent],
        "flat_mfu_ms": certainty.flat_mfu_ms(found), "flat_efficiency_ms": certainty.flat_efficiency_ms(found),
        "factors": {
            "products": found.machine.factors.products[found.job.precision],
            "attention": found.machine.factors.attention, "dispatch": found.machine.factors.dispatch,
            "source": found.machine.factors.source.get(found.job.precision, ""),
        },
    }  # fmt: skip
