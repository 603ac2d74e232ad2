"""Writes the summary of a simulated network, and how sure it is."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.summary import JsonValue, Summary, counted
from simulation.network.job import iterations
from simulation.network.outcome import NetworkRun
from simulation.network.request import NetworkRequest

STABLE = 0.005  # a makespan that a shuffled start order changes by less is one number, not a band
STUCK_SHOWN = 3


class Sureness(NamedTuple):
    """The makespans (us) of a run and of those with other orders of simultaneous starts, the shortest first; how many
    of these the user asked for (0: none), and how many did not complete.
    """

    makespans: list[float]
    asked: int
    stopped: int = 0

    def words(self, data: dict[str, JsonValue]) -> list[str]:
        """Whether the order of simultaneous starts changes the result, and by how much; also put into `data`."""
        every = self.makespans
        others = len(every) - 1 + self.stopped
        stopped = f"{self.stopped} of {counted(others, 'other order')} did not complete"
        if len(every) < 2 or not every[0]:
            data |= {"stable": False, "makespans_us": every} if self.stopped else {}
            return [f"unstable: {stopped}"] if self.stopped else []
        spread = every[-1] / every[0] - 1
        is_stable = spread < STABLE and not self.stopped
        data |= {"stable": is_stable, "makespans_us": every}
        if is_stable:
            return [f"stable: {counted(len(every), 'order')} of simultaneous starts differ by {100 * spread:.2f} %"]
        from statistics import median  # which takes long to import, and few results are unstable

        typical = median(every)
        above = 100 * (typical / every[0] - 1)
        data |= {"median_us": typical, "typical_above_best_percent": round(above, 2)}
        text = f"unstable: {every[0]:.3f} to {every[-1]:.3f} us, median {typical:.3f} us over "
        text += f"{counted(len(every), 'order')} of starts; typical is {above:.1f} % above the best case"
        text += f"; {stopped}" if self.stopped else ""
        return [text if self.asked else f"{text}; --seeds 8 gives the band"]


def summary(request: NetworkRequest, found: NetworkRun, sure: Sureness, files: Sequence[Path]) -> Summary:
    """The summary of a run; it failed if it, or one with another order, did not complete."""
    ended, flows = int((found.end >= 0).sum()) + found.not_kept, len(found.end) + found.not_kept
    data: dict[str, JsonValue] = {
        "files": [str(path) for path in files],
        "complete": found.complete,
        "makespan_us": None,
        "mean_over_ranks_us": None,
        "rank_0_us": None,
        "flows": flows,
        "flows_completed": ended,
        "marks": found.marks,
        "rate_decreases": found.rate_decreases,
        "pauses": found.pauses,
        "lost_packets": found.lost,
        "retransmissions": found.resent,
        "deepest_queue_bytes": found.deepest_bytes,
        "events": found.events,
        "seconds": round(found.seconds, 3),
    }
    named = f"{', '.join(map(str, files[:-1]))} and {files[-1]}"
    lines = [
        f"{named}: {counted(flows, 'flow')}, {found.events} events in {found.seconds:.2f} s",
        *request.notes,
    ]
    if not found.complete:
        lines.append(f"did not complete: {ended} of {flows} flows ended{_stuck(found)}")
        return Summary("\n".join(lines), data, failed=True)
    ends, first = found.rank_ends, found.first_start
    if not len(ends):  # a fast-forwarded iteration keeps none of its flows
        ends, first = found.finished[found.finished >= 0], 0
    mean = float(ends.mean() - first) / 1000 if len(ends) else 0.0
    data |= {"makespan_us": found.makespan_us, "mean_over_ranks_us": mean}
    data["rank_0_us"] = float(ends[0] - first) / 1000 if len(ends) else 0.0
    ended_at = iterations(request.job, found.finished.tolist(), data)
    lines.append(f"flows {found.makespan_us:.3f} us, mean over ranks {mean:.3f} us; {ended_at}")
    lines.append(
        f"ECN marks {found.marks}, pauses {found.pauses}, lost packets {found.lost}, sent again {found.resent}, "
        f"deepest queue {found.deepest_bytes} bytes"
    )
    return Summary("\n".join([*lines, *sure.words(data)]), data, failed=sure.stopped > 0)


def _stuck(found: NetworkRun) -> str:
    """The first flows that began and did not end."""
    stuck = np.flatnonzero((found.start >= 0) & (found.end < 0))
    if not len(stuck):
        return ""
    shown = ", ".join(f"{found.source[each]} to {found.target[each]}" for each in stuck[:STUCK_SHOWN].tolist())
    return f"; {counted(len(stuck), 'flow')} under way stopped, the first from GPU {shown}"
