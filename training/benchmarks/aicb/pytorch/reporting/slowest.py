"""Gathers the slowest iteration for the report: what each rank does from when to when."""

from dataclasses import replace
from typing import Any

import numpy as np

from training.benchmarks.driver.workload.process_group import ProcessGroup
from workloads.analysis import binned, timeline
from workloads.oplog.file import OpLog

MOST_RANKS, MOST_SPANS = 64, 3000


def gathered_slowest(log: OpLog, times: list[list[int]], group: ProcessGroup) -> dict[str, Any]:
    """The iteration that took a rank longest, of the MOST_RANKS ranks that it took longest; all ranks call it.

    times: for each rank the ns of each epoch, the set-up first. Spans have the row of their rank, begin and end in ms.
    """
    epochs = np.array(times)
    if epochs.shape[1] < 2:
        return {}
    number = 1 + int(epochs[:, 1:].max(axis=0).argmax())
    ranks = sorted(np.argsort(-epochs[:, number], kind="stable")[:MOST_RANKS].tolist())
    chosen = log.iteration == number
    columns = {name: getattr(log, name)[chosen] for name in ("op", "iteration", "issue_ns", "done_ns", "exposed_ns")}
    own = replace(log, **columns, queued_ns=None)
    first = int(own.on_rank_0(own.issue_ns).min())
    ends = group.gathered((first, int(own.on_rank_0(own.done_ns).max())))
    begin, end = min(each[0] for each in ends), max(each[1] for each in ends)
    seen = timeline.of_logs("", [own])
    kinds, names = binned.kinds_of(seen)
    zero = first - seen.spans[0][2]  # of the timeline, on rank 0's clock
    most = MOST_SPANS // len(ranks)
    _, spans = binned.spans(seen, kinds, len(names), float(begin - zero), float(end - zero), 1e6, most)
    everyone = group.gathered(dict(zip(names, spans, strict=True)) if log.facts.rank in ranks else {})
    shown = [everyone[rank] for rank in ranks]
    found = {
        name: [
            [row, round(start, 4), round(stop, 4)]
            for row, each in enumerate(shown)
            for _, start, stop in each.get(name, ())
        ]
        for name in dict.fromkeys(name for each in shown for name in each)
    }
    return {"slowest_iteration": {"iteration": number, "ms": (end - begin) / 1e6, "ranks": ranks, "spans": found}}
