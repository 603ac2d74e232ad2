"""Draws a prediction as one page: stages over time, where time and memory go, what simple rules would say."""

from collections.abc import Sequence

from common.charts.chart import Axis, Bar, Bars, Chart, Spans
from common.charts.page import document, figure, safe
from simulation.analytical.schedules import INTERLEAVED, ONE_F_ONE_B, Pass, order, ready_at
from simulation.predict import certainty
from simulation.predict.against import Measured
from simulation.predict.iteration import Prediction

FORWARD, BACKWARD, AFTER = "forward", "backward", "gradients, weights and optimizer"
FORWARD_SHARE = 1 / 3  # of a stage's time: two of three products are backward
MOST_ROUNDS = 4  # of the pipeline's stages in micro-batches


def html(found: Prediction, text: str, measured: Sequence[Measured] = ()) -> str:
    """The page; `text` is the summary, `measured` what a run took."""
    title = f"{found.job.name} on {found.job.gpus} {found.machine.gpu}"
    said = "".join(f"<p>{safe(line)}</p>" for line in text.splitlines())
    charts: list[Chart] = [
        timeline(found),
        _breakdown(found),
        _memory(found),
        *_stages(found),
        _beside(found, measured),
    ]
    return document(title, f"<h1>{safe(title)}</h1>{said}\n" + "\n".join(figure(chart) for chart in charts))


def timeline(found: Prediction) -> Spans:
    """When each stage computes, in ms, of the first micro-batches; then what comes after the last one."""
    job = found.job
    batches = min(job.micro_batches, max(MOST_ROUNDS * job.pp, MOST_ROUNDS))
    schedule = INTERLEAVED if job.vpp > 1 and batches % job.pp == 0 else ONE_F_ONE_B
    chunks = job.vpp if schedule == INTERLEAVED else 1
    forward, backward = (list[tuple[int, float, float]]() for _ in range(2))
    for stage, one, begin, end in _passes(found, schedule, batches, chunks):
        (forward if one.forward else backward).append((stage, begin, end))
    ends = max(end for _, _, end in backward)
    after = found.classes.get("dp", 0.0) + found.classes.get("optimizer", 0.0)
    left = f" The first {batches} of {job.micro_batches} micro-batches." if batches < job.micro_batches else ""
    return Spans(
        title="What the stages do",
        sentence=f"White is waiting.{left} What data parallelism sends beside compute is not drawn.",
        x=Axis(name="ms", end=ends + after),
        rows=[f"stage {stage}" for stage in range(job.pp)],
        kinds=[FORWARD, BACKWARD, AFTER],
        spans=[forward, backward, [(stage, ends, ends + after) for stage in range(job.pp)]],
    )


def _passes(found: Prediction, schedule: str, batches: int, chunks: int) -> list[tuple[int, Pass, float, float]]:
    """Stage, pass, begin and end in ms of every pass."""
    stages = found.stages_ms
    todo = [list(order(schedule, len(stages), stage, batches, chunks)) for stage in range(len(stages))]
    ends: dict[tuple[bool, int, int, int], float] = {}
    free, places, done = [0.0] * len(stages), [0] * len(stages), []
    while any(place < len(its) for place, its in zip(places, todo, strict=True)):
        for stage, ms in enumerate(stages):
            while places[stage] < len(todo[stage]):
                one = todo[stage][places[stage]]
                begin = ready_at(one, stage, len(stages), chunks, ends, 0.0)
                if begin is None:
                    break
                begin = max(begin, free[stage])
                free[stage] = begin + ms / chunks * (FORWARD_SHARE if one.forward else 1 - FORWARD_SHARE)
                ends[one.forward, one.micro_batch, one.chunk, stage] = free[stage]
                done.append((stage, one, begin, free[stage]))
                places[stage] += 1
    return done


def _breakdown(found: Prediction) -> Bars:
    bars = [
        Bar(name=key, value=ms, text=f"{ms:.1f} ms ({100 * ms / found.ms:.1f} %)") for key, ms in found.classes.items()
    ]
    beside = ", ".join(f"{key} {ms:.1f} ms" for key, ms in found.hidden.items())
    sentence = (
        f"On the slowest stage; of communication what compute does not hide{f' (beside it: {beside})' * bool(beside)}."
    )
    return Bars(title="Where an iteration's time goes", sentence=sentence, unit="ms", bars=bars, one_hue=True)


def _memory(found: Prediction) -> Bars:
    held = found.memory
    parts = {
        "weights": held.weights, "gradients": held.gradients, "optimizer": held.optimizer,
        "activations": held.activations, "of a layer's backward pass": held.transient,
        "fragments and other streams' pieces": held.reserved - held.allocated,
    }  # fmt: skip
    bars = [Bar(name=key, value=gib, text=f"{gib:.1f} GiB") for key, gib in parts.items()]
    sentence = f"On stage {held.stage}, the fullest: {held.reserved:.1f} of {found.machine.memory_GiB:g} GiB."
    return Bars(title="Where the memory goes", sentence=sentence, unit="GiB", bars=bars, one_hue=True)


def _stages(found: Prediction) -> list[Bars]:
    """The memory of each stage of a pipeline."""
    if found.job.pp == 1:
        return []
    bars = [
        Bar(name=f"stage {each.stage}", value=each.reserved, text=f"{each.reserved:.1f} GiB")
        for each in found.stages_memory
    ]
    return [Bars(title="What each stage reserves", unit="GiB", bars=bars, one_hue=True)]


def _beside(found: Prediction, measured: Sequence[Measured]) -> Bars:
    sure = certainty.interval(found)
    bars = [Bar(name="predicted", value=found.ms, text=f"{found.ms:.1f} ms ({sure.low:.1f} to {sure.high:.1f})")]
    bars += [Bar(name=f"measured: {its.case}", value=its.ms, text=f"{its.ms:.1f} ms", tone="good") for its in measured]
    for name, ms in (
        (f"one MFU of {certainty.FLAT_MFU:.0%}", certainty.flat_mfu_ms(found)),
        (f"products at {certainty.FLAT_EFFICIENCY:.0%} of the peak", certainty.flat_efficiency_ms(found)),
    ):
        bars.append(Bar(name=name, value=ms, text=f"{ms:.1f} ms", tone="muted"))
    return Bars(title="What simple rules would say", unit="ms", bars=bars)
