"""Finds the ranks that arrive last at operations, and how long each rank kept the others waiting in the whole run.

A rank keeps the others of an operation waiting where it arrives later than most of them and lost the time itself: what
counts is at most what its own time since its last operation with the same ranks is longer than usual. Own time is that
outside of operations with others: the gaps before all operations since, and computation. So two ranks that are late
together, as those of a slow host, are told where they meet others. Usual is the lower median of the members' own times
before the same collective, so that a rank that is late in each iteration counts; of a send and its receive, whose ends
do different work, the lower quartile of the rank's own times at that place. What one rank lost is seen by several of
its teams: that which waited the longest for it counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from workloads.analysis.merged import Flags, Merged, OpClass, index_of
from workloads.oplog.file import Numbers

POINT_TO_POINT = ("isend", "irecv")
LEAST_SHARE = 0.02
"""The least of a run's time that a late rank took, by ms of all iterations."""
STANDS_OUT = 4
"""How many times the median of the other ranks a late rank's total is."""
LEAST_TIMES = 3
"""In how many iterations a rank is late at least: once or twice is a finding of those iterations, or none."""
HALF, QUARTILE = 2, 4


@dataclass(frozen=True, slots=True)
class LastRank:
    """The rank that most often arrives last at a class of operations of one team: a straggler if that is always it.

    share: of the operations (0 to 1), lateness_ms: median time after the second-last where it was the last.
    """

    op_class: OpClass
    team: tuple[int, ...]
    rank: int
    share: float
    lateness_ms: float
    operations: int


@dataclass(frozen=True, slots=True)
class LateRank:
    """How long a rank kept others waiting in all iterations: total_ms, and as a share (0 to 1) of the run's time.

    iterations: in how many of them it did so for more than the others usually do in one. threshold_ms: the total above
    which it stands out, the larger of LEAST_SHARE of the run's time and STANDS_OUT times the others' median. finding:
    whether it does, in at least LEAST_TIMES iterations.
    """

    rank: int
    total_ms: float
    share: float
    iterations: int
    threshold_ms: float
    finding: bool

    def __str__(self) -> str:
        return (
            f"rank {self.rank} kept the others waiting for {self.total_ms:.2f} ms in all, {self.share:.1%} of the run, "
            f"in {self.iterations} iterations (above {self.threshold_ms:.2f} ms)"
        )


def late_ranks(merged: Merged, run_ms: float, *, cpu: bool) -> list[LateRank]:
    """Each rank's total, the largest first; run_ms: of all iterations; cpu: waits for a CPU do not count."""
    if len(merged.ranks) < 2 or not len(merged):
        return []
    late_ns = _own_lateness(merged, cpu=cpu)
    ranks, rank = np.unique(merged.rank, return_inverse=True)
    numbers, iteration = np.unique(merged.iteration, return_inverse=True)
    cells = np.zeros((len(ranks), len(numbers)))
    for place in range(len(ranks)):
        mine = np.flatnonzero((rank == place) & (late_ns > 0))
        teams, team = np.unique(merged.team[mine], return_inverse=True)
        most = int(np.bincount(team, weights=late_ns[mine]).argmax()) if len(teams) else 0
        kept = mine[team == most]
        cells[place] = np.bincount(iteration[kept], weights=late_ns[kept] / 1e6, minlength=len(numbers))
    totals = cells.sum(axis=1)
    found = []
    for place, number in enumerate(ranks.tolist()):
        others = np.delete(cells, place, axis=0)
        threshold = max(LEAST_SHARE * run_ms, STANDS_OUT * float(np.median(others.sum(axis=1))))
        usual = STANDS_OUT * float(np.median(others))
        times = int((cells[place] > max(usual, LEAST_SHARE * run_ms / len(numbers))).sum())
        total = float(totals[place])
        share = total / run_ms if run_ms else 0.0
        stands_out = total > threshold and times >= LEAST_TIMES
        found.append(LateRank(number, round(total, 6), share, times, round(threshold, 6), stands_out))
    return sorted(found, key=lambda each: -each.total_ms)


def _own_lateness(merged: Merged, *, cpu: bool) -> Numbers:
    """ns that each record kept the others of its operation waiting by its own time, shape (records,)."""
    alone = np.array([len(team) == 1 for team in merged.teams])[merged.team]
    own = _since_the_team_met(merged, merged.gap_ns + np.where(alone, merged.done_ns - merged.issue_ns, 0))
    moves = np.isin([each.comm_type for each in merged.classes], POINT_TO_POINT)[merged.op_class]
    of_rank = _share_below(own, index_of(merged.rank, merged.place, merged.team), QUARTILE)
    usual = np.where(moves, of_rank, _share_below(own, merged.together, HALF))
    kept_waiting = merged.issue_ns - _share_below(merged.issue_ns, merged.together, HALF)
    late = np.minimum(kept_waiting, own - usual)
    if cpu:
        late = late - _since_the_team_met(merged, merged.queued_ns)
    return np.where(alone, 0, np.clip(late, 0, None))


def _since_the_team_met(merged: Merged, values: Numbers) -> Numbers:
    """Sums of a rank's values after its record before of the same team, up to this record, shape (records,)."""
    order = np.lexsort((merged.issue_ns, merged.iteration, merged.rank))
    sums = np.zeros(len(merged), np.int64)
    sums[order] = np.cumsum(values[order])
    kind = index_of(merged.rank, merged.team)
    order = order[np.argsort(kind[order], kind="stable")]
    before = np.concatenate((sums[order][:1], sums[order][:-1]))
    is_first = np.diff(kind[order], prepend=-1) != 0
    # A team's first record has nothing before it that its ranks have in common: its own value counts.
    before[is_first] = (sums - values)[order][is_first]
    found = np.zeros(len(merged), np.int64)
    found[order] = sums[order] - before
    return found


def _last_two(merged: Merged) -> tuple[Numbers, Numbers]:
    """The records that arrive last and second-last at each operation of more than one rank."""
    order = np.lexsort((merged.issue_ns, merged.together))
    together = merged.together[order]
    ends: Numbers = np.flatnonzero(np.diff(together, append=-1) != 0)
    several: Flags = (ends > 0) & (together[ends - 1] == together[ends])
    ends = ends[several]
    return order[ends], order[ends - 1]


def _share_below(values: Numbers, group: Numbers, parts: int) -> Numbers:
    """For each record the value below which one part of `parts` of its group lies, the lower one, shape (records,)."""
    order = np.lexsort((values, group))
    counts = np.bincount(group)
    starts = np.cumsum(counts) - counts
    found: Numbers = values[order][starts + (counts - 1) // parts][group]
    return found


def last_ranks(merged: Merged) -> Iterator[LastRank]:
    """The ranks that arrive last, by class and team of two or more; the class is that of the team's first rank."""
    last, before = _last_two(merged)
    late_ms = (merged.issue_ns[last] - merged.issue_ns[before]) / 1e6
    first = np.unique(merged.together, return_index=True)[1]
    op_class = merged.op_class[first][merged.together[last]]
    kind = index_of(op_class, merged.team[last])
    for number in range(int(kind.max(initial=-1)) + 1):
        mine = np.flatnonzero(kind == number)
        ranks, counts = np.unique(merged.rank[last[mine]], return_counts=True)
        rank = int(ranks[counts.argmax()])
        lateness = float(np.median(late_ms[mine][merged.rank[last[mine]] == rank]))
        record = int(last[mine[0]])
        yield LastRank(
            merged.classes[op_class[mine[0]]], merged.teams[merged.team[record]], rank,
            float(counts.max() / len(mine)), lateness, len(mine),
        )  # fmt: skip
