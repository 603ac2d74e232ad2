"""Turns a round of the network benchmark into sentences, the host x host matrix, groups, a chart, nccl-tests' table."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from common.charts.chart import Curves, Heat
from common.charts.sweep import sweep
from protocol.outcome import MeasuredCase, MeasuredRound, Table, TableCell
from training.benchmarks.network.hosts.links import advertised_gbps
from training.benchmarks.network.reporting import table
from training.benchmarks.network.reporting.references import named_references, what_of
from training.benchmarks.network.slow_parts.analysis import Analysis, analyse_scan, shown_with
from training.benchmarks.network.slow_parts.blame import ONE_WAY
from training.benchmarks.network.slow_parts.findings import findings_of
from training.benchmarks.network.slow_parts.judge import LATE_PERCENT, Bounds
from training.benchmarks.network.slow_parts.readings import scan_of

_NO_TIERS = "rank 0 compared no pairs, and the tiers of the topology are known on the hosts alone: nothing is compared"


@dataclass(frozen=True, kw_only=True)
class MatrixCell:
    """busbw of two hosts in GB/s: median over the repeats, its interval, and the share of the fastest pair (0 to 1)."""

    gbps: float
    low: float
    high: float
    share: float
    named: bool


@dataclass(frozen=True, kw_only=True)
class NetworkView:
    """The view of a round: sentences, the matrix by host (None on the diagonal), the analysis."""

    sentences: tuple[str, ...]
    analysis: Analysis | None
    hosts: tuple[str, ...]
    matrix: tuple[tuple[MatrixCell | None, ...], ...]


# Views that are kept: sentences, console and report need that of each round.
_MOST_KEPT = 32
_kept: OrderedDict[int, tuple[MeasuredCase, MeasuredRound, NetworkView]] = OrderedDict()


def network_view(case: MeasuredCase, measured: MeasuredRound) -> NetworkView | None:
    """The view of a round, its hosts under the user's names; None for a round that measured nothing.

    It takes seconds for a scan of 1,024 hosts, and is made once for the same steps, metrics, hosts and settings.
    """
    if not measured.steps:
        return None
    key = id(measured.steps)
    if key in _kept:
        own_case, own, view = _kept[key]
        is_same = own.steps is measured.steps and own.metrics is measured.metrics
        if is_same and own.hosts == measured.hosts and own_case.config == case.config:
            return view
    view = _view(case, measured)
    _kept[key] = case, measured, view
    while len(_kept) > _MOST_KEPT:
        _kept.popitem(last=False)
    return view


def _view(case: MeasuredCase, measured: MeasuredRound) -> NetworkView:
    found = _analysis(case, measured)
    answer = measured.metrics.get("answer")
    sentences = found.sentences if found else ((str(answer),) if answer else ())
    is_matrix = found is not None and found.pattern == "pairs"
    return NetworkView(
        sentences=sentences,
        analysis=found,
        hosts=found.hosts if found else (),
        matrix=_matrix(found) if found is not None and is_matrix else (),
    )


def _analysis(case: MeasuredCase, measured: MeasuredRound) -> Analysis | None:
    """Rank 0's findings; of an unfinished round what its steps show, unless a topology has the tiers."""
    slow, late = case.config.get("slow_percent"), case.config.get("late_percent", LATE_PERCENT)
    if not isinstance(slow, int | float) or not isinstance(late, int | float):
        return None
    scan = scan_of(measured.steps, measured.hosts)
    remarks = measured.metrics.get("remarks")
    try:
        known = findings_of(measured.metrics["findings"], measured.hosts)
    except (KeyError, ValueError):  # a host may send anything
        if case.config.get("topology") is None:
            return analyse_scan(scan, Bounds(slow_percent=slow, late_percent=late))
        shown = shown_with(scan, (), ())
        return None if shown is None else replace(shown, note=_NO_TIERS)
    return shown_with(scan, known, [str(each) for each in remarks] if isinstance(remarks, list) else [])


def nccl_table(title: str, found: Sequence[Mapping[str, Any]]) -> str:
    """A sweep of all ranks as nccl-tests prints it; empty for another pattern, or where a host sent something else."""
    steps = [step for step in found if step.get("pattern") == "all"]
    try:
        first = steps[0]
        head = table.header(str(first["collective"]), int(first["world_size"]), title, str(first["convention"]))
        text = "\n".join((head, *table.rows(steps), table.footer(steps)))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError):
        return ""
    return text


def matrix_table(view: NetworkView) -> Table:
    """The host x host matrix: GB/s with its interval, bad where a host is named."""

    def cell(found: MatrixCell | None) -> TableCell:
        if found is None:
            return TableCell(value="")
        note = f"{found.low:.4g} to {found.high:.4g}"
        return TableCell(value=found.gbps, note=note, is_bad=found.named)

    return Table(
        title="busbw between hosts, GB/s: median of the repeats (interval)",
        columns=("", *view.hosts),
        rows=tuple(
            (TableCell(value=host), *map(cell, cells)) for host, cells in zip(view.hosts, view.matrix, strict=True)
        ),
    )


def matrix_chart(view: NetworkView) -> Heat:
    """The host x host matrix as a map: GB/s, the row sends where both directions were measured."""
    named = [host for host, row in zip(view.hosts, view.matrix, strict=True) if all(c is None or c.named for c in row)]
    return Heat(
        title="busbw between hosts, GB/s (row sends, column receives)",
        sentence=f"Slow in all their pairs: {', '.join(named)}." if named else "",
        columns=view.hosts,
        rows=view.hosts,
        cells=[[None if cell is None else cell.gbps for cell in row] for row in view.matrix],
        unit="GB/s",
    )


def groups_table(found: Analysis) -> Table:
    """The groups of a pattern at the largest size: hosts, ranks, busbw in GB/s and its interval over the repeats."""
    return Table(
        title="",
        columns=("group", "hosts", "ranks", "busbw, GB/s", "interval"),
        rows=tuple(
            (
                TableCell(value=group.group),
                TableCell(value=", ".join(group.hosts)),
                TableCell(value=group.world_size),
                TableCell(value=group.busbw_gbps.value),
                TableCell(value=f"{group.busbw_gbps.low:.4g} to {group.busbw_gbps.high:.4g}"),
            )
            for group in found.groups
        ),
    )


def sizes_table(steps: Sequence[Mapping[str, Any]]) -> Table:
    """Every measured size: bytes, p50 and p95 in microseconds, bandwidths in GB/s, whether the data was right."""
    fields = ("size_bytes", "time_us", "algbw_GBps", "busbw_GBps", "correct")
    found = [step for step in steps if all(field in step for field in fields)]
    found = [step for step in found if isinstance(step["time_us"], dict) and {"p50", "p95"} <= step["time_us"].keys()]
    rows = (
        (step["size_bytes"], step["time_us"]["p50"], step["time_us"]["p95"], *(step[name] for name in fields[2:]))
        for step in found
    )
    return Table(
        title="",
        columns=("bytes", "p50, us", "p95, us", "algbw, GB/s", "busbw, GB/s", "data"),
        rows=tuple(tuple(TableCell(value=value) for value in row) for row in rows),
    )


def _matrix(found: Analysis) -> tuple[tuple[MatrixCell | None, ...], ...]:
    """The matrix of all pairs; empty where the analysis kept the slowest alone."""
    pairs = {cell.hosts: cell for cell in found.groups if len(cell.hosts) == 2}
    if len(pairs) < len(found.hosts) * (len(found.hosts) - 1) // 2:
        return ()
    top = max(cell.busbw_gbps.value for cell in found.groups) or 1.0
    named = {finding.hosts for finding in found.findings}
    named |= {each.hosts[::-1] for each in found.findings if ONE_WAY not in each.device}

    def cell(first: str, second: str) -> MatrixCell | None:
        # Where both orders were measured, the host of the row sends.
        pair = pairs.get((first, second)) or pairs.get((second, first))
        if pair is None:
            return None
        busbw = pair.busbw_gbps
        is_named = not named.isdisjoint([(first,), (second,), (first, second)])
        return MatrixCell(gbps=busbw.value, low=busbw.low, high=busbw.high, share=busbw.value / top, named=is_named)

    return tuple(tuple(cell(first, second) for second in found.hosts) for first in found.hosts)


def sweep_chart(case: MeasuredCase, measured: MeasuredRound) -> Curves | None:
    """busbw over message size where all ranks swept two sizes or more, what was advertised, the baseline's."""
    points = {id(step): point for step in measured.steps if (point := _point(step)) is not None}
    swept = [step for step in measured.steps if id(step) in points]
    return sweep(
        "Bus bandwidth over message size",
        {"busbw": [*points.values()]},
        advertised=advertised_gbps(case.config.get("expected_link"), case.config.get("expected_links", 1)),
        reference=_of_the_baseline(swept, measured.hosts, case.baseline),
    )


def _of_the_baseline(
    swept: Sequence[Mapping[str, Any]], hosts: Mapping[int, str], times: Mapping[str, float]
) -> dict[int, float]:
    """busbw in GB/s by size that the baseline's `times`, in microseconds, make: it falls as the time grows."""
    found: dict[int, float] = {}
    for each in named_references([(swept, hosts)]).values():
        size, busbw, then = each.details["size_bytes"], each.details["busbw_GBps"], times.get(what_of(each))
        if isinstance(size, int) and isinstance(busbw, float) and then:
            found.setdefault(size, busbw * each.value / then)
    return found


def _point(step: Mapping[str, Any]) -> tuple[int, float] | None:
    size, busbw = step.get("size_bytes"), step.get("busbw_GBps")
    if isinstance(size, int) and isinstance(busbw, int | float) and "variant" not in step:
        return size, float(busbw)
    return None
