"""Writes one page of an executed workload, or of a workload: timelines, shares, sizes, bandwidths, iterations, tables.

The page is one file without anything from elsewhere, and says so to the browser (Content-Security-Policy). What it
shows is aggregated here, so that a million operations take no more than a thousand. All text is escaped.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from common.charts.chart import Axis, Bar, Bars, Chart, Curves, Line, Panel, Series, Spans
from common.charts.page import document, figure, safe
from workloads.analysis import binned
from workloads.analysis.aicb_output import size_text
from workloads.analysis.merged import OpClass
from workloads.analysis.timeline import Reals, Timeline
from workloads.oplog.file import Numbers

MOST_CLASSES, MOST_ROWS, MOST_COLUMNS = 300, 200, 400
_SIZES = Axis(name="bytes", kind="log", format="bytes")


def html(seen: Timeline) -> str:
    """The whole page, under 5 MB for any input of up to MOST_RECORDS operations."""
    kinds, names = binned.kinds_of(seen)
    title = f"AICB {'run' if seen.timed else 'workload'}: {seen.title}"
    notes = [*seen.notes, *_left_out(seen), *_in_words(seen)]
    charts = [
        *_timelines(seen, kinds, names),
        *_iterations(seen),
        *_shares(seen, kinds, names),
        *_sizes(seen, kinds, names),
        *_bandwidths(seen, kinds, names),
    ]
    parts = [
        f"<h1>{safe(title)}</h1>",
        *(f"<p>{safe(note)}</p>" for note in notes),
        *map(figure, charts),
        *_classes(seen),
        *_first_rows(seen),
    ]
    return document(title, "\n".join(parts))


def _heading(text: str) -> str:
    return f"<h2>{safe(text)}</h2>"


def _timelines(seen: Timeline, kinds: Numbers, names: Sequence[str]) -> Iterator[Chart]:
    if not len(seen):
        return
    views = [("Timeline of all ranks", 0, int(seen.end.max()))]
    ordered = sorted(_iteration_times(seen).items(), key=lambda entry: entry[1][1] - entry[1][0])
    if seen.timed and len(ordered) > 1:
        for name, (number, (begin, finish)) in (
            ("Slowest iteration", ordered[-1]),
            ("Median iteration", ordered[(len(ordered) - 1) // 2]),
        ):
            views.append((f"{name}: {number}", begin, finish))
    unit = 1e6 if seen.timed else 1.0
    for title, begin, finish in views:
        ranks, spans = binned.spans(seen, kinds, len(names), float(begin), float(finish), unit)
        yield Spans(
            title=title,
            x=Axis(name="ms" if seen.timed else "operations", end=(finish - begin) / unit),
            rows=[f"rank {rank}" for rank in ranks],
            kinds=names,
            spans=spans,
        )


def _left_out(seen: Timeline) -> Iterator[str]:
    left_out = len(np.unique(seen.rank)) - binned.MOST_RANKS
    if left_out > 0:
        yield f"{left_out} ranks are not drawn."


def _iteration_times(seen: Timeline) -> dict[int, tuple[int, int]]:
    """First start and last end of each iteration over all ranks, without the initialization; ns."""
    found: dict[int, tuple[int, int]] = {}
    for _, number, begin, finish in seen.spans:
        if number > 0:
            known = found.get(number, (begin, finish))
            found[number] = min(known[0], begin), max(known[1], finish)
    return dict(sorted(found.items()))


def _in_words(seen: Timeline) -> Iterator[str]:
    """The iterations in a sentence."""
    times = _iteration_times(seen)
    if not times:
        return
    values = _lengths(seen, times)
    unit = "ms" if seen.timed else "operations"
    low, middle, p90, p99, high = np.percentile(values, (0, 50, 90, 99, 100))
    init = [finish - begin for _, number, begin, finish in seen.spans if number == 0]
    first = f"Initialization {max(init) / 1e6:.2f} ms. " if init and seen.timed else ""
    yield (
        f"{first}{len(values)} iterations: min {low:.4g}, mean {values.mean():.4g} ± {values.std():.4g}, p50 "
        f"{middle:.4g}, p90 {p90:.4g}, p99 {p99:.4g}, max {high:.4g} {unit}."
    )


def _lengths(seen: Timeline, times: dict[int, tuple[int, int]]) -> Reals:
    """Length of each iteration in ms, or operations, shape (iterations,)."""
    return np.array([finish - begin for begin, finish in times.values()]) / (1e6 if seen.timed else 1)


def _iterations(seen: Timeline) -> Iterator[Chart]:
    times = _iteration_times(seen)
    if not times:
        return
    values = _lengths(seen, times)
    step = -(-len(values) // MOST_COLUMNS)
    begins = range(0, len(values), step)
    shown = Series(
        name="iteration",
        x=[min(times) + begin for begin in begins],
        y=[float(values[begin : begin + step].max()) for begin in begins],
        style="steps",
    )
    unit = "ms" if seen.timed else "operations"
    panel = Panel(
        y=Axis(name=unit, start=0.0), series=[shown], lines=[Line(name="median", value=float(np.median(values)))]
    )
    more = f"A point is the slowest of {step}." if step > 1 else ""
    yield Curves(title="Iterations", sentence=more, x=Axis(name="iteration"), panels=[panel])


def _shares(seen: Timeline, kinds: Numbers, names: Sequence[str]) -> Iterator[Chart]:
    lengths = (seen.end - seen.start).astype(np.float64)
    sizes = np.array([each.size_bytes for each in seen.classes] or [0], dtype=np.float64)
    weights = [("operations", np.ones(len(kinds)), "{:.0f}"), ("bytes", sizes[seen.op_class], "{:.4g} B")]
    if seen.timed:
        weights.insert(0, ("time", lengths / 1e6, "{:.4g} ms"))
    for name, weight, form in weights:
        sums = np.bincount(kinds, weights=weight, minlength=len(names)).astype(np.float64)
        whole = float(sums.sum()) or 1.0
        bars = [
            Bar(
                name=names[kind],
                value=100 * float(sums[kind]) / whole,
                text=f"{sums[kind] / whole:.1%}, {form.format(sums[kind])}",
            )
            for kind in np.argsort(-sums, kind="stable").tolist()
        ]
        yield Bars(title=f"Share of {name}", unit="%", bars=bars, one_hue=True)


def _sizes(seen: Timeline, kinds: Numbers, names: Sequence[str]) -> Iterator[Chart]:
    sizes = np.array([each.size_bytes for each in seen.classes] or [0], dtype=np.int64)
    moved = sizes[seen.op_class] > 0
    series = []
    for kind, name in enumerate(names):
        mine = sizes[seen.op_class[moved & (kinds == kind)]]
        if len(mine):
            values, counts = _thinned(*np.unique(mine, return_counts=True))
            shares = np.cumsum(counts) / counts.sum()
            series.append(Series(name=name, x=values.tolist(), y=shares.tolist(), style="steps"))
    if series:
        title = "Distribution of sizes: share of the operations up to a size"
        panel = Panel(y=Axis(name="share", start=0.0, end=1.0), series=series)
        yield Curves(title=title, x=_SIZES, panels=[panel])


def _thinned(values: Numbers, counts: Numbers, most: int = 200) -> tuple[Numbers, Numbers]:
    """At most `most` of the values, each with the counts of those it stands for."""
    if len(values) <= most:
        return values, counts
    begins = np.linspace(0, len(values), most, endpoint=False).astype(np.int64)
    return values[np.append(begins[1:], len(values)) - 1], np.add.reduceat(counts, begins)


def _bandwidths(seen: Timeline, kinds: Numbers, names: Sequence[str]) -> Iterator[Chart]:
    if not seen.timed or not (seen.busbw > 0).any():
        return
    sizes = np.array([each.size_bytes for each in seen.classes], dtype=np.int64)
    measured = [each for each in np.unique(seen.op_class[seen.busbw > 0]).tolist() if sizes[each] > 0]
    found: dict[str, list[tuple[int, float]]] = {}
    for each in sorted(measured, key=lambda each: -int(sizes[each]))[:MOST_CLASSES]:
        mine = (seen.op_class == each) & (seen.iteration > 0)
        values = seen.busbw[mine if mine.any() else seen.op_class == each]
        kind = int(kinds[seen.op_class == each][0])
        found.setdefault(names[kind], []).append((int(sizes[each]), float(np.median(values))))
    series = [
        Series(name=name, x=[size for size, _ in points], y=[busbw for _, busbw in points], style="points")
        for name, points in found.items()
    ]
    if series:
        title = "busbw by size: median of a class, GB/s (GB = 1e9 bytes)"
        yield Curves(title=title, x=_SIZES, panels=[Panel(y=Axis(name="GB/s", start=0.0), series=series)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{safe(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{safe(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><tr>{heads}</tr>\n{body}</table></div>'


def _name(each: OpClass) -> list[str]:
    return [each.comm_type, each.group or "-", size_text(each.size_bytes)]


def _classes(seen: Timeline) -> Iterator[str]:
    lengths = (seen.end - seen.start) / 1e6
    order = np.argsort(seen.op_class, kind="stable")
    numbers, first = np.unique(seen.op_class[order], return_index=True)
    rows = []
    for number, mine in zip(numbers.tolist(), np.split(order, first[1:].tolist()), strict=True):
        each = seen.classes[number]
        if not seen.timed:
            rows.append(
                (
                    float(len(mine)) * each.size_bytes,
                    [*_name(each), str(len(mine)), size_text(len(mine) * each.size_bytes)],
                )
            )
            continue
        low, p50, p90, p99, high = np.percentile(lengths[mine], (0, 50, 90, 99, 100))
        cells = [
            lengths[mine].mean(),
            lengths[mine].std(),
            low,
            p50,
            p90,
            p99,
            high,
            float(np.median(seen.busbw[mine])),
        ]
        rows.append((float(lengths[mine].sum()), [*_name(each), str(len(mine)), *(f"{cell:.3f}" for cell in cells)]))
    rows.sort(key=lambda row: -row[0])
    head = ["type", "group", "size", "count"]
    head += ["mean ms", "std", "min", "p50", "p90", "p99", "max", "busbw GB/s"] if seen.timed else ["bytes in all"]
    title = "Operations by type, group and size"
    more = f"<p>The {MOST_CLASSES} largest of {len(rows)}.</p>" if len(rows) > MOST_CLASSES else ""
    yield _heading(title) + _table(head, [cells for _, cells in rows[:MOST_CLASSES]]) + more


def _first_rows(seen: Timeline) -> Iterator[str]:
    if not len(seen):
        return
    rank = int(seen.rank.min())
    mine = np.flatnonzero(seen.rank == rank)
    chosen = mine[seen.iteration[mine] > 0] if (seen.iteration[mine] > 0).any() else mine
    rows = []
    for record in chosen[:MOST_ROWS].tolist():
        cells = [*_name(seen.classes[seen.op_class[record]]), seen.stages[seen.stage[record]][:200]]
        if seen.timed:
            begin, length = seen.start[record] / 1e6, (seen.end[record] - seen.start[record]) / 1e6
            cells += [f"{begin:.3f}", f"{length:.3f}", f"{seen.busbw[record]:.2f}"]
        rows.append(cells)
    title = f"The first {len(rows)} operations of rank {rank} after the initialization"
    head = ["type", "group", "size", "stage", *(["start ms", "ms", "busbw GB/s"] if seen.timed else [])]
    yield _heading(title) + _table(head, rows)
