"""Writes passes of inference over batch and length: rows of a CSV, a page of times to the first token and per token."""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from common.charts.chart import Axis, Curves, Panel, Series
from common.charts.page import document, figure, safe
from simulation.predict.inference import Pass, what_takes
from simulation.predict.sources import sent_sentence, sentence

_COLUMNS = (
    "name", "gpu", "gpus", "precision", "tp", "pp", "ep", "phase", "mbs", "seq", "predicted_ms",
    "predicted_tokens_s_gpu", "predicted_gib", "fits", "extrapolated", "predicted_kernels", "predicted_collectives",
)  # fmt: skip


def csv_text(found: Sequence[Pass]) -> str:
    """A row of each pass: the job, the phase, ms, tokens a second and GPU, GiB of weights, keys and values."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for each in found:
        job = each.job
        writer.writerow(
            [
                job.name, each.machine.gpu, each.gpus, job.precision, job.tp, job.pp, job.ep, each.phase, job.mbs,
                job.seq, f"{each.ms:.4f}", f"{each.tokens_per_second_and_gpu:.1f}", f"{each.memory:.3f}",
                int(each.fits), "; ".join(each.beyond), sentence(each.kernels), sent_sentence(each.sent),
            ]
        )  # fmt: skip
    return out.getvalue()


def html(found: Sequence[Pass], text: str) -> str:
    """The page: of each phase a chart over the length with a line a batch; `text` is the summary."""
    title = f"{found[0].job.name}: inference on {found[0].gpus} {found[0].machine.gpu}"
    phases = dict.fromkeys(each.phase for each in found)
    figures = "\n".join(figure(_curves([each for each in found if each.phase == phase])) for phase in phases)
    lines = "\n".join(safe(line) for line in text.splitlines())
    return document(title, f"<h1>{safe(title)}</h1>\n{figures}\n<pre>{lines}</pre>")


def _curves(found: Sequence[Pass]) -> Curves:
    series = []
    for batch in dict.fromkeys(each.job.mbs for each in found):
        its = sorted((each.job.seq, each.ms) for each in found if each.job.mbs == batch)
        lengths, times = [length for length, _ in its], [ms for _, ms in its]
        style: Literal["line", "points"] = "line" if len(its) > 1 else "points"
        series.append(Series(name=f"batch {batch}", x=lengths, y=times, style=style))
    what = what_takes(found[0].phase)
    panel = Panel(y=Axis(name=f"ms {what}", kind="log"), series=series)
    return Curves(title=f"Time {what}", x=Axis(name="tokens of a sequence", kind="log"), panels=[panel])
