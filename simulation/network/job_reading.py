"""Reads what a job computes and sends: the rows of a SimAI workload in the order of an iteration, or one collective."""

from collections.abc import Sequence
from typing import NamedTuple

from common.errors import MistakeList
from simulation.analytical.schedules import INTERLEAVED
from simulation.analytical.workload import TextWorkload
from simulation.flows.copies import Schedules
from simulation.flows.groups import RankGroup
from simulation.flows.names import EVERY_KIND, OP_OF_CELL, ORIGINAL_KINDS, SEND_RECEIVE
from simulation.flows.train import FlowSchedule
from simulation.flows.workload import MOST_MISTAKES
from simulation.network.job import (
    QUEUES,
    WAITS,
    WEIGHT_GRADIENT,
    GroupCollective,
    Job,
    JobPart,
    JobPhase,
)
from simulation.network.pipeline import (
    RowPhases,
    StagePrograms,
    Stages,
    check_stages,
    micro_batches_of,
    transfer_schedule,
)
from workloads.formats.simai_text import NONE, Phase, Row, row_cells, row_of, split_row

SMALLEST_BYTES = 4096  # SimAI sends no less in a collective
MOST_BYTES = 1 << 50  # of a collective
DEFAULT_END_GAP_NS = 100


class JobGroups(NamedTuple):
    """Where a job runs and how it sends: its first rank, the number of its ranks, its groups by kind, their flows."""

    first: int
    ranks: int
    groups: dict[str, list[RankGroup]]
    schedules: Schedules


class _Collectives:
    """Numbers the collectives of a job; equal ones share their schedules."""

    def __init__(self, where: JobGroups) -> None:
        self.where = where
        self.found: list[GroupCollective] = []
        self._known: dict[tuple[str, str, int], list[FlowSchedule]] = {}

    def number(self, op: str, kind: str, size_bytes: int, end_gap_ns: int) -> int | None:
        """The number of a new collective; None where its groups have one rank."""
        groups = self.where.groups.get(kind)
        if not groups:
            return None
        size = max(size_bytes, SMALLEST_BYTES)
        key = (op, kind, size)
        if key not in self._known:
            self._known[key] = [self.where.schedules(op, group, size) for group in groups]
        number = self._added(op, kind, size, len(groups[0].members), self._known[key], end_gap_ns)
        self.found[number] = self.found[number]._replace(groups=groups)
        return number

    def transfer(self, source: int, target: int, stages: int, size_bytes: int) -> int:
        """The number of a new transfer from one stage of a pipeline to another."""
        key = (SEND_RECEIVE, f"{source} {target}", size_bytes)
        if key not in self._known:
            ranks = self.where.ranks // stages
            first = self.where.first + source * ranks
            ends = ((rank, rank + (target - source) * ranks) for rank in range(first, first + ranks))
            self._known[key] = [transfer_schedule(*pair, size_bytes) for pair in ends]
        return self._added(SEND_RECEIVE, "PP", size_bytes, 2, self._known[key], DEFAULT_END_GAP_NS)

    def _added(self, op: str, kind: str, size: int, members: int, flows: list[FlowSchedule], gap: int) -> int:
        self.found.append(GroupCollective(op, kind, size, members, flows, gap))
        return len(self.found) - 1

    def phase(self, number: int, part: int, phase: Phase, gap: int) -> JobPhase:
        """A phase of row `number`, with its collective."""
        found = None
        if phase.collective != NONE and phase.size:
            found = self.number(OP_OF_CELL[phase.collective], phase.group, phase.size, gap)
        return JobPhase(number, part, phase.compute_ns, found, QUEUES if part == WEIGHT_GRADIENT else WAITS)


def job_of_workload(workload: TextWorkload, where: JobGroups, schedule: str, chunks: int) -> Job:
    """One iteration: rows forward, then back with input before weight gradients, which do not block.

    Args:
        schedule: that of a pipeline, one of PIPELINES; `chunks` are those of a stage if it is interleaved.

    Raises:
        InputProblems: rows are wrong, or are no micro-batches of a pipeline.
    """
    names, read = read_rows(workload)
    made = _Collectives(where)
    forward = [made.phase(number, 0, row.forward, gap) for number, (row, gap) in enumerate(read)]
    back: dict[int, tuple[JobPhase, JobPhase]] = {}
    for number, (row, gap) in reversed(list(enumerate(read))):
        back[number] = made.phase(number, 1, row.input_gradient, gap), made.phase(number, 2, row.weight_gradient, gap)
    rows = [RowPhases(phase, back[number]) for number, phase in enumerate(forward)]
    part = JobPart(workload.path.stem, where.first, where.ranks, range(len(names)))
    idle = [0] * where.first
    header = workload.header
    if header.pp == 1:
        phases = forward + [phase for row in reversed(rows) for phase in row.back]
        return Job(names, [[], phases], [*idle, *[1] * where.ranks], made.found, [part])
    stages = Stages(schedule, header.pp, header.ga, chunks if schedule == INTERLEAVED else 1)
    place = f"{workload.path}, line 1"
    sent = [
        (name, *((each.collective, each.group, each.size) for each in row))
        for name, (row, _gap) in zip(names, read, strict=True)
    ]
    batches = micro_batches_of(sent, header.ga, place)
    check_stages(stages, header.pp_comm, batches, place)
    programs = StagePrograms(
        stages, rows, batches, lambda source, target: made.transfer(source, target, header.pp, header.pp_comm)
    )
    stage_of = [1 + rank * header.pp // where.ranks for rank in range(where.ranks)]
    return Job(names, [[], *map(programs.program, range(header.pp))], [*idle, *stage_of], made.found, [part])


def job_of_collective(op: str, kind: str, size_bytes: int, where: JobGroups) -> Job:
    """One collective of all groups of a kind, with nothing before it."""
    made = _Collectives(where)
    phase = JobPhase(0, 0, 0, made.number(op, kind, size_bytes, DEFAULT_END_GAP_NS), WAITS)
    return Job([op], [[phase]], [0] * where.ranks, made.found, [JobPart(op, where.first, where.ranks, range(1))])


def together(jobs: Sequence[Job]) -> Job:
    """Several jobs, which share no rank, as one."""
    if len(jobs) == 1:
        return jobs[0]
    names: list[str] = []
    programs: list[list[JobPhase]] = [[]]
    program_of = [0] * max(job.ranks for job in jobs)
    collectives: list[GroupCollective] = []
    parts = []
    for job in jobs:
        (part,) = job.parts
        for rank in range(part.first, part.first + part.ranks):
            program_of[rank] = len(programs) + job.program_of[rank]
        programs += [[_shifted(phase, len(names), len(collectives)) for phase in each] for each in job.programs]
        parts.append(part._replace(rows=range(len(names), len(names) + len(job.names))))
        names += job.names
        collectives += job.collectives
    return Job(names, programs, program_of, collectives, parts)


def _shifted(phase: JobPhase, rows: int, collectives: int) -> JobPhase:
    number = None if phase.collective is None else phase.collective + collectives
    return phase._replace(row=phase.row + rows if phase.row >= 0 else phase.row, collective=number)


def read_rows(workload: TextWorkload) -> tuple[list[str], list[tuple[Row, int]]]:
    """Names and rows, each with the gap after its collectives (its last cell, ns).

    Raises:
        InputProblems: rows are wrong, or are not as many as the file says.
    """
    mistakes = MistakeList()
    names, rows = list[str](), list[tuple[Row, int]]()
    kinds = ORIGINAL_KINDS if workload.lenient else [kind for kind in EVERY_KIND if kind != "PP"]
    with mistakes.noted():
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


def _check(phase: Phase, place: str, kinds: Sequence[str], mistakes: MistakeList) -> None:
    if phase.collective == NONE or not phase.size:
        return
    if phase.collective not in OP_OF_CELL:
        mistakes.add(place, phase.collective, f"allowed is {', '.join(OP_OF_CELL)} or {NONE}")
    elif phase.size > MOST_BYTES:
        mistakes.add(place, f"{phase.size} bytes", f"must be at most {MOST_BYTES >> 40}T")
    elif phase.group not in kinds:
        mistakes.add(place, phase.group, f"has no flows; allowed groups are {', '.join(kinds)}")
