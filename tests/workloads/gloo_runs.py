"""Makes op logs of runs with the noise of real gloo ranks on two oversubscribed cores, and with a fault put in.

tests/data/aicb/gloo_noise has the logs of 4 and of 8 ranks, 50 iterations each, recorded while sixteen other processes
were ready to run. A made run draws its iterations from them and plays them again: a rank issues an operation its gap
after the one before, waits for the last rank of its group, and needs what it then needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from workloads.analysis.merged import Merged, merge
from workloads.oplog.file import OpLog, read_folder

DATA = Path(__file__).parents[1] / "data" / "aicb" / "gloo_noise"
INIT_RECORDS = 2
MS = 1_000_000


@dataclass(frozen=True)
class Fault:
    """ns that one rank loses at one operation of an iteration: before it, or inside of it after all have arrived; with
    op None after the iteration's last operation, as by the loading of data.
    """

    rank: int
    op: int | None
    iteration: int
    lost_ns: int = 20 * MS
    inside: bool = False


@dataclass(frozen=True)
class Recorded:
    """A recorded run: its logs, and by rank gaps, rests (after the last arrival; ns, (50, operations)) and teams."""

    logs: list[OpLog]
    gaps: list[np.ndarray]
    rests: list[np.ndarray]
    teams: list[list[tuple[int, ...]]]

    @property
    def operations(self) -> int:
        return int(self.gaps[0].shape[1])


def recorded(ranks: int) -> Recorded:
    """The recorded run of 4 or 8 ranks."""
    logs = read_folder(DATA / str(ranks))
    merged: Merged = merge(logs)
    shape = (50, (len(logs[0]) - INIT_RECORDS) // 50 - 1)
    gaps, rests, teams = [], [], []
    for log in logs:
        mine = np.flatnonzero(merged.rank == log.facts.rank)
        gaps.append(merged.gap_ns[mine].reshape(shape))
        rests.append((merged.common_ns + merged.own_ns)[mine].reshape(shape))
        teams.append([merged.teams[team] for team in merged.team[mine][: shape[1]]])
    return Recorded(logs, gaps, rests, teams)


def made(base: Recorded, seed: int, faults: Sequence[Fault] = (), quiet: float = 1.0) -> list[OpLog]:
    """The logs of a run with drawn iterations and faults; quiet: factor of all recorded times, to have less noise."""
    random = Random(seed)
    drawn = [random.randrange(50) for _ in range(50)]
    ranks = len(base.logs)
    clock = [0] * ranks
    rows: list[list[tuple[int, int, int, int]]] = [[] for _ in range(ranks)]
    lost = {(fault.rank, fault.op, fault.iteration): fault for fault in faults}
    for iteration, source in enumerate(drawn, start=1):
        begin = list(clock)
        for op in range(base.operations):
            found = [lost.get((rank, op, iteration)) for rank in range(ranks)]
            before = [fault.lost_ns if fault and not fault.inside else 0 for fault in found]
            issue = [clock[r] + int(base.gaps[r][source, op] * quiet) + before[r] for r in range(ranks)]
            for rank in range(ranks):
                arrived = max(issue[each] for each in base.teams[rank][op])
                fault = found[rank]
                clock[rank] = arrived + int(base.rests[rank][source, op] * quiet)
                clock[rank] += fault.lost_ns if fault and fault.inside else 0
                rows[rank].append((INIT_RECORDS + op, iteration, issue[rank], clock[rank]))
        for rank in range(ranks):
            after = lost.get((rank, None, iteration))
            clock[rank] += after.lost_ns if after else 0
            rows[rank].append((INIT_RECORDS + base.operations, iteration, begin[rank], clock[rank]))
    return [_log(log, mine, random.randrange(10**9)) for log, mine in zip(base.logs, rows, strict=True)]


def _log(log: OpLog, rows: list[tuple[int, int, int, int]], offset_ns: int) -> OpLog:
    """A rank's log on a clock of its own, which is `offset_ns` ahead."""
    op, iteration, issue, done = np.array(rows, dtype=np.int64).T
    facts = replace(log.facts, clock_offset_ns=-offset_ns)
    return OpLog(facts, log.workload, op, iteration, issue + offset_ns, done + offset_ns, done - issue)
