"""Makes flat tables of a run, for files and pandas: cases, metrics, steps, hosts, findings. Times are epoch ms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from protocol.default_outcome import by_name
from protocol.outcome import Metric
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import device_of, metrics_of
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.standards import numbers_of

if TYPE_CHECKING:
    import pandas

Cell = str | float | int | bool | None
Row = dict[str, Cell]
MAX_DEPTH = 4


def rows(run: LoadedRun, table: str) -> list[Row]:
    """The rows of one of TABLES.

    Raises:
        KeyError: there is no such table.
    """
    return [{name: _whole(value) for name, value in row.items()} for row in TABLES[table](run)]


def frame(run: LoadedRun, table: str) -> pandas.DataFrame:
    """One of TABLES as a frame of pandas, which requirements/analysis.txt has.

    Raises:
        KeyError: there is no such table.
    """
    import pandas

    return pandas.DataFrame(rows(run, table))


def _whole(value: Cell) -> Cell:
    """A value that every file can hold: half of a surrogate pair, which a host may have sent, is none, nor is NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _cases(run: LoadedRun) -> Iterator[Row]:
    """A row a case: its verdict, its key figure and percent of expected, joules by meter."""
    for case in run.record.cases:
        key = case.key
        yield {
            **_place(run, case),
            "model": case.model,
            "framework": case.framework,
            "device": device_of(run.rounds[case.name]),
            "nnodes": case.nnodes,
            "nproc": case.nproc,
            "verdict": case.verdict.value,
            "reason": case.reason,
            "rounds": len(case.rounds),
            "rounds_passed": len(run.passed(case)),
            "metric": key.metric if key else None,
            "value": key.value if key else None,
            "unit": key.unit if key else None,
            "better": key.better if key else None,
            "percent_of_expected": key.percent_of_expected if key else None,
            **{f"joules_{meter}": value for meter, value in case.joules.items()},
        }


def _metrics(run: LoadedRun) -> Iterator[Row]:
    """A row for each number that a round reported, with its unit and better direction where they are known."""
    for case in run.record.cases:
        declared = {metric.name: metric for metric in metrics_of(case)}
        for record in run.rounds[case.name]:
            for name, value in record.metrics.items():
                metric = declared.get(name) or by_name(name)
                for number in numbers_of(value):
                    yield {
                        **_place(run, case),
                        "round": record.round,
                        "attempt": record.attempt,
                        "verdict": record.verdict.value,
                        "metric": name,
                        "value": number,
                        **_meaning(metric),
                    }


def _meaning(metric: Metric | None) -> Row:
    if metric is None:
        return {"unit": None, "better": None, "is_key": False}
    return {"unit": metric.unit, "better": metric.better, "is_key": metric.is_key}


def _steps(run: LoadedRun) -> Iterator[Row]:
    """A row for each STEP_END of rank 0; values within values have names with dots, lists are left out."""
    for case in run.record.cases:
        for record in run.rounds[case.name]:
            for step in record.steps:
                own = {**_place(run, case), "round": record.round}
                yield own | _flat(step) | own  # ours stand first, and a host's of the same names do not count


def _flat(values: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Row:
    found: Row = {}
    for name, value in values.items():
        if isinstance(value, dict) and depth < MAX_DEPTH:
            found |= _flat(value, f"{prefix}{name}.", depth + 1)
        elif value is None or isinstance(value, str | float | int):
            found[f"{prefix}{name}"] = value
    return found


def _hosts(run: LoadedRun) -> Iterator[Row]:
    """A row a host: its state, what it is, whether to take it out of service."""
    drained = {each.host for each in run.record.drain}
    for host in run.record.hosts:
        yield {
            "run": run.record.run_id,
            "host": host.name,
            "state": host.state,
            "reason": host.state_reason,
            "drain": host.name in drained,
            "kernel": host.kernel,
            "docker": host.docker_version,
            "devices": len(host.devices),
            "device": ", ".join(sorted(set(host.devices))),
            "clock_offset_seconds": host.clock_offset_seconds,
        }


def _findings(run: LoadedRun) -> Iterator[Row]:
    """A row for each bad part that a round found."""
    for case in run.record.cases:
        for record in run.rounds[case.name]:
            for finding in record.findings:
                yield {
                    **_place(run, case),
                    "round": record.round,
                    "part": finding.part,
                    "hosts": ", ".join(finding.hosts),
                    "device": finding.device,
                    "kind": finding.kind,
                    "severity": finding.severity,
                    "share_of_expected": finding.share_of_expected,
                    "p_value": finding.p_value,
                    "evidence": finding.evidence,
                    "action": finding.suggested_action,
                }


def _place(run: LoadedRun, case: CaseRecord) -> Row:
    return {"run": run.record.run_id, "started_ms": run.record.started_ms, "case": case.name}


TABLES: dict[str, Callable[[LoadedRun], Iterator[Row]]] = {
    "cases": _cases, "metrics": _metrics, "steps": _steps, "hosts": _hosts, "findings": _findings,
}  # fmt: skip
