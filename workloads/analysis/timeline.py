"""Brings op logs, a log CSV or a workload into the columns from which the page is drawn, whatever they are.

A log CSV has durations of one rank and no clock: its operations follow one another. A workload has no times: each
operation takes one unit, and what is drawn is their order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.analysis.merged import OpClass
from workloads.formats import csvfile
from workloads.formats.simai import SimaiWorkload, is_simai
from workloads.formats.simai_order import in_order
from workloads.formats.workload import Workload
from workloads.job.errors import WorkloadFileError
from workloads.oplog import measured
from workloads.oplog.facts import MOST_RECORDS, LogFacts
from workloads.oplog.file import LATEST_NS, Numbers, OpLog, read_folder
from workloads.rows.ops import CommType, LogItem

Reals: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Operations of all ranks, columns of shape (records,). iteration 0 is the initialization.

    start, end: ns of rank 0's clock from the first operation on; units of order where `timed` is False. busbw: GB/s,
    0 where there is none. spans: of each iteration of each rank (rank, iteration, first start, last end). notes: what a
    reader has to know of the input.
    """

    title: str
    timed: bool
    classes: list[OpClass]
    stages: list[str]
    rank: Numbers
    iteration: Numbers
    op_class: Numbers
    stage: Numbers
    start: Numbers
    end: Numbers
    busbw: Reals
    spans: list[tuple[int, int, int, int]]
    notes: list[str]

    def __len__(self) -> int:
        return len(self.rank)


def load(path: Path) -> Timeline:
    """The timeline in `path`: op logs in a folder, one of them, a log CSV, a workload CSV of any form, or SimAI text.

    Raises:
        AicbError: it is none of these.
    """
    if path.is_dir() or path.suffix == ".npz":
        return of_logs(path.name or str(path), read_folder(path))
    if is_simai(path):
        text = in_order(SimaiWorkload.load(path))
        return of_rows(path, text, "a SimAI text: one iteration, forward, then the last row first")
    rows, _ = csvfile.load(path)
    return of_rows(path, Workload(rows))


class _Columns:
    """Collects the columns rank by rank."""

    def __init__(self) -> None:
        self.classes: dict[OpClass, int] = {}
        self.stages: dict[str, int] = {}
        self.parts: list[tuple[Numbers, Numbers, Numbers, Numbers, Numbers, Numbers, Reals]] = []
        self.spans: list[tuple[int, int, int, int]] = []

    def number(self, row: LogItem, facts: LogFacts | None = None) -> tuple[int, int]:
        group = row.comm_group.name if row.comm_group else ""
        made = OpClass(row.comm_type.name, group, measured.executed_bytes(row, facts))
        return self.classes.setdefault(made, len(self.classes)), self.stages.setdefault(row.stage, len(self.stages))

    def done(self, title: str, *, timed: bool, notes: list[str]) -> Timeline:
        rank, iteration, op_class, stage, start, end, busbw = (
            (np.concatenate(column) for column in zip(*self.parts, strict=True))
            if self.parts
            else (np.empty(0, np.int64) for _ in range(7))
        )
        zero = int(start.min()) if len(start) else 0
        spans = [(who, number, begin - zero, finish - zero) for who, number, begin, finish in self.spans]
        return Timeline(
            title, timed, list(self.classes), list(self.stages), rank, iteration, op_class, stage, start - zero,
            end - zero, busbw.astype(np.float64), spans, notes,
        )  # fmt: skip


def of_logs(title: str, logs: Sequence[OpLog]) -> Timeline:
    """The logs of one run's ranks."""
    columns = _Columns()
    for log in logs:
        rows = log.rows()
        used = np.unique(log.op).tolist()
        kinds = np.zeros((3, len(rows)), np.int64)
        factor = np.zeros(len(rows))
        for op in used:
            row = rows[op]
            if row.comm_type is CommType.epoch_end:
                kinds[2, op] = 1
                continue
            kinds[:2, op] = columns.number(row, log.facts)
            size = measured.executed_bytes(row, log.facts)
            factor[op] = measured.bandwidths(row, size, 1000.0, measured.group_ranks(row, log.facts))[1]
        ends = kinds[2][log.op] == 1
        start, end = log.on_rank_0(log.issue_ns), log.on_rank_0(log.done_ns)
        _add_spans(columns, log, start, end)
        seconds = np.maximum(log.duration_ns, 1) / 1e9
        kept = ~ends
        who = np.full(int(kept.sum()), log.facts.rank)
        columns.parts.append(
            (who, log.iteration[kept], kinds[0][log.op][kept], kinds[1][log.op][kept], start[kept], end[kept],
             (factor[log.op] / seconds)[kept])
        )  # fmt: skip
    facts = logs[0].facts
    notes = [f"{len(logs)} of {facts.world_size} ranks, backend {facts.backend or 'unknown'}, timed by `{facts.mode}`"]
    if facts.scale != "1":
        notes.append(f"sizes are {facts.scale} of the workload's")
    error = max(log.facts.clock_error_ns for log in logs)
    notes.append(f"clocks of the ranks agree within {error / 1e3:.1f} us")
    return columns.done(title, timed=True, notes=notes)


def _add_spans(columns: _Columns, log: OpLog, start: Numbers, end: Numbers) -> None:
    order = np.argsort(log.iteration, kind="stable")
    numbers, first = np.unique(log.iteration[order], return_index=True)
    if len(numbers):
        begins, finishes = np.minimum.reduceat(start[order], first), np.maximum.reduceat(end[order], first)
        for number, begin, finish in zip(numbers.tolist(), begins.tolist(), finishes.tolist(), strict=True):
            columns.spans.append((log.facts.rank, number, begin, finish))


def of_rows(path: Path, workload: Workload, *more: str) -> Timeline:
    """A log or workload of one rank. more: notes for a reader.

    Raises:
        WorkloadFileError: there are no rows, or their times add up to centuries.
    """
    rows = list(islice(workload, MOST_RECORDS))
    work = [row for row in rows if row.comm_type is not CommType.epoch_end]
    if not work:
        raise WorkloadFileError(path, None, "has no operations to show")
    timed = all(row.elapsed_time is not None for row in work)
    columns = _Columns()
    end = _add_rows(columns, rows, timed=timed)
    if end > LATEST_NS:
        raise WorkloadFileError(
            path, None, f"has times that add up to {end / 1e9:.3g} s; allowed: {LATEST_NS / 1e9:.3g}"
        )
    notes = ["one rank"] if timed else ["a workload: operations in their order, one unit each; nothing was measured"]
    notes += more
    if len(workload) > len(rows):
        notes.append(f"the first {len(rows)} of {len(workload)} rows")
    return columns.done(path.name, timed=timed, notes=notes)


def _add_rows(columns: _Columns, rows: list[LogItem], *, timed: bool) -> int:
    """Put rows one after the other; without times each takes a unit. Returns the end, in ns or units."""
    now = iteration = begin = 0
    table: list[tuple[int, int, int, int, int]] = []
    busbw: list[float] = []
    for row in rows:
        if row.comm_type is CommType.epoch_end:
            now = max(now, begin + round(float(row.elapsed_time or 0) * 1e6)) if timed else now
            columns.spans.append((0, iteration, begin, now))
            iteration, begin = iteration + 1, now
            continue
        lasted = round(float(row.elapsed_time or 0) * 1e6) if timed else 1
        table.append((iteration, *columns.number(row), now, now + lasted))
        busbw.append(float(row.busbw or 0))
        now += lasted
    if begin < now:
        columns.spans.append((0, iteration, begin, now))
    if now <= LATEST_NS:
        numbers = np.array(table, dtype=np.int64).T
        columns.parts.append((np.zeros(len(table), np.int64), *numbers, np.array(busbw)))
    return now
