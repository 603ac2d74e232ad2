"""Charts a round of a case from its record and curves: throughput and loss by step, rank skew, phases, baseline."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from common.charts.chart import Area, Axis, Bar, Bars, Chart, Curves, Line, Panel, Series, thinned
from common.units import parse_sizes
from protocol.default_outcome import is_measured
from run_benchmarks.console.language import ENGLISH, Words
from run_benchmarks.results.records import CaseRecord, RoundRecord
from run_benchmarks.results.step_curves import STEPS_UNIT, StepCurves

MOST_ROWS = 40
AT_SIZE = re.compile(r"(?P<what>.+) at (?P<size>[0-9.]+[KMGT]?)$")


def round_charts(record: RoundRecord, steps: StepCurves | None, words: Words = ENGLISH) -> Iterator[Chart]:
    """The charts that every benchmark's round may have; each only where it was measured."""
    host_of = {rank: node.host for node in record.nodes for rank in node.ranks}
    yield from _by_step(record, steps, host_of, words)
    if steps is not None and len(steps.late_ms) > 2 and any(steps.late_ms.values()):  # of two, none is the median
        yield _skew(steps, host_of, words)
    if record.phase_seconds:
        yield _phases(record, words)


def _by_step(
    record: RoundRecord, steps: StepCurves | None, host_of: Mapping[int, str], words: Words
) -> Iterator[Curves]:
    panels, sentence = [], ""
    if steps is not None and steps.unit != STEPS_UNIT:
        sentence = words(
            "The slowest of {n} ranks is {rank}.", n=len(steps.late_ms), rank=_rank(steps.slowest, host_of, words)
        )
        panels.append(_throughput(steps, words))
    numbered = [(step["step"], step["loss"]) for step in record.steps if is_step(step, "loss")]
    if len(numbered) > 1:
        x, (y,) = thinned([at for at, _ in numbered], [loss for _, loss in numbered], most=600)
        panels.append(Panel(y=Axis(name="loss"), series=[Series(name="loss", x=x, y=y)]))
    if not panels or not any(each.series[0].x for each in panels):
        return
    areas = list(_warm_up(record, panels, words))
    one = words("{what} by step", what=panels[0].y.name)
    title = words("Throughput and loss by step") if len(panels) > 1 else one
    yield Curves(title=title, sentence=sentence, x=Axis(name=words("step")), panels=panels, areas=areas)


def _warm_up(record: RoundRecord, panels: Sequence[Panel], words: Words) -> Iterator[Area]:
    """The steps before the steady state, if there is one."""
    warm_up = record.metrics.get("warmup_steps")
    first = min(float(x) for panel in panels for x in panel.series[0].x or () if x is not None)
    if is_measured(warm_up) and warm_up > first:
        yield Area(name=words("warm-up"), start=first, end=float(warm_up))


def _throughput(steps: StepCurves, words: Words) -> Panel:
    """The rate of the median rank, of several also their range and the slowest one."""
    series = [Series(name=words("median rank"), x=steps.steps, y=steps.middle)]
    if len(steps.late_ms) > 1:
        series.append(Series(name=words("5 to 95 %"), x=steps.steps, style="band", low=steps.low, high=steps.high))
        name = words("slowest: rank {n}", n=steps.slowest)
        series.append(Series(name=name, x=steps.steps, y=steps.slowest_rate, tone="bad"))
    return Panel(y=Axis(name=steps.unit), series=series)


def is_step(step: Mapping[str, Any], name: str) -> bool:
    """Whether a step has its number and a number of that name."""
    return is_measured(step.get("step")) and is_measured(step.get(name))


def _rank(rank: int, host_of: Mapping[int, str], words: Words) -> str:
    if rank not in host_of:
        return words("rank {n}", n=rank)
    return words("rank {n} on {host}", n=rank, host=host_of[rank])


def _skew(steps: StepCurves, host_of: Mapping[int, str], words: Words) -> Curves:
    latest = max(steps.late_ms, key=lambda rank: steps.late_ms[rank])
    shown = dict(sorted(steps.late_ms.items(), key=lambda item: -abs(item[1]))[:1000])
    ranks = sorted(shown)
    return Curves(
        title=words("Rank skew: how much later than the median rank a step ends"),
        sentence=words(
            "The latest is {rank}: {ms} ms, by the hosts' clocks.",
            rank=_rank(latest, host_of, words),
            ms=f"{steps.late_ms[latest]:.3g}",
        ),
        x=Axis(name=words("rank")),
        xs=ranks,
        panels=[
            Panel(
                y=Axis(name=words("ms behind the median")),
                series=[
                    Series(name="", style="points", y=[shown[rank] for rank in ranks]),
                    Series(
                        name=words("rank {n}", n=latest),
                        style="points",
                        x=[latest],
                        y=[steps.late_ms[latest]],
                        tone="bad",
                    ),
                ],
                lines=[Line(name=words("median rank"), value=0.0)],
            )
        ],
    )


def _phases(record: RoundRecord, words: Words) -> Bars:
    seconds = record.phase_seconds
    bars = [Bar(name=name, value=value, text=f"{value:.4g} s") for name, value in seconds.items()]
    return Bars(title=words("Phases of the round"), unit="s", bars=bars, one_hue=True, format="seconds")


def baseline_chart(case: CaseRecord, words: Words = ENGLISH) -> Chart | None:
    """How good each measurement is in percent of the baseline: over sizes where they have some, else as bars."""
    if case.baseline is None or not case.baseline.rows:
        return None
    title = words("Percent of the baseline {file}", file=case.baseline.file)
    by_size: dict[str, list[tuple[int, float]]] = {}
    for row in case.baseline.rows:
        if (found := AT_SIZE.match(row.what)) is not None and (size := _size(found["size"])):
            by_size.setdefault(found["what"], []).append((size, 100 * row.ratio))
    sweeps = {what: sorted(points) for what, points in by_size.items() if len(points) > 1}
    if sweeps:
        worst = sorted(sweeps, key=lambda what: min(value for _, value in sweeps[what]))[:6]
        series = [_points(what, sweeps[what]) for what in worst]
        lines = [Line(name=words("baseline"), value=100.0), *_tolerance(case.baseline.percent)]
        panel = Panel(y=Axis(name=words("% of the baseline")), series=series, lines=lines)
        sentence = words("A linear scale: what two log axes hide. Above 100 is better.")
        return Curves(title=title, sentence=sentence, x=Axis(name="bytes", kind="log", format="bytes"), panels=[panel])
    rows = sorted(case.baseline.rows, key=lambda row: row.ratio)[:MOST_ROWS]
    bars = [
        Bar(
            name=row.what,
            value=100 * row.ratio,
            text=f"{100 * row.ratio:.1f} % ({row.measured:.4g} {row.unit})",
            tone="bad" if row.below else "good",
        )
        for row in rows
    ]
    sentence, count = words("Above 100 is better."), len(case.baseline.rows)
    if count > len(bars):
        sentence = f"{sentence} {words('The worst {n} of {total}.', n=len(bars), total=count)}"
    return Bars(title=title, sentence=sentence, unit=words("% of the baseline"), bars=bars)


def _tolerance(percent: float) -> list[Line]:
    return [Line(name=f"- {percent:g} %", value=100 - percent)] if percent < 50 else []


def _points(what: str, points: Sequence[tuple[int, float]]) -> Series:
    x, (y,) = thinned([size for size, _ in points], [value for _, value in points])
    return Series(name=what, x=x, y=y)


def _size(text: str) -> int:
    try:
        return parse_sizes(text)[0]
    except ValueError:
        return 0
