"""Sums up a run for FINISHED: iteration times of the slowest rank, and the classes of operations of rank 0."""

from typing import Any

import numpy as np

from training.benchmarks.aicb.pytorch.config import Config
from workloads.oplog.measured import bandwidths, executed_bytes, group_ranks
from workloads.oplog.recorder import OpLog

MOST_CLASSES = 64
"""Classes in FINISHED, those that take longest."""
FEW_BYTES = 1 << 20
"""Bytes from which on an operation counts for the best bandwidth: below it measures latency."""


def summary(log: OpLog, config: Config, times: list[list[int]], arena_bytes: int) -> dict[str, Any]:
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
    classes = _classes(log)
    large = [each["busbw_GBps"] for each in classes if each["bytes"] >= FEW_BYTES and each["busbw_GBps"] > 0]
    if large:
        found["max_busbw_GBps"] = max(large)
    communication = _communication(log)
    if len(iterations):
        found["exposed_ms"] = float(log.exposed_ns[communication].sum() / 1e6 / len(iterations))
        hidden = np.maximum(0, log.duration_ns - log.exposed_ns)[communication]
        found["hidden_ms"] = float(hidden.sum() / 1e6 / len(iterations))
    return found | {"classes": classes[:MOST_CLASSES]}


def _communication(log: OpLog) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Which records are communication of an iteration, not of the set-up; shape (records,)."""
    is_communication = np.array([item.is_communication for item in log.workload], dtype=bool)
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = is_communication[log.op] & (log.iteration > 0)
    return found


def _classes(log: OpLog) -> list[dict[str, Any]]:
    """Operations of the iterations by type, group and size, with the longest total time first."""
    chosen = _communication(log)
    rows = list(log.workload)
    kinds: dict[tuple[object, ...], list[int]] = {}
    by_row: dict[int, list[int]] = {}
    for record, op in zip(np.flatnonzero(chosen).tolist(), log.op[chosen].tolist(), strict=True):
        records = by_row.get(op)
        if records is None:
            item = rows[op]
            key = item.comm_type, item.comm_group, executed_bytes(item, log.facts), group_ranks(item, log.facts)
            records = by_row[op] = kinds.setdefault(key, [])
        records.append(record)
    duration, found = log.duration_ns, []
    for records in kinds.values():
        item = rows[int(log.op[records[0]])]
        times = duration[records] / 1e6
        ranks, size = group_ranks(item, log.facts), executed_bytes(item, log.facts)
        p50, p99 = map(float, np.percentile(times, [50, 99]))
        found.append(
            {
                "type": item.comm_type.name,
                "group": "" if item.comm_group is None else item.comm_group.name,
                "ranks": ranks,
                "bytes": size,
                "count": len(records),
                "total_ms": float(times.sum()),
                "p50_ms": p50,
                "p99_ms": p99,
                "busbw_GBps": bandwidths(item, size, p50, ranks)[1],
            }
        )
    return sorted(found, key=lambda each: -each["total_ms"])
