"""Reads what a job computes and sends: the rows of a SimAI workload in the order of an iteration, or one collective."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from common.errors import MistakeList, input_problem
from simulation.analytical.workload import TextWorkload
from simulation.flows.groups import (
    EVERY_KIND,
    ORIGINAL_KINDS,
    ParallelSizes,
    RankGroup,
    megatron_groups,
    original_groups,
)
from simulation.flows.train import FlowSchedule
from simulation.flows.workload import MOST_MISTAKES, OP_OF_CELL
from workloads.formats.simai_text import NONE, LayerPhase, Row, row_cells, row_of, split_row

SMALLEST_BYTES = 4096  # SimAI sends no less in a collective
DEFAULT_END_GAP_NS = 100

Schedules = Callable[[str, RankGroup, int], FlowSchedule]


class GroupCollective(NamedTuple):
    """One collective of all groups of a kind. `end_gap_ns`: from its end on a rank to the rank's next step."""

    op: str
    kind: str
    size_bytes: int
    group_ranks: int
    schedules: list[FlowSchedule]
    end_gap_ns: int


class JobPhase(NamedTuple):
    """One phase: computation, then a collective by its number (None: nothing is sent), which the rank waits for or not.

    `row` is the row's number from 0, `part` 0 forward, 1 input gradient, 2 weight gradient.
    """

    row: int
    part: int
    compute_ns: int
    collective: int | None
    blocks: bool


class Job(NamedTuple):
    """An iteration: the names of its rows, its phases in order, its collectives."""

    names: list[str]
    phases: list[JobPhase]
    collectives: list[GroupCollective]
    ranks: int


def groups_by_kind(sizes: ParallelSizes, *, original: bool) -> dict[str, list[RankGroup]]:
    """All groups of more than one rank, each once."""
    found: dict[str, dict[tuple[int, ...], RankGroup]] = {}
    for group in original_groups(sizes) if original else megatron_groups(sizes, EVERY_KIND):
        found.setdefault(group.kind, {}).setdefault(group.members, group)
    return {kind: list(groups.values()) for kind, groups in found.items()}


class _Collectives:
    """Numbers the collectives of a job; equal ones share their schedules."""

    def __init__(self, groups: dict[str, list[RankGroup]], schedules: Schedules) -> None:
        self.groups, self.schedules = groups, schedules
        self.found: list[GroupCollective] = []
        self._known: dict[tuple[str, str, int], list[FlowSchedule]] = {}

    def number(self, op: str, kind: str, size_bytes: int, end_gap_ns: int) -> int | None:
        """The number of a new collective; None where its groups have one rank."""
        groups = self.groups.get(kind)
        if not groups:
            return None
        size = max(size_bytes, SMALLEST_BYTES)
        key = (op, kind, size)
        if key not in self._known:
            self._known[key] = [self.schedules(op, group, size) for group in groups]
        members = len(groups[0].members)
        self.found.append(GroupCollective(op, kind, size, members, self._known[key], end_gap_ns))
        return len(self.found) - 1


def job_of_workload(
    workload: TextWorkload, groups: dict[str, list[RankGroup]], schedules: Schedules, ranks: int
) -> Job:
    """One iteration: rows forward, then back with input before weight gradients, which do not block.

    Raises:
        InputProblems: rows are wrong, or the workload has a pipeline.
    """
    header = workload.header
    if header.pp > 1:
        raise input_problem(f"{workload.path}, line 1", f"pp: {header.pp}", "must be 1: stages are not simulated yet")
    names, rows = _rows(workload)
    collectives = _Collectives(groups, schedules)
    phases = [_phase(number, 0, row.forward, gap, collectives) for number, (row, gap) in enumerate(rows)]
    for number, (row, gap) in reversed(list(enumerate(rows))):
        phases.append(_phase(number, 1, row.input_gradient, gap, collectives))
        phases.append(_phase(number, 2, row.weight_gradient, gap, collectives))
    return Job(names, phases, collectives.found, ranks)


def job_of_collective(op: str, kind: str, size_bytes: int, groups: list[RankGroup], schedules: Schedules) -> Job:
    """One collective of all groups, with nothing before it."""
    collectives = _Collectives({kind: groups}, schedules)
    number = collectives.number(op, kind, size_bytes, DEFAULT_END_GAP_NS)
    ranks = 1 + max(member for group in groups for member in group.members)
    return Job([op], [JobPhase(0, 0, 0, number, True)], collectives.found, ranks)


def _rows(workload: TextWorkload) -> tuple[list[str], list[tuple[Row, int]]]:
    """Names and rows, each with the gap after its collectives (its last cell, ns)."""
    mistakes = MistakeList()
    names, rows = [], []
    kinds = ORIGINAL_KINDS if workload.lenient else [kind for kind in EVERY_KIND if kind != "PP"]
    for line in (line for block in workload.blocks() for line in block):
        name, rest = split_row(line)
        names.append(name.decode("utf-8", "replace"))
        place = workload.place(len(names))
        try:
            cells = row_cells(rest, lenient=workload.lenient)
            row = row_of(cells)
            rows.append((row, cells.process_ns))
        except ValueError as error:
            mistakes.add(place, None, str(error))
        else:
            for phase in row:
                _check(phase, place, kinds, mistakes)
        if len(mistakes.mistakes) >= MOST_MISTAKES:
            mistakes.check()
    workload.check_rows(len(names))
    mistakes.check()
    return names, rows


def _check(phase: LayerPhase, place: str, kinds: Sequence[str], mistakes: MistakeList) -> None:
    if phase.collective == NONE or not phase.size:
        return
    if phase.collective not in OP_OF_CELL:
        mistakes.add(place, phase.collective, f"allowed is {', '.join(OP_OF_CELL)} or {NONE}")
    elif phase.group not in kinds:
        mistakes.add(place, phase.group, f"has no flows; allowed groups are {', '.join(kinds)}")


def _phase(number: int, part: int, phase: LayerPhase, gap: int, collectives: _Collectives) -> JobPhase:
    found = None
    if phase.collective != NONE and phase.size:
        found = collectives.number(OP_OF_CELL[phase.collective], phase.group, phase.size, gap)
    return JobPhase(number, part, phase.compute_ns, found, part < 2)


def phases_of(job: Job, row: int) -> Iterator[JobPhase]:
    """The phases of a row: forward, input gradient, weight gradient."""
    return (phase for phase in job.phases if phase.row == row)
