"""Writes what SimAI's ns-3 writes: the times of the rows of an iteration."""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from simulation.flows.names import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER
from simulation.network.hashing import address
from simulation.network.job import (
    FORWARD,
    INPUT_GRADIENT,
    SENDS,
    TRANSFER,
    WAITS,
    WEIGHT_GRADIENT,
    GroupCollective,
    Job,
    JobPart,
    JobPhase,
)

if TYPE_CHECKING:
    from simulation.network.routing import Ints  # which needs numpy

GIB = 1 << 30
ONE_JOB = "test1"  # stands where SimAI has the name of a test
FIRST_LINE = (
    "File name, Expose DP comm, Expose DP_EP comm, Expose TP comm, Expose_EP_comm, Expose_PP_comm, bubble time, "
    "total comp, total exposed comm, Total time\n"
)
COLUMNS = (
    "layer_name,{name},fwd compute,wg compute,ig compute,fwd exposed comm,wg exposed comm,ig exposed comm,"
    "fwd total comm,algbw,busbw,wg total comm,algbw,busbw,ig total comm,algbw,busbw,workload finished at\n"
)
_FACTORS = {ALL_REDUCE: 2.0, ALL_GATHER: 1.0, REDUCE_SCATTER: 1.0, ALL_TO_ALL: 1.0}
_NONE = ",-nan,0.000000"


class _PhaseTimes(NamedTuple):
    """A phase on rank 0, in us."""

    compute: float
    exposed: float
    total: float
    collective: GroupCollective | None


class RankTimes(NamedTuple):
    """The times of one rank in a run (ns, -1: not yet).

    By collective: when the rank came to its part and when that ended. `moved` is how long the transfer took that a rank
    received, by collective; `walked` when it was through its steps, `finished` when what it queued was done, too.
    """

    begin: Sequence[int]
    end: Sequence[int]
    moved: Mapping[int, int]
    walked: int
    finished: int


class RanksRun(Protocol):
    """A run of which the times of each rank are known, at whichever level; `finished` are ns by rank."""

    @property
    def finished(self) -> "Sequence[int] | Ints": ...

    def of_rank(self, rank: int) -> RankTimes:
        """The times of one rank."""

    def parts_of(self, rank: int) -> tuple[Sequence[int], Sequence[int]]:
        """By collective: when a rank came to its part and when that ended (ns, -1: not yet)."""

    def kind_of(self, rank: int) -> int:
        """A number that is the same for ranks with the same times."""


class IterationTimes:
    """The times of an iteration on the first rank of a job: the rows of which all phases have ended."""

    def __init__(self, job: Job, part: JobPart, run: RankTimes, slowness: float = 1.0) -> None:
        self._run, self._job, self._slowness = run, job, slowness
        self.total_us = (run.finished if run.finished >= 0 else max([0, *run.end])) / 1000
        rows: list[dict[int, _PhaseTimes | None]] = [{} for _row in part.rows]
        self.phases: list[_PhaseTimes] = []
        self.bubble_us = 0.0
        phases = job.phases(part.first)
        come = _come(phases, run)
        for place, phase in enumerate(phases):
            times = None
            if place < come if phase.collective is None else run.end[phase.collective] >= 0:
                times = self._times(phase, part.rows.start)
                self.phases.append(times)
            if phase.part != TRANSFER:
                rows[phase.row - part.rows.start][phase.part] = times
        names = (job.names[row] for row in part.rows)
        self.rows = [
            (name, [times for _part, times in sorted(row.items()) if times])
            for name, row in zip(names, rows, strict=True)
            if None not in row.values()
        ]
        self.compute_us = sum(each.compute for _name, row in self.rows for each in row)

    def _times(self, phase: JobPhase, first_row: int) -> _PhaseTimes:
        compute = phase.compute_ns * self._slowness / 1000
        if phase.collective is None:
            return _PhaseTimes(compute, 0.0, 0.0, None)
        collective, run = self._job.collectives[phase.collective], self._run
        asked, ended = run.begin[phase.collective], run.end[phase.collective]
        if phase.mode == SENDS or (phase.part == TRANSFER and ended <= asked):
            return _PhaseTimes(compute, 0.0, 0.0, collective)
        ended += collective.end_gap_ns
        total = (ended - asked) / 1000
        if phase.part == TRANSFER:
            moved = min(total, run.moved[phase.collective] / 1000)
            self.bubble_us += total - moved
            return _PhaseTimes(compute, moved, total, collective)
        if phase.mode == WAITS:
            return _PhaseTimes(compute, total, total, collective)
        # Of those that do not block only the first row's is waited for by the loop itself.
        waits = phase.row == first_row and run.walked >= 0
        return _PhaseTimes(compute, max(ended - run.walked, 0) / 1000 if waits else 0.0, total, collective)

    def exposed_us(self, kind: str) -> float:
        """The exposed time of collectives of a kind of groups."""
        return sum(each.exposed for each in self.phases if each.collective and each.collective.kind == kind)

    def lines(self, name: str = ONE_JOB) -> Iterator[str]:
        """The file *EndToEnd.csv."""
        exposed = self.total_us - self.compute_us
        shown = [self.exposed_us(kind) for kind in ("DP", "DP_EP", "TP", "EP", "PP")]
        cells = [*shown, self.bubble_us, self.compute_us, exposed]
        yield FIRST_LINE
        yield f"{name}, {''.join(f'{each:.0f} ({self._percent(each)}), ' for each in cells)}{self.total_us:.0f}\n"
        yield COLUMNS.format(name=name)
        for row_name, row in self.rows:
            yield self._row(row_name, name, row)
        yield self._sum(name)
        yield (f"total exposed comm,{exposed:.6f},total comp,{self.compute_us:.6f},total time,{self.total_us:.6f}\n")

    def _percent(self, part_us: float) -> str:
        return f"{100 * part_us / self.total_us if self.total_us else 0:.2f}%"

    def _row(self, row_name: str, name: str, row: list[_PhaseTimes]) -> str:
        order = [row[FORWARD], row[WEIGHT_GRADIENT], row[INPUT_GRADIENT]] if len(row) == 3 else [row[0]] * 3
        cells = [f"{each.compute:.6f}" for each in order] + [f"{each.exposed:.6f}" for each in order]
        totals = "".join(f",{each.total:.6f}{_bandwidths(each)}" for each in order)
        return f"{row_name},{name},{','.join(cells)}{totals},{self.total_us:.6f}\n"

    def _sum(self, name: str) -> str:
        order = (FORWARD, WEIGHT_GRADIENT, INPUT_GRADIENT)
        rows = [row for _name, row in self.rows]
        sums = [sum(row[part].compute for row in rows if part < len(row)) for part in order]
        sums += [sum(row[part].exposed for row in rows if part < len(row)) for part in order]
        totals = [sum(row[part].total for row in rows if part < len(row)) for part in order]
        cells = [f"{each:.6f}" for each in sums] + [f"{each:.6f},NONE,NONE" for each in totals]
        return f"SUM,{name},{','.join(cells)}\n"


def _come(phases: Sequence[JobPhase], run: RankTimes) -> int:
    """How many of its phases a rank has begun the collective of, or was through before."""
    if run.walked >= 0:
        return len(phases)
    places = (place for place in reversed(range(len(phases))) if _has_begun(phases[place], run))
    return next(places, -1) + 1


def _has_begun(phase: JobPhase, run: RankTimes) -> bool:
    return phase.collective is not None and run.begin[phase.collective] >= 0


def _bandwidths(times: _PhaseTimes) -> str:
    """Algorithm and bus bandwidth in GiB/s, which SimAI calls GB/s, in its single precision."""
    if times.collective is None or times.total <= 0:
        return _NONE
    members = times.collective.group_ranks
    algbw = _single(times.collective.size_bytes / GIB / (times.total / 1e6))
    factor = _FACTORS.get(times.collective.op)
    busbw = _single(algbw * (factor * (members - 1) / members if factor else 1.0))
    return f",{algbw:.6f},{busbw:.6f}"


def _single(value: float) -> float:
    """A number as a 32-bit float holds it."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def address_text(node: int) -> str:
    """The address of a node as fct.txt has it."""
    return f"{address(node):08x}"
