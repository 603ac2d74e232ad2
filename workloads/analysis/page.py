"""Writes one page of an executed workload, or of a workload: timelines, shares, sizes, bandwidths, iterations, tables.

The page is one file without anything from elsewhere, and says so to the browser (Content-Security-Policy). What it
shows is aggregated here, so that a million operations take no more than a thousand. All text is escaped.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

import numpy as np

from common import svg as pictures
from workloads.analysis import binned
from workloads.analysis.aicb_output import size_text
from workloads.analysis.merged import OpClass
from workloads.analysis.page_script import SCRIPT, STYLE
from workloads.analysis.timeline import Timeline
from workloads.oplog.file import Numbers

MOST_CLASSES, MOST_ROWS, MOST_COLUMNS = 300, 200, 400


def html(seen: Timeline) -> str:
    """The whole page, under 5 MB for any input of up to MOST_RECORDS operations."""
    kinds, names = _kinds(seen)
    shades = [pictures.color(number) for number in range(len(names))]
    title = escape(f"AICB {'run' if seen.timed else 'workload'}: {seen.title}")
    notes = "".join(f"<p>{escape(note)}</p>" for note in seen.notes)
    parts = [
        _legend(names, shades),
        *_timelines(seen, kinds, names, shades),
        *_iterations(seen),
        *_shares(seen, kinds, names, shades),
        *_sizes(seen, kinds, names, shades),
        *_bandwidths(seen, kinds, names, shades),
        *_classes(seen),
        *_first_rows(seen),
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" '
        f'content="{policy}"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>'
        f"<style>{STYLE}</style></head>\n<body><h1>{title}</h1>{notes}\n" + "\n".join(parts) + f"\n<script>{SCRIPT}"
        "</script></body></html>\n"
    )


def _kinds(seen: Timeline) -> tuple[Numbers, list[str]]:
    """The kind (type and group) of each record, and the names of the kinds."""
    names: dict[str, int] = {}
    of_class = [names.setdefault(f"{each.comm_type} {each.group}".strip(), len(names)) for each in seen.classes]
    return np.array(of_class, dtype=np.int64)[seen.op_class], list(names)


def _legend(names: Sequence[str], shades: Sequence[str]) -> str:
    return (
        "<p>"
        + "".join(
            f'<label><input type="checkbox" checked data-kind="{number}"> <span class="swatch" '
            f'style="background:{shade}"></span> {escape(name)}</label>'
            for number, (name, shade) in enumerate(zip(names, shades, strict=True))
        )
        + "</p>"
    )


def _heading(text: str) -> str:
    return f"<h2>{escape(text)}</h2>"


def _timelines(seen: Timeline, kinds: Numbers, names: Sequence[str], shades: Sequence[str]) -> Iterator[str]:
    if not len(seen):
        return
    unit = "ms" if seen.timed else "operations"
    views = [("Timeline of all ranks", 0, int(seen.end.max()))]
    ordered = sorted(_iteration_times(seen).items(), key=lambda entry: entry[1][1] - entry[1][0])
    if seen.timed and len(ordered) > 1:
        for name, (number, (begin, finish)) in (
            ("Slowest iteration", ordered[-1]),
            ("Median iteration", ordered[(len(ordered) - 1) // 2]),
        ):
            views.append((f"{name}: {number}", begin, finish))
    for title, begin, finish in views:
        rows = [
            (f"rank {rank}", drawn)
            for rank, drawn in binned.paths(seen, kinds, len(names), float(begin), float(finish))
        ]
        length = (finish - begin) / 1e6 if seen.timed else float(finish - begin)
        yield _heading(title) + pictures.timeline(title, rows, shades, f"{length:.4g} {unit}")
    left_out = len(np.unique(seen.rank)) - binned.MOST_RANKS
    if left_out > 0:
        yield f"<p>{left_out} ranks are not drawn.</p>"


def _iteration_times(seen: Timeline) -> dict[int, tuple[int, int]]:
    """First start and last end of each iteration over all ranks, without the initialization; ns."""
    found: dict[int, tuple[int, int]] = {}
    for _, number, begin, finish in seen.spans:
        if number > 0:
            known = found.get(number, (begin, finish))
            found[number] = min(known[0], begin), max(known[1], finish)
    return dict(sorted(found.items()))


def _iterations(seen: Timeline) -> Iterator[str]:
    times = _iteration_times(seen)
    if not times:
        return
    values = np.array([finish - begin for begin, finish in times.values()]) / (1e6 if seen.timed else 1)
    unit = "ms" if seen.timed else "operations"
    step = -(-len(values) // MOST_COLUMNS)
    shown = [float(values[begin : begin + step].max()) for begin in range(0, len(values), step)]
    low, middle, p90, p99, high = np.percentile(values, (0, 50, 90, 99, 100))
    yield _heading("Iterations") + pictures.columns("Iterations", shown, float(middle), min(times), unit)
    more = f" One bar is the slowest of {step}." if step > 1 else ""
    init = [finish - begin for _, number, begin, finish in seen.spans if number == 0]
    first = f"Initialization {max(init) / 1e6:.2f} ms. " if init and seen.timed else ""
    yield (
        f"<p>{first}{len(values)} iterations: min {low:.4g}, mean {values.mean():.4g} &plusmn; {values.std():.4g}, p50 "
        f"{middle:.4g}, p90 {p90:.4g}, p99 {p99:.4g}, max {high:.4g} {unit}.{more}</p>"
    )


def _shares(seen: Timeline, kinds: Numbers, names: Sequence[str], shades: Sequence[str]) -> Iterator[str]:
    lengths = (seen.end - seen.start).astype(np.float64)
    sizes = np.array([each.size_bytes for each in seen.classes] or [0], dtype=np.float64)
    weights = [("operations", np.ones(len(kinds)), "{:.0f}"), ("bytes", sizes[seen.op_class], "{:.4g} B")]
    if seen.timed:
        weights.insert(0, ("time", lengths / 1e6, "{:.4g} ms"))
    for name, weight, form in weights:
        sums = np.bincount(kinds, weights=weight, minlength=len(names)).astype(np.float64)
        whole = float(sums.sum()) or 1.0
        order = np.argsort(-sums, kind="stable").tolist()
        drawn = [
            (
                names[kind],
                float(sums[kind]) / whole,
                f"{sums[kind] / whole:.1%}, {form.format(sums[kind])}",
                shades[kind],
            )
            for kind in order
        ]
        yield _heading(f"Share of {name}") + pictures.bars(f"Share of {name}", drawn)


def _size_axis(sizes: Numbers) -> tuple[float, float, list[tuple[float, str]]]:
    """log2 of the least size, the range of log2 above it, and ticks for an axis of sizes in bytes."""
    low, high = (math.log2(max(1, int(each))) for each in (sizes.min(), sizes.max()))
    spread = max(high - low, 1.0)
    marks = {round(low + spread * step / 6) for step in range(7)}
    ticks = [((mark - low) / spread, size_text(2.0**mark)) for mark in sorted(marks) if 0 <= (mark - low) / spread <= 1]
    return low, spread, ticks


def _sizes(seen: Timeline, kinds: Numbers, names: Sequence[str], shades: Sequence[str]) -> Iterator[str]:
    sizes = np.array([each.size_bytes for each in seen.classes] or [0], dtype=np.int64)
    moved = sizes[seen.op_class] > 0
    if not moved.any():
        return
    low, spread, ticks = _size_axis(sizes[sizes > 0])
    series: dict[str, tuple[str, pictures.Points]] = {}
    for kind, name in enumerate(names):
        mine = sizes[seen.op_class[moved & (kinds == kind)]]
        if len(mine):
            values, counts = np.unique(mine, return_counts=True)
            values, counts = _thinned(values, counts)
            shares = np.cumsum(counts) / counts.sum()
            places = (np.log2(values) - low) / spread
            points: list[tuple[float, float]] = [(0.0, 0.0)]
            for x, before, share in zip(places.tolist(), [0.0, *shares[:-1].tolist()], shares.tolist(), strict=True):
                points += [(x, before), (x, share)]
            series[name] = shades[kind], [*points, (1.0, 1.0)]
    title = "Distribution of sizes: share of the operations up to a size"
    yield _heading(title) + pictures.plot(title, series, ticks, 1.0, unit="share", joined=True)


def _thinned(values: Numbers, counts: Numbers, most: int = 200) -> tuple[Numbers, Numbers]:
    """At most `most` of the values, each with the counts of those it stands for."""
    if len(values) <= most:
        return values, counts
    begins = np.linspace(0, len(values), most, endpoint=False).astype(np.int64)
    return values[np.append(begins[1:], len(values)) - 1], np.add.reduceat(counts, begins)


def _bandwidths(seen: Timeline, kinds: Numbers, names: Sequence[str], shades: Sequence[str]) -> Iterator[str]:
    if not seen.timed or not (seen.busbw > 0).any():
        return
    sizes = np.array([each.size_bytes for each in seen.classes], dtype=np.int64)
    measured = np.unique(seen.op_class[seen.busbw > 0])
    low, spread, ticks = _size_axis(sizes[measured])
    series: dict[str, tuple[str, list[tuple[float, float]]]] = {}
    ordered = sorted(measured.tolist(), key=lambda each: -int(sizes[each]))[:MOST_CLASSES]
    for each in ordered:
        mine = (seen.op_class == each) & (seen.iteration > 0)
        values = seen.busbw[mine if mine.any() else seen.op_class == each]
        kind = int(kinds[seen.op_class == each][0])
        series.setdefault(names[kind], (shades[kind], []))[1].append(
            ((math.log2(int(sizes[each])) - low) / spread, float(np.median(values)))
        )
    top = max(value for _, points in series.values() for _, value in points)
    title = "busbw by size: median of a class, GB/s (GB = 1e9 bytes)"
    yield _heading(title) + pictures.plot(title, series, ticks, top, unit="GB/s", joined=False)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f"<th>{escape(each)}</th>" for each in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><tr>{heads}</tr>\n{body}</table></div>'


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
