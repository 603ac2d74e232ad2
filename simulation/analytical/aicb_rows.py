"""Reads a workload CSV of training/benchmarks/aicb (or of AICB): one iteration of one rank, a row an operation."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from common.errors import input_problem
from simulation.analytical.workload import MadeRows, NamedRow, once
from workloads.formats.simai_text import (  # fmt: skip
    ALL,
    BROADCAST,
    EP,
    GROUP,
    TP,
    WORDS,
    Phase,
    WorkloadHeader,
)
from workloads.rows.collectives import ROOTED

if TYPE_CHECKING:
    from workloads.rows.ops import LogItem

COLLECTIVE = WORDS | dict.fromkeys(ROOTED, BROADCAST)
_SENDS = ("isend",)
MOST_ROWS = 20_000_000  # of an iteration, each some hundred bytes


def read_aicb(path: Path, arguments: argparse.Namespace) -> MadeRows:
    """The first iteration of the file. Sizes of groups are those of its parameters' record, else of its rows.

    Raises:
        InputProblems: the file is malformed or has no iteration.
    """
    from workloads.formats import csvfile
    from workloads.formats.workload import Workload
    from workloads.job.errors import WorkloadFileError

    try:
        workload, args = Workload.load(path)
        stages = csvfile.sections(path)
    except WorkloadFileError as error:
        raise input_problem("-w", None, str(error)) from None
    first = workload.epoch(1) if workload.iterations else ()
    if not first:
        raise input_problem("-w", path, "has no iteration: no row epoch_end after the set-up's")
    if len(first) > MOST_ROWS:
        raise input_problem("-w", path, f"has {len(first)} rows an iteration; allowed: {MOST_ROWS}")
    rows = _rows_of(first)
    lines, sends, sizes, notes = rows.lines, rows.sends, rows.sizes, rows.notes
    pp, world = 2 if sends else 1, 0
    if args is not None:
        sizes |= {TP: args.tensor_model_parallel_size, EP: args.expert_model_parallel_size}
        pp, world = args.pipeline_model_parallel, args.world_size
    elif stages > 1:
        pp = stages
    elif sends and arguments.pp is None:
        raise input_problem(
            "--pp", None, f"is missing: {path} sends between stages but does not say how many there are"
        )
    micro_batches = max(1, len(sends) if pp > 1 else 1)
    header = WorkloadHeader(
        sizes.get(TP, 1), sizes.get(EP, 1), pp, 1, micro_batches, world,
        sum(sends) // len(sends) if sends else 0, len(lines), False, tuple(notes),
    )  # fmt: skip
    return MadeRows(path, header, lines)


class _Rows(NamedTuple):
    """An iteration's lines, the bytes of its sends between stages, and the sizes of groups that its rows state."""

    lines: list[NamedRow]
    sends: list[int]
    sizes: dict[str, int]
    notes: list[str]


def _rows_of(items: Iterable[LogItem]) -> _Rows:
    rows, untimed = _Rows([], [], {}, []), 0
    for item in items:
        kind, group = item.comm_type.name, "" if item.comm_group is None else GROUP.get(item.comm_group.name, ALL)
        if group and item.comm_group_size:
            rows.sizes.setdefault(group, item.comm_group_size)
        if kind in _SENDS:
            rows.sends.append(int(item.comm_bytes))
        elif kind == "computation":
            untimed += item.elapsed_time is None
            rows.lines.append(_row(item.stage, Phase(int(item.elapsed_time or 0))))
        elif kind in COLLECTIVE:
            rows.lines.append(_row(item.stage, Phase(0, COLLECTIVE[kind], int(item.comm_bytes), group)))
    if untimed:
        rows.notes.append(f"{untimed} computations have no time and count as 0: fill them with --aiob_enable")
    return rows


def _row(stage: str, phase: Phase) -> NamedRow:
    """A row: forward and backward work in their phases; what a stage does once an iteration in the last."""
    at = 0 if stage.startswith("forward") else 1 if stage.startswith("backward") else 2
    return once(stage or "computation", at, phase)
