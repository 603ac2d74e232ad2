"""Sums up a run for FINISHED: iteration times of the slowest rank, and the classes of operations of rank 0."""

from typing import Any

import numpy as np

from training.benchmarks.aicb.pytorch.config import Config
from training.benchmarks.aicb.pytorch.work.classes import OpClasses
from workloads.oplog.file import OpLog
from workloads.oplog.measured import FEW_BYTES, bandwidths_of
from workloads.rows.ops import CommType

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
