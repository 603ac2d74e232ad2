"""Writes a training as lines of MLPerf's log (MLLOG): what the run knows of it, and nothing that a submission adds.

No case is one of MLPerf's benchmarks by its rules, so no line says so (submission_benchmark).
Keys and forms: MLCommons, mlperf_logging, training_6.1.0/common.yaml.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import device_of, metrics_of
from run_benchmarks.results.records import CaseRecord, RoundRecord
from run_benchmarks.results.standards import numbers_of


def mlperf(run: LoadedRun) -> str:
    """The first round that passed of the first case with a training; "" without one."""
    for case in run.record.cases:
        for record in run.passed(case):
            if (found := _times(record)) is not None and record.steps:
                return "".join(f"{line}\n" for line in _lines(case, record, found))
    return ""


def _times(record: RoundRecord) -> tuple[int, int] | None:
    """Begin and end of the measured work on the first host, epoch ms; None where the monitor did not see them."""
    for node in record.nodes:
        phase = (node.monitor or {}).get("phase")
        if isinstance(phase, dict):
            began, ended = phase.get("started_ms"), phase.get("ended_ms")
            if isinstance(began, int) and isinstance(ended, int):
                return began, ended
    return None


def _lines(case: CaseRecord, record: RoundRecord, times: tuple[int, int]) -> Iterator[str]:
    began, ended = times
    platform = f"{case.nnodes}x{case.nproc} {device_of([record])}"
    for key, value in (
        ("submission_division", "open"),
        ("submission_platform", platform),
    ):
        yield _line("POINT_IN_TIME", key, value, record.started_ms)
    yield _line("INTERVAL_START", "init_start", None, record.started_ms)
    yield _line("INTERVAL_END", "init_stop", None, began)
    yield _line("INTERVAL_START", "run_start", None, began)
    values = {metric.name: numbers_of(record.metrics.get(metric.name)) for metric in metrics_of(case)}
    stats = {name: numbers[0] for name, numbers in values.items() if len(numbers) == 1}
    yield _line("POINT_IN_TIME", "tracked_stats", stats, ended, {"step": len(record.steps), "model": case.model})
    yield _line("INTERVAL_END", "run_stop", None, ended, {"status": "success"})


def _line(event: str, key: str, value: object, moment_ms: int, metadata: Mapping[str, Any] | None = None) -> str:
    known = {"file": __name__, "lineno": 0, **(metadata or {})}
    said = {"namespace": "", "time_ms": moment_ms, "event_type": event, "key": key, "value": value, "metadata": known}
    return f":::MLLOG {json.dumps(said)}"
