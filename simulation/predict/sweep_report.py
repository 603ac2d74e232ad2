"""Shows what a sweep found: as text and data, as rows of a CSV, as a page with a Pareto plot."""

import csv
import io
from collections.abc import Mapping, Sequence
from textwrap import wrap

from common.charts.chart import Axis, Bar, Bars, Curves, Panel, Series
from common.charts.page import document, figure, safe
from common.summary import JsonValue, Summary, counted
from simulation.predict.iteration import Prediction, model_flops
from simulation.predict.layouts import Layout, Ranking, second_behind
from simulation.predict.machine import Machine
from simulation.predict.ready_configs import megatron_arguments, torchtitan_settings
from workloads.job.rules import past_positions
from workloads.job.training_job import TrainingJob

_KEYS = ("gpu", "gpus", "precision", "seq", "mbs", "micro_batches", "tp", "pp", "vpp", "cp", "dp", "ep", "recompute")
_COLUMNS = (
    "name", *_KEYS, "fsdp", "distributed_optimizer", "framework", "attention", "predicted_ms", "predicted_reserved_gib",
    "predicted_tokens_s_gpu", "predicted_mfu",
)  # fmt: skip
MOST_POINTS = 1000
LEAST_MS = 0.05  # of a difference that is told


def csv_text(found: Sequence[Layout], machine: Machine) -> str:
    """All layouts that fit, the best first; predict --rows reads the columns of the layout again."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for job, estimate in found:
        rate = job.tokens_per_iteration / estimate.ms * 1e3 / job.gpus
        mfu = model_flops(job) / job.gpus / estimate.ms / 1e9 / machine.peak_tflops(job.precision)
        values = (f"{estimate.ms:.2f}", f"{estimate.reserved_gib:.3f}", f"{rate:.1f}", f"{mfu:.4f}")
        writer.writerow(_cells(job) | dict(zip(_COLUMNS[-4:], values, strict=True)))
    return out.getvalue()


def summary(found: Ranking, best: Sequence[Prediction], machine: Machine, price: float | None) -> Summary:
    """The table of the best, and why the others are not the first; `price` is of a GPU and hour, in any unit."""
    second = dict(second_behind(best[0], best[1])) if len(best) > 1 else {}
    return Summary(
        _text(found, best, machine, price),
        {
            "layouts": found.divided, "fitting": len(found.fitting), "gpus": best[0].job.gpus,
            "best": [_data(each, price) for each in best], "second_behind_ms": second,
            "megatron": megatron_arguments(best[0]), "torchtitan": torchtitan_settings(best[0]),
            "notes": [*_notes(best[0].job)],
        },
    )  # fmt: skip


def _text(found: Ranking, best: Sequence[Prediction], machine: Machine, price: float | None) -> str:
    head = f"{'tp':>3} {'pp':>3} {'vpp':>3} {'cp':>3} {'dp':>5} {'ep':>4} {'mbs':>3} {'recompute':<9} {'ms':>10} "
    lines = [
        f"{counted(len(found.fitting), 'layout')} of {found.divided} fit on {best[0].job.gpus} {machine.gpu}",
        f"{head}{'tokens/s/GPU':>12} {'MFU':>6} {'GiB':>6}{' cost/Mtoken' if price else ''}",
    ]
    for each in best:
        job = each.job
        cost = f" {_cost(each, price):>11.4f}" if price else ""
        lines.append(
            f"{job.tp:>3} {job.pp:>3} {job.vpp:>3} {job.cp:>3} {job.dp:>5} {job.ep:>4} {job.mbs:>3} {job.recompute:<9} "
            f"{each.ms:>10.1f} {each.tokens_per_second_and_gpu:>12.0f} {100 * each.mfu:>5.1f}% "
            f"{each.memory.reserved:>6.1f}{cost}{_states(job)}"
        )
    if len(best) > 1:
        lines.append(f"the second takes {best[1].ms - best[0].ms:.1f} ms longer: {_why(best[0], best[1])}")
    lines += [f"note: {note}" for note in _notes(best[0].job)]
    arguments = megatron_arguments(best[0]) or "its FSDP2 has no such layout"
    return "\n".join([*lines, "Megatron-LM:", *wrap(arguments, 110, break_on_hyphens=False)])


def _notes(job: TrainingJob) -> list[str]:
    """Notes that hold of all layouts."""
    return [past] if (past := past_positions(job.name, job.seq, job.positions)) else []


def _why(first: Prediction, other: Prediction) -> str:
    """The three classes of time that differ most."""
    longer = [(key, ms) for key, ms in second_behind(first, other).items() if abs(ms) >= LEAST_MS]
    return ", ".join(f"{key} {ms:+.1f} ms" for key, ms in longer[:3]) or "no class of time differs"


def _cost(found: Prediction, price: float | None) -> float:
    """Of a million tokens."""
    return (price or 0.0) / 3600 / found.tokens_per_second_and_gpu * 1e6


def _cells(job: TrainingJob) -> dict[str, str]:
    scaled = job.precision == "fp8" and job.scaling != "tensorwise"
    return {
        "name": job.name, **{key: str(getattr(job, key)) for key in _KEYS},
        "gpu": f"{job.gpu} HBM2e" if job.memory_GBps else job.gpu,
        "precision": f"{job.precision} {job.scaling}" if scaled else job.precision,
        **{key: str(int(getattr(job, key))) for key in ("fsdp", "distributed_optimizer")},
        "framework": "Megatron" if job.megatron else "", "attention": "cuDNN" if job.cudnn else "",
    }  # fmt: skip


def _data(found: Prediction, price: float | None) -> Mapping[str, JsonValue]:
    cost: dict[str, JsonValue] = {"cost_per_million_tokens": _cost(found, price)} if price else {}
    return {
        **_cells(found.job), "predicted_ms": found.ms, "reserved_gib": found.memory.reserved, "mfu": found.mfu,
        "tokens_per_second_and_gpu": found.tokens_per_second_and_gpu, **cost,
    }  # fmt: skip


def page(found: Ranking, best: Sequence[Prediction], text: str) -> str:
    """The page: memory against speed with the layouts that none beats in both, the best, and why each is behind."""
    job = best[0].job
    title = f"Layouts of {job.name} on {job.gpus} {best[0].machine.gpu}"
    said = "".join(f"<p>{safe(line)}</p>" for line in text.splitlines()[:1])
    bars = [Bar(name=_named(each.job), value=each.ms, text=f"{each.ms:.1f} ms") for each in best]
    rows = "".join(
        f"<tr><td>{safe(_named(each.job))}</td><td>{each.ms - best[0].ms:.1f}</td>"
        f"<td>{safe(_why(best[0], each))}</td></tr>"
        for each in best[1:]
    )
    charts = (_pareto(found), Bars(title="The best layouts", unit="ms", bars=bars, one_hue=True))
    return document(
        title,
        f"<h1>{safe(title)}</h1>{said}\n" + "\n".join(figure(chart) for chart in charts) + "<h2>Why not the first</h2>"
        f"<table><tr><th>layout</th><th>ms longer</th><th>what differs most</th></tr>{rows}</table>",
    )


def _named(job: TrainingJob) -> str:
    parts = {"tp": job.tp, "pp": job.pp, "vpp": job.vpp, "cp": job.cp, "dp": job.dp, "ep": job.ep, "mbs": job.mbs}
    again = "" if job.recompute == "none" else f" {job.recompute}"
    return " ".join(f"{key}{value}" for key, value in parts.items() if value > 1 or key == "mbs") + again + _states(job)


def _states(job: TrainingJob) -> str:
    """How the optimizer's states are divided, where it is not Megatron-LM's distributed optimizer that does."""
    return " fsdp" if job.fsdp else "" if job.distributed_optimizer else " zero 0"


def front(found: Sequence[Layout]) -> list[Layout]:
    """The layouts that no other beats in time and memory both; `found` is sorted by time."""
    best: list[Layout] = []
    for each in found:
        if not best or each.estimate.reserved_gib < best[-1].estimate.reserved_gib:
            best.append(each)
    return best


def _pareto(found: Ranking) -> Curves:
    edge = front(found.fitting)
    step = -(-len(found.fitting) // MOST_POINTS)
    x, y = _points(found.fitting[::step])
    front_x, front_y = _points(edge[-MOST_POINTS:][::-1])
    series = [
        Series(name="layouts that fit", x=x, y=y, style="points", tone="muted"),
        Series(name="none is faster with less memory", x=front_x, y=front_y, style="steps"),
    ]
    panel = Panel(y=Axis(name="tokens/s/GPU"), series=series)
    return Curves(title="Speed and memory", x=Axis(name="GiB reserved on the fullest rank"), panels=[panel])


def _points(found: Sequence[Layout]) -> tuple[list[float], list[float]]:
    return [each.estimate.reserved_gib for each in found], [each.tokens_per_second_and_gpu for each in found]
