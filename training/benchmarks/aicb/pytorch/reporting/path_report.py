"""Gathers one iteration of all ranks, and says what its critical path consists of."""

from collections import Counter
from typing import Any

import numpy as np

from training.benchmarks.aicb.pytorch.reporting.critical_path import PathCall, RankIteration, critical_path
from training.benchmarks.aicb.pytorch.running.assembly import Assembled
from training.benchmarks.driver.workload.process_group import ProcessGroup
from workloads.oplog.file import OpLog
from workloads.rows.calls import POINT_TO_POINT, Call
from workloads.rows.ops import CommType

MOST_CALLS = 1 << 20
"""Calls of all ranks that are gathered; a larger iteration has no critical path in FINISHED."""


def gathered_path(log: OpLog, run: Assembled, times: list[list[int]], group: ProcessGroup) -> dict[str, Any]:
    """The critical path of the iteration with the median time of the slowest rank; all ranks call it.

    times: for each rank the ns of each epoch, the set-up first.
    """
    slowest = np.array(times).max(axis=0)[1:]
    if not len(slowest):
        return {}
    number = 1 + int(np.argsort(slowest)[len(slowest) // 2])
    own = rank_iteration(log, run, number)
    if sum(group.gathered(len(own.calls))) > MOST_CALLS:
        return {}
    parts = critical_path(group.gathered(own))
    total = max(1, sum(parts.values()))
    rows = [{"what": what, "ms": ns / 1e6, "percent": 100 * ns / total} for what, ns in parts.items()]
    return {"critical_path": {"iteration": number, "parts": rows}}


def rank_iteration(log: OpLog, run: Assembled, number: int) -> RankIteration:
    """The records of one iteration, by rank 0's clock."""
    epochs, offset = run.stream.epochs, log.facts.clock_offset_ns
    chosen = np.flatnonzero(log.iteration == number)
    counts: Counter[str] = Counter()
    calls: list[PathCall] = []
    begin = end = 0
    columns = (log.op[chosen], log.issue_ns[chosen] + offset, log.done_ns[chosen] + offset, log.exposed_ns[chosen])
    epoch = next(each for each in epochs if each.end >= int(log.op[chosen[0]]))
    for position, issue, done, exposed in zip(*(column.tolist() for column in columns), strict=True):
        if position == epoch.end:
            begin, end = issue, done
            continue
        call = run.stream.at(epoch, position - epoch.first)[1]
        if call is not None:
            key = _key(call, run.rank)
            counts[key] += 1
            calls.append(PathCall(call.words(), f"{key} {counts[key]}", issue, done, exposed > 0))
    return RankIteration(begin, end, calls)


def _key(call: Call, rank: int) -> str:
    """The key that the members of a group share: the group, or sender and receiver."""
    if call.comm_type not in POINT_TO_POINT:
        return f"{call.group} {call.ranks}"
    ends = (rank, call.peer) if call.comm_type is CommType.isend else (call.peer, rank)
    return f"{call.group} {ends[0]} to {ends[1]}"
