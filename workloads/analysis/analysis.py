"""Finds what explains the jitter of an executed workload: iteration, class of operation, rank, and in which way.

Each record's gap, common and own time (see `merged`) is compared with the median of the same place over the iterations;
what is above it is summed by class and rank in each iteration: a cell. The cells of an iteration, the largest first,
explain its excess over the median iteration.

A cell is a finding if it stands out from the noise of its own run: it is several times the third-largest iteration
among the cells of its kind that are of other ranks, or of another team. (A threshold by MAD would not do: a cell of a
clean run may be 100 MADs large, because a process that the scheduler preempts loses whole time slices.)

On backends that run on the CPU it has to be more than a few time slices as well. Time between two operations is lost
rarely there, because a rank is running then; time inside of one often, because each rank has to be woken in its turn:
40 ms, and now and then 400 ms, of a clean run on an oversubscribed machine, as measured. So a late rank is found far
below the noise of the collectives that it delays, and a collective is blamed only where no scheduler explains it.

No threshold on times can tell a rank that is 36 ms late because it was preempted from one that is late by itself: both
are one late arrival, and noise of which a run has one event says nothing of how large the next is. The kernel tells
them apart: it counts how long a thread was ready without a CPU, and the log has that of each long gap. On a backend of
the CPU it is listed, and counts neither for a finding nor for the noise. On others a rank without a CPU is a fault.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from workloads.analysis.arrivals import LastRank, LateRank, last_ranks, late_ranks
from workloads.analysis.merged import Merged, OpClass, index_of
from workloads.oplog.file import Numbers

Reals: TypeAlias = NDArray[np.float64]
Kind: TypeAlias = Literal["late", "collective", "slow"]
KINDS: dict[Kind, str] = {
    "late": "arrived late: the rank lost the time before the operation",
    "collective": "slow collective: every rank had arrived",
    "slow": "slow rank: it needed longer than the fastest after all had arrived",
}
STANDS_OUT: dict[Kind, float] = {"late": 4, "collective": 5, "slow": 5}
"""How many times the noise of its run a finding has to be."""
CPU_STANDS_OUT: dict[Kind, float] = {"late": 2, "collective": 5, "slow": 5}
"""The same on a backend of the CPU, where the floor keeps most of the scheduler's noise out."""
CPU_FLOOR_MS: dict[Kind, float] = {"late": 12, "collective": 1000, "slow": 1000}
"""The least ms of a finding on a backend of the CPU: three time slices; what no scheduler explains."""
FLOOR_MS: dict[Kind, float] = {"late": 0.05, "collective": 0.1, "slow": 0.1}
CPU_BACKENDS = ("gloo", "mpi")
NOISE_RANK = 3
"""The noise is the so many largest iteration of the others, so that other faults do not hide one."""
LEAST_ITERATIONS = 8
MOST_LISTED = 10
"""How many iterations are listed, and how many cells of each."""


@dataclass(frozen=True, slots=True)
class LostTime:
    """Time that a class of operations lost on a rank in an iteration, against the median of each one's place.

    rank: None for a collective that was slow for all its ranks. excess_ms: sum of the positive differences.
    threshold_ms: what stands out from the noise of the run; finding: whether the excess is above that.
    queued_ms: what of the excess the rank waited for a CPU; on a backend of the CPU it does not count for a finding.
    """

    iteration: int
    kind: Kind
    op_class: OpClass
    rank: int | None
    team: tuple[int, ...]
    excess_ms: float
    threshold_ms: float
    finding: bool
    queued_ms: float = 0.0

    def __str__(self) -> str:
        who = f"rank {self.rank}" if self.rank is not None else f"ranks {_short(self.team)}"
        queued = f"; for {self.queued_ms:.2f} ms of it no CPU was free" if self.queued_ms else ""
        return f"{who}, {self.op_class}: +{self.excess_ms:.2f} ms, {KINDS[self.kind]}{queued}"


@dataclass(frozen=True, slots=True)
class Slowest:
    """One iteration: its ms, how much that is above the median, and its cells, the largest first."""

    iteration: int
    ms: float
    excess_ms: float
    cells: tuple[LostTime, ...]


@dataclass(frozen=True, slots=True)
class RunAnalysis:
    """The analysis of a run's logs.

    findings: those the farthest above their threshold first. late: how long each rank kept the others waiting in the
    whole run, the longest first. iterations: the slowest first. last: by class and team.
    """

    ranks: list[int]
    iteration_count: int
    median_ms: float
    mad_ms: float
    findings: list[LostTime]
    late: list[LateRank]
    iterations: list[Slowest]
    last: list[LastRank]
    clock_error_ms: float = 0.0

    @property
    def late_findings(self) -> list[LateRank]:
        """The ranks that took so much of the run that it stands out."""
        return [each for each in self.late if each.finding]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, for JSON; times in ms."""
        return asdict(self)


def analyze(merged: Merged, *, backend: str = "", clock_error_ns: int = 0) -> RunAnalysis:
    """Find what stands out in a run. backend: torch's name of it."""
    times = _iteration_ms(merged)
    median = float(np.median(list(times.values()))) if times else 0.0
    mad = float(np.median([abs(each - median) for each in times.values()])) if times else 0.0
    slowest = sorted(times, key=lambda each: (-times[each], each))[:MOST_LISTED]
    cells: list[LostTime] = []
    late: list[LateRank] = []
    if len(times) >= LEAST_ITERATIONS:
        for kind in KINDS:
            cells += _judged(merged, kind, slowest, cpu=backend in CPU_BACKENDS)
        late = late_ranks(merged, sum(times.values()), cpu=backend in CPU_BACKENDS)
    cells.sort(key=lambda cell: -cell.excess_ms)
    by_iteration: dict[int, list[LostTime]] = {}
    for cell in cells:
        by_iteration.setdefault(cell.iteration, []).append(cell)
    findings = sorted((cell for cell in cells if cell.finding), key=lambda cell: -cell.excess_ms / cell.threshold_ms)
    return RunAnalysis(
        merged.ranks, len(times), median, mad, findings, late,
        [Slowest(n, times[n], times[n] - median, tuple(by_iteration.get(n, [])[:MOST_LISTED])) for n in slowest],
        list(last_ranks(merged)), clock_error_ns / 1e6,
    )  # fmt: skip


def _iteration_ms(merged: Merged) -> dict[int, float]:
    """ms of each iteration: of its slowest rank."""
    found: dict[int, float] = {}
    for numbers, spans in merged.iteration_ns.values():
        for number, span in zip(numbers.tolist(), spans.tolist(), strict=True):
            found[number] = max(found.get(number, 0.0), span / 1e6)
    return found


def _judged(merged: Merged, kind: Kind, slowest: Sequence[int], *, cpu: bool) -> Iterator[LostTime]:
    """The findings of a kind, and the MOST_LISTED largest cells of the slowest iterations, with their judgement."""
    values = {"late": merged.gap_ns, "collective": merged.common_ns, "slow": merged.own_ns}[kind]
    excess = np.clip(_above_median(values, index_of(merged.rank, merged.place, merged.team)), 0, None)
    # A collective's common time stands in the records of all its ranks: counted once, with its team.
    if kind == "collective":
        chosen = np.unique(merged.together, return_index=True)[1]
        who = merged.team[chosen]
    else:
        chosen, who = np.arange(len(merged)), merged.rank
    cell = index_of(who, merged.op_class[chosen], merged.iteration[chosen])
    sums = np.bincount(cell, weights=excess[chosen]) / 1e6
    queued = np.zeros(len(sums))
    if kind == "late":
        queued = np.bincount(cell, weights=np.minimum(excess, merged.queued_ns)) / 1e6
    judged = sums - queued if cpu else sums
    sample = chosen[np.unique(cell, return_index=True)[1]]
    # What a rank loses elsewhere is no noise: a rank that is late here and there would hide itself.
    owner = index_of(merged.team[sample], merged.op_class[sample]) if kind == "collective" else merged.rank[sample]
    noises = _noise(judged, owner, merged.iteration[sample])
    floor, times = (CPU_FLOOR_MS[kind], CPU_STANDS_OUT[kind]) if cpu else (FLOOR_MS[kind], STANDS_OUT[kind])
    thresholds = np.maximum(floor, times * noises)
    wanted = set(np.flatnonzero(judged > thresholds).tolist())
    for each in slowest:
        mine = np.flatnonzero((merged.iteration[sample] == each) & (sums > 0))
        wanted.update(mine[np.argsort(-sums[mine])[:MOST_LISTED]].tolist())
    for number in sorted(wanted):
        record, total, threshold = int(sample[number]), float(sums[number]), float(thresholds[number])
        yield LostTime(
            int(merged.iteration[record]), kind, merged.classes[merged.op_class[record]],
            None if kind == "collective" else int(merged.rank[record]), merged.teams[merged.team[record]],
            round(total, 6), round(threshold, 6), bool(judged[number] > threshold), round(float(queued[number]), 6),
        )  # fmt: skip


def _above_median(values: Numbers, place: Numbers) -> Numbers:
    """Values in ns less the median of those with the same place, shape (records,)."""
    if not len(values):
        return values
    order = np.lexsort((values, place))
    counts = np.bincount(place)
    starts = np.cumsum(counts) - counts
    medians: Numbers = values[order][starts + (counts - 1) // 2]
    above: Numbers = values - medians[place]
    return above


def _noise(sums: Reals, owner: Numbers, iteration: Numbers) -> Reals:
    """ms of noise for each cell, shape (cells,): the NOISE_RANK-th largest iteration among the other owners' cells."""
    _, when = np.unique(iteration, return_inverse=True)
    order = np.lexsort((-sums, when))
    first = order[np.flatnonzero(np.diff(when[order], prepend=-1))]
    largest, held_by = sums[first], owner[first]
    others = np.zeros(len(first))
    np.maximum.at(others, when, np.where(owner == held_by[when], 0.0, sums))
    of_owner = np.full(int(owner.max(initial=-1)) + 1, _at_rank(largest))
    for each in np.unique(held_by).tolist():
        of_owner[each] = _at_rank(np.where(held_by == each, others, largest))
    noises: Reals = of_owner[owner]
    return noises


def _at_rank(values: Reals) -> float:
    return float(np.sort(values)[-NOISE_RANK]) if len(values) >= NOISE_RANK else 0.0


def _short(ranks: tuple[int, ...]) -> str:
    return ",".join(map(str, ranks[:8])) + (f" ... ({len(ranks)})" if len(ranks) > 8 else "")
