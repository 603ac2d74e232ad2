"""Aggregates operations for drawing: what each bin of a rank's time is filled with, as SVG paths of a few kilobytes."""

from collections.abc import Mapping

import numpy as np

from workloads.analysis.timeline import Reals, Timeline
from workloads.oplog.file import Numbers

MOST_RUNS = 30_000
"""Bins of one timeline, all ranks together, which bounds its bytes."""
MOST_RANKS = 256
MOST_BINS = 1500
LEAST_FILLED = 0.2
"""A bin with less of its time filled is drawn empty."""


def paths(
    seen: Timeline, kinds: Numbers, kind_count: int, start_ns: float, end_ns: float
) -> list[tuple[int, Mapping[int, str]]]:
    """For each of the first MOST_RANKS ranks the SVG path of each kind between two times in ns.

    kinds: the kind of each record, shape (records,). x goes from 0 to 1000, y from 0 to 1. A bin has the color of the
    kind that fills most of it.
    """
    ranks = np.unique(seen.rank)[:MOST_RANKS]
    bins = max(50, min(MOST_BINS, MOST_RUNS // max(1, len(ranks))))
    edges = np.linspace(start_ns, max(end_ns, start_ns + 1), bins + 1)
    found: list[tuple[int, Mapping[int, str]]] = []
    for rank in ranks.tolist():
        mine = np.flatnonzero((seen.rank == rank) & (seen.end > start_ns) & (seen.start < end_ns))
        covered = np.zeros((kind_count, bins))
        for kind in np.unique(kinds[mine]).tolist():
            those = mine[kinds[mine] == kind]
            covered[kind] = np.diff(_covered(seen.start[those], seen.end[those], edges))
        found.append((rank, _runs(covered, edges[1] - edges[0])))
    return found


def _covered(start: Numbers, end: Numbers, edges: Reals) -> Reals:
    """Time in ns that intervals [start, end) fill before each edge, shape (edges,); overlaps count twice."""
    return _before(start, edges) - _before(end, edges)


def _before(times: Numbers, edges: Reals) -> Reals:
    """Sum over the times of how far each edge is behind them, 0 where it is before, shape (edges,)."""
    ordered = np.sort(times)
    sums = np.concatenate(([0.0], np.cumsum(ordered, dtype=np.float64)))
    counts = np.searchsorted(ordered, edges)
    behind: Reals = counts * edges - sums[counts]
    return behind


def _runs(covered: Reals, width_ns: float) -> dict[int, str]:
    """The path of each kind: neighbouring bins of one kind are one rectangle."""
    if not len(covered):
        return {}
    best = covered.argmax(axis=0)
    best[covered.max(axis=0) < LEAST_FILLED * width_ns] = -1
    breaks = np.flatnonzero(np.diff(best, prepend=-2, append=-2))
    drawn: dict[int, list[str]] = {}
    step = 1000 / len(best)
    for begin, stop in zip(breaks[:-1].tolist(), breaks[1:].tolist(), strict=True):
        if best[begin] >= 0:
            x, wide = f"{begin * step:.2f}".rstrip("0").rstrip("."), f"{(stop - begin) * step:.2f}"
            drawn.setdefault(int(best[begin]), []).append(f"M{x} 0h{wide}v1h-{wide}z")
    return {kind: "".join(parts) for kind, parts in drawn.items()}
