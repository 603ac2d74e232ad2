"""Aggregates operations for drawing: what each bin of a rank's time is filled with, as spans of time."""

from collections.abc import Iterator

import numpy as np

from workloads.analysis.timeline import Reals, Timeline
from workloads.oplog.file import Numbers

MOST_RUNS = 30_000
"""Bins of one timeline, all ranks together, which bounds its bytes."""
MOST_RANKS = 256
MOST_BINS = 1500
LEAST_FILLED = 0.2
"""A bin with less of its time filled is drawn empty."""


Span = tuple[int, float, float]


def kinds_of(seen: Timeline) -> tuple[Numbers, list[str]]:
    """The kind (type and group) of each record, shape (records,), and the names of the kinds."""
    names: dict[str, int] = {}
    of_class = [names.setdefault(f"{each.comm_type} {each.group}".strip(), len(names)) for each in seen.classes]
    return np.array(of_class, dtype=np.int64)[seen.op_class], list(names)


def spans(
    seen: Timeline,
    kinds: Numbers,
    kind_count: int,
    start_ns: float,
    end_ns: float,
    unit_ns: float,
    most: int = MOST_RUNS,
) -> tuple[list[int], list[list[Span]]]:
    """The first MOST_RANKS ranks, and for each kind its spans between two times in ns: row, begin and end.

    kinds: the kind of each record, shape (records,). Begin and end are counted from `start_ns` on, in units of
    `unit_ns`. A bin belongs to the kind that fills most of it; `most`: bins of all ranks together.
    """
    ranks = np.unique(seen.rank)[:MOST_RANKS].tolist()
    bins = max(50, min(MOST_BINS, most // max(1, len(ranks))))
    edges = np.linspace(start_ns, max(end_ns, start_ns + 1), bins + 1)
    found: list[list[Span]] = [[] for _ in range(kind_count)]
    for row, rank in enumerate(ranks):
        mine = np.flatnonzero((seen.rank == rank) & (seen.end > start_ns) & (seen.start < end_ns))
        covered = np.zeros((kind_count, bins))
        for kind in np.unique(kinds[mine]).tolist():
            those = mine[kinds[mine] == kind]
            covered[kind] = np.diff(_before(seen.start[those], edges) - _before(seen.end[those], edges))
        for kind, begin, end in _runs(covered, edges[1] - edges[0]):
            found[kind].append((row, float(edges[begin] - start_ns) / unit_ns, float(edges[end] - start_ns) / unit_ns))
    return ranks, found


def _before(times: Numbers, edges: Reals) -> Reals:
    """Sum over the times of how far each edge is behind them, 0 where it is before, shape (edges,)."""
    ordered = np.sort(times)
    sums = np.concatenate(([0.0], np.cumsum(ordered, dtype=np.float64)))
    counts = np.searchsorted(ordered, edges)
    behind: Reals = counts * edges - sums[counts]
    return behind


def _runs(covered: Reals, width_ns: float) -> Iterator[tuple[int, int, int]]:
    """Kind, first bin and the bin after the last one: neighbouring bins of one kind are one run."""
    if not len(covered):
        return
    best = covered.argmax(axis=0)
    best[covered.max(axis=0) < LEAST_FILLED * width_ns] = -1
    breaks = np.flatnonzero(np.diff(best, prepend=-2, append=-2))
    for begin, stop in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True):
        if best[begin] >= 0:
            yield int(best[begin]), begin, stop
