"""Sums up a run for FINISHED: iteration times of the slowest rank, and the classes of operations of rank 0."""

from dataclasses import replace
from typing import Any

import numpy as np

from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.work.classes import OpClasses
from training.benchmarks.driver.workload.process_group import ProcessGroup
from workloads.analysis import binned, timeline
from workloads.oplog.file import OpLog
from workloads.oplog.measured import FEW_BYTES, bandwidths_of
from workloads.rows.ops import CommType

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


MOST_CLASSES = 64
"""Classes in FINISHED, those that take longest."""


def summary(log: OpLog, kinds: OpClasses, config: Config, times: list[list[int]], arena_bytes: int) -> dict[str, Any]:
    """The figures of FINISHED. times: for each rank the ns of each epoch, the set-up first."""
    epochs_ms = np.array(times, dtype=np.float64).max(axis=0) / 1e6
    iterations = epochs_ms[1:]
    found: dict[str, Any] = {
        "frame": log.facts.frame,
        "timing": config.timing,
        "scale": config.scale,
        "iterations": len(iterations),
        "init_ms": float(epochs_ms[0]),
        "arena_bytes": arena_bytes,
    }
    if len(iterations):
        p50, p90, p99 = np.percentile(iterations, [50, 90, 99])
        found |= {
            "iteration_p50_ms": float(p50),
            "iteration_p90_ms": float(p90),
            "iteration_p99_ms": float(p99),
            "iteration_min_ms": float(iterations.min()),
            "iteration_max_ms": float(iterations.max()),
            "iteration_mean_ms": float(iterations.mean()),
        }
    classes = _classes(log, kinds)
    large = [each["busbw_GBps"] for each in classes if each["bytes"] >= FEW_BYTES and each["busbw_GBps"] > 0]
    if large:
        found["max_busbw_GBps"] = max(large)
    if len(iterations):
        communication = (kinds.of_row[log.op] >= 0) & (log.iteration > 0)
        found["exposed_ms"] = float(log.exposed_ns[communication].sum() / 1e6 / len(iterations))
        hidden = np.maximum(0, log.duration_ns - log.exposed_ns)[communication]
        found["hidden_ms"] = float(hidden.sum() / 1e6 / len(iterations))
    return found | {"classes": classes[:MOST_CLASSES]}


def _classes(log: OpLog, kinds: OpClasses) -> list[dict[str, Any]]:
    """The recorded classes of the iterations' operations, with the longest total time first."""
    of, found = np.where(log.iteration > 0, kinds.of_row[log.op], -1), []
    for number, kind in enumerate(kinds.recorded()):
        times = log.duration_ns[of == number] / 1e6
        if not len(times):
            continue
        p50, p99 = map(float, np.percentile(times, [50, 99]))
        figures = {"count": len(times), "total_ms": float(times.sum()), "p50_ms": p50, "p99_ms": p99}
        busbw = bandwidths_of(CommType[kind.type], kind.bytes, p50, kind.ranks)[1]
        found.append({**kind._asdict(), **figures, "busbw_GBps": busbw})
    return sorted(found, key=lambda each: -each["total_ms"])
