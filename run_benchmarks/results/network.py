"""Turns a round of the network benchmark into statements about hosts: host x host matrix, outliers.

The analysis is the benchmark's own; here the hosts bear the names of the cluster config, and a host may have sent
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from run_benchmarks.results.records import CaseRecord, RoundRecord
from training.benchmarks.network import table
from training.benchmarks.network.analysis import Analysis, analyse
from training.benchmarks.network.links import advertised_gbps
from training.benchmarks.network.plot import sweep_svg
from training.benchmarks.network.symptoms import LATE_PERCENT

MODEL = "network"
SHOWN_CHARACTERS = 300


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
    """What the report shows of a round: sentences, the matrix by host (None on the diagonal), groups, plot."""

    sentences: tuple[str, ...]
    analysis: Analysis | None
    hosts: tuple[str, ...]
    matrix: tuple[tuple[MatrixCell | None, ...], ...]
    plot: str


def network_view(case: CaseRecord, record: RoundRecord) -> NetworkView | None:
    """The view of a round; None for another benchmark, and for a round that measured nothing.

    Of measurements that cannot be analysed, whatever hosts made of them, it has one sentence that says so.
    """
    try:
        return _view(case, record)
    except Exception as error:  # noqa: BLE001 - a page of all rounds is not lost for what one of them holds
        sentence = f"its measurements cannot be analysed: {type(error).__name__}: {str(error)[:SHOWN_CHARACTERS]}"
        return NetworkView(sentences=(sentence,), analysis=None, hosts=(), matrix=(), plot="")


def _view(case: CaseRecord, record: RoundRecord) -> NetworkView | None:
    if case.model != MODEL or not record.steps:
        return None
    names = {node.node_rank: node.host for node in record.nodes}
    slow, late = case.config.get("slow_percent"), case.config.get("late_percent", LATE_PERCENT)
    found = None
    if isinstance(slow, int | float) and isinstance(late, int | float):
        found = analyse(record.steps, slow_percent=float(slow), late_percent=float(late), names=names)
    answer = record.metrics.get("answer")
    sentences = found.sentences if found else ((str(answer),) if answer else ())
    is_matrix = found is not None and found.pattern == "pairs"
    return NetworkView(
        sentences=sentences,
        analysis=found,
        hosts=found.hosts if found else (),
        matrix=_matrix(found) if found is not None and is_matrix else (),
        plot=_plot(record.steps, case.config),
    )


def nccl_table(title: str, record: RoundRecord) -> str:
    """A sweep of all ranks as nccl-tests prints it; empty for another pattern, or where a host sent something else."""
    steps = [step for step in record.steps if step.get("pattern") == "all"]
    try:
        first = steps[0]
        head = table.header(str(first["collective"]), int(first["world_size"]), title, str(first["convention"]))
        text = "\n".join((head, *map(table.row, steps), table.footer(steps)))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError):
        return ""
    return "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in text)


def _matrix(found: Analysis) -> tuple[tuple[MatrixCell | None, ...], ...]:
    top = max(cell.busbw_gbps.value for cell in found.groups) or 1.0
    named = {frozenset(finding.hosts) for finding in found.findings}

    def cell(first: str, second: str) -> MatrixCell | None:
        pair = found.pair(first, second)
        if pair is None:
            return None
        busbw = pair.busbw_gbps
        is_named = any(hosts <= {first, second} for hosts in named)
        return MatrixCell(gbps=busbw.value, low=busbw.low, high=busbw.high, share=busbw.value / top, named=is_named)

    return tuple(tuple(cell(first, second) for second in found.hosts) for first in found.hosts)


def _plot(steps: list[dict[str, Any]], config: Mapping[str, Any]) -> str:
    """busbw over message size where all ranks swept two sizes or more, and what was advertised; empty otherwise."""
    points = [point for step in steps if (point := _point(step)) is not None]
    if len({size for size, _ in points}) < 2:
        return ""
    advertised = advertised_gbps(config.get("expected_link"), config.get("expected_links", 1))
    return sweep_svg({"busbw": points}, "busbw, GB/s, over message size", advertised=advertised)


def _point(step: Mapping[str, Any]) -> tuple[int, float] | None:
    size, busbw = step.get("size_bytes"), step.get("busbw_GBps")
    if isinstance(size, int) and isinstance(busbw, int | float) and "variant" not in step:
        return size, float(busbw)
    return None
