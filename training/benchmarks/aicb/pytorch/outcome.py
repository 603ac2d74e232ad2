"""Outcome of AICB workloads: the iteration's time on the slowest rank, and what each class of operations takes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from common.charts.chart import Axis, Bar, Bars, Curves, Panel, Series, Spans, thinned
from common.statistics import percentile
from common.units import format_size
from protocol.claims import CLOCK_SECONDS, CLOCK_TOLERANCE, ROUNDING, LoggedRun, departures, outside, process_seconds
from protocol.default_outcome import DefaultOutcome, is_measured
from protocol.outcome import Block, MeasuredCase, MeasuredRound, Metric, Paragraph, Picture, Table, TableCell
from protocol.perflog import Event
from workloads.oplog.measured import FEW_BYTES, bandwidths_of
from workloads.rows.ops import CommType

_HOW = "the iterations of rank 0 and the time of all"
_ROWS = "the iterations in its log"


def contradictions(log: LoggedRun, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Claims that the values of STEP_END contradict, a sentence with both for each.

    An iteration of the slowest rank is no shorter than that of rank 0, whose STEP_END has it, and one of any rank is
    between its INIT_END and its FINISHED. Exposed and hidden times, and the classes of operations, are those of rank 0.
    """
    finished, own = log.value(Event.FINISHED), sorted(float(row["iteration_ms"]) for row in rows)
    most = 1000 * (log.seconds(Event.INIT_END, Event.FINISHED) * (1 + CLOCK_TOLERANCE) + CLOCK_SECONDS)
    count = len(own)
    found = [
        *process_seconds(log),
        *outside("iterations", finished.get("iterations"), count, count, "its STEP_END"),
        *outside("init_ms", finished.get("init_ms"), 0.0, most, _HOW),
    ]
    if not own:
        return found
    low = {f"p{share}": percentile(own, share, "linear") for share in (50, 90, 99)}
    low |= {"min": own[0], "max": own[-1], "mean": sum(own) / count}
    for name, least in low.items():
        claimed = finished.get(f"iteration_{name}_ms")
        found += outside(f"iteration_{name}_ms", claimed, least * (1 - ROUNDING), most, _HOW)
    means = {name: sum(float(row[name]) for row in rows) / count for name in ("exposed_ms", "hidden_ms")}
    return [*found, *departures(log, means, _ROWS), *_of_classes(log, rows)]


def _of_classes(log: LoggedRun, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on the classes of FINISHED and its best bandwidth."""
    names = ("type", "group", "ranks", "bytes")
    classes = [dict(zip(names, each, strict=True)) for each in log.value(Event.TRAIN_START)["classes"]]
    of_class: dict[int, list[list[float]]] = {}
    for row in rows:
        for number, *figures in row["classes"]:
            of_class.setdefault(int(number), []).append(figures)
    known = {tuple(classes[number].values()): (classes[number], each) for number, each in of_class.items()}
    claimed = log.value(Event.FINISHED).get("classes", ())
    for each in claimed:
        own = known.get(tuple(each[name] for name in names))
        if own is None:
            yield f"classes have {' '.join(str(each[name]) for name in names)} by FINISHED, no such ones by {_ROWS}"
        else:
            yield from _of_class(each, *own)
    if known and not claimed:
        yield f"classes are none by FINISHED, {len(known)} by {_ROWS}"
    rates = [_rates(kind, figures) for kind, figures in known.values() if kind["bytes"] >= FEW_BYTES]
    low, high = (max((each[end] for each in rates), default=0.0) for end in (0, 1))
    best = log.value(Event.FINISHED).get("max_busbw_GBps", 0.0)
    yield from outside("max_busbw_GBps", best, low * (1 - ROUNDING), high * (1 + ROUNDING), _ROWS)


def _of_class(claimed: Mapping[str, Any], kind: Mapping[str, Any], figures: Sequence[Sequence[float]]) -> Iterator[str]:
    """Sentences on one class: its median lies between those of its iterations, and no time exceeds the longest."""
    what = " ".join(map(str, kind.values()))
    counts, totals, middles, longest = (sorted(column) for column in zip(*figures, strict=True))
    low, high = _rates(kind, figures)
    bounds = {
        "count": (sum(counts), sum(counts)),
        "total_ms": (sum(totals), sum(totals)),
        "p50_ms": (middles[0], middles[-1]),
        "p99_ms": (middles[0], longest[-1]),
        "busbw_GBps": (low, high),
    }
    for name, (least, most) in bounds.items():
        limits = least * (1 - ROUNDING), most * (1 + ROUNDING)
        yield from (f"{what}: {sentence}" for sentence in outside(name, claimed[name], *limits, _ROWS))


def _rates(kind: Mapping[str, Any], figures: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The bus bandwidths, GB/s, of the longest and the shortest median of an iteration."""
    middles = [middle for _, _, middle, _ in figures]
    low, high = (
        bandwidths_of(CommType[kind["type"]], int(kind["bytes"]), ms, int(kind["ranks"]))[1]
        for ms in (max(middles), min(middles))
    )
    return low, high


CONSOLE_CLASSES, SHOWN_CLASSES = 12, 20
_SLOWEST = "of an iteration on the slowest rank"
_METRICS = (
    Metric(name="iteration_p50_ms", unit="ms", better="lower", meaning=f"median time {_SLOWEST}", is_key=True),
    Metric(name="iteration_p99_ms", unit="ms", better="lower", meaning=f"99th percentile of the time {_SLOWEST}"),
    Metric(name="iteration_mean_ms", unit="ms", better="lower", meaning=f"mean time {_SLOWEST}"),
    Metric(name="max_busbw_GBps", unit="GB/s", better="higher", meaning="best median of a class of 1 MiB or more"),
    Metric(name="exposed_ms", unit="ms", better="lower", meaning="communication that rank 0 waits for, an iteration"),
    Metric(name="init_ms", unit="ms", better="lower", meaning="the workload's set-up", is_reference=False),
    Metric(name="e2e_time", unit="s", better="lower", is_reference=False),
)
_COLUMNS = ("operation", "group", "ranks", "bytes", "count", "total ms", "p50 ms", "p99 ms", "busbw GB/s")


class AicbOutcome(DefaultOutcome):
    """Outcome of a replayed workload: its iterations, and the classes of operations that take longest."""

    # Settings that change what is shown, not what is measured.
    incidental = ("print_ops", "units", "check")

    def contradictions(self, case: MeasuredCase, log: LoggedRun) -> Sequence[str]:
        """Claims of FINISHED that the rows of its log contradict."""
        return process_seconds(log) if log.rows is None else contradictions(log, log.rows)

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """The classes of operations that take longest."""
        return _classes(f"{case.name} round {measured.number}", measured, CONSOLE_CLASSES)

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """The run in a sentence, the classes of operations, and every iteration."""
        blocks: list[Block] = [Paragraph(text=sentence) for sentence in _sentences(measured.metrics)]
        tables = _classes("operations of the iterations on rank 0", measured, None)
        blocks += [Picture(chart=_breakdown(table)) for table in tables]
        blocks += tables
        blocks += _critical_path(measured.metrics.get("critical_path"))
        blocks += _slowest(measured.metrics.get("slowest_iteration"))
        blocks += _iterations(measured.steps)
        return blocks

    def probe(self, config: Mapping[str, Any]) -> Mapping[str, JsonValue] | None:
        """None: a workload has one size, so that it cannot be made a quick test."""
        return None


def _sentences(metrics: Mapping[str, Any]) -> list[str]:
    found = []
    scale = metrics.get("scale")
    if isinstance(scale, str) and scale != "1":
        found.append(f"All sizes are {scale} of the workload's: the pattern is the workload's, the times are not.")
    exposed, hidden = metrics.get("exposed_ms"), metrics.get("hidden_ms")
    if is_measured(exposed) and is_measured(hidden):
        found.append(
            f"Timing {metrics.get('timing')!s:.20}: an iteration of rank 0 waits {exposed:.4g} ms for communication;"
            f" {hidden:.4g} ms are hidden behind other work."
        )
    return found


def _critical_path(found: object) -> list[Block]:
    """The parts of the critical path; nothing for a value of another form."""
    parts = found.get("parts") if isinstance(found, dict) else None
    rows = tuple(
        (TableCell(value=str(part.get("what"))[:80]), TableCell(value=part["ms"]), TableCell(value=part["percent"]))
        for part in (parts if isinstance(parts, list) else [])
        if isinstance(part, dict) and is_measured(part.get("ms")) and is_measured(part.get("percent"))
    )
    title = "critical path of the median iteration over all ranks"
    bars = [
        Bar(name=str(what.value), value=float(ms.value), text=f"{percent.value:.3g} %") for what, ms, percent in rows
    ]
    return [Picture(chart=Bars(title=title, unit="ms", bars=bars, one_hue=True))] if rows else []


def _slowest(found: object) -> list[Block]:
    """The activities of each rank in the slowest iteration; nothing for a value of another form."""
    if not isinstance(found, dict) or not is_measured(found.get("ms")):
        return []
    ranks, kinds = found.get("ranks"), found.get("spans")
    if not isinstance(ranks, list) or not isinstance(kinds, dict):
        return []
    spans = {
        str(name)[:80]: [each for each in of if _is_span(each, len(ranks))]
        for name, of in kinds.items()
        if isinstance(of, list)
    }
    chart = Spans(
        title=f"Slowest iteration: {found.get('iteration')!s:.20}",
        x=Axis(name="ms", end=found["ms"]),
        rows=[f"rank {rank!s:.20}" for rank in ranks],
        kinds=[*spans],
        spans=[[(row, begin, end) for row, begin, end in of] for of in spans.values()],
    )
    return [Picture(chart=chart)] if any(spans.values()) else []


def _is_span(found: object, rows: int) -> bool:
    """Whether it is a row, a begin and an end."""
    if not isinstance(found, list) or len(found) != 3 or not all(map(is_measured, found)):
        return False
    return found[0] in range(rows)


def _breakdown(table: Table) -> Bars:
    """Where the time of rank 0's operations goes, by class."""
    bars = []
    for kind, group, _, size, count, total, *_ in table.rows[:SHOWN_CLASSES]:
        name = f"{kind.value} {group.value}, {format_size(int(float(size.value)))}"
        bars.append(Bar(name=name, value=float(total.value), text=f"{float(total.value):.4g} ms, {count.value} times"))
    return Bars(title="Time of the operations by class", unit="ms", bars=bars, one_hue=True)


def _iterations(steps: Sequence[Mapping[str, Any]]) -> list[Block]:
    """The iterations of rank 0 as a line; nothing for less than two."""
    found = [
        (step["step"], step["iteration_ms"])
        for step in steps
        if is_measured(step.get("step")) and is_measured(step.get("iteration_ms"))
    ]
    if len(found) < 2:
        return []
    x, (y,) = thinned([at for at, _ in found], [value for _, value in found])
    panel = Panel(y=Axis(name="ms", start=0.0), series=[Series(name="iteration", x=x, y=y)])
    return [Picture(chart=Curves(title="Iterations of rank 0", x=Axis(name="iteration"), panels=[panel]))]


def _classes(title: str, measured: MeasuredRound, most: int | None) -> list[Table]:
    classes = measured.metrics.get("classes")
    rows = [row for each in classes[:most] if (row := _row(each)) is not None] if isinstance(classes, list) else []
    return [Table(title=title, columns=_COLUMNS, rows=tuple(rows))] if rows else []


def _row(each: Any) -> tuple[TableCell, ...] | None:
    """The table row of a class of operations; None where `each` has not the form of a class."""
    names = ("ranks", "bytes", "count", "total_ms", "p50_ms", "p99_ms", "busbw_GBps")
    if not isinstance(each, dict) or not all(is_measured(each.get(name)) for name in names):
        return None
    texts = (str(each.get("type"))[:40], str(each.get("group"))[:40])
    return (*(TableCell(value=text) for text in texts), *(TableCell(value=each[name]) for name in names))


OUTCOME = AicbOutcome(_METRICS)
