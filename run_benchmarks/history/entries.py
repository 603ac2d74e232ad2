"""Makes the rows of the history of a run: its cases, their metrics, its hosts and what each of them measured."""

import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from protocol.baseline_file import CaseBaseline
from protocol.default_outcome import by_name
from protocol.outcome import Better, Metric
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import host_figures, metrics_of
from run_benchmarks.results.provenance import provenance
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.standards import case_series, numbers_of

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class CaseEntry:
    """The row of a case, and those of its metrics and of its hosts without the case's id."""

    case: Row
    metrics: list[Row]
    host_values: list[Row]


def run_row(run: LoadedRun, owner: str) -> Row:
    """The row of a run."""
    record = run.record
    return {
        "owner": owner,
        "run_id": record.run_id,
        "folder": str(run.folder.resolve()),
        "started_ms": record.started_ms,
        "finished_ms": record.finished_ms,
        "verdict": record.verdict.value,
    }


def host_rows(run: LoadedRun) -> list[Row]:
    """The rows of its hosts without the run's id."""
    return [{"host": host.name, "state": host.state, "reason": host.state_reason} for host in run.record.hosts]


def kind_of(described: CaseBaseline) -> str:
    """A name for what has to be the same for two runs of a case to be one series."""
    same = [described.model, described.framework, described.device, described.conditions]
    return hashlib.sha256(json.dumps(same, sort_keys=True).encode()).hexdigest()


def case_entries(run: LoadedRun) -> Iterator[CaseEntry]:
    """The rows of each case; a case that measured nothing has only its verdict."""
    for case in run.record.cases:
        rounds = run.passed(case)
        described = case_series(run.record.run_id, case, rounds)
        row = {
            "name": case.name,
            "kind": kind_of(described),
            "device": described.device,
            "verdict": case.verdict.value,
            "seconds": sum(each.finished_ms - each.started_ms for each in run.rounds[case.name]) / 1000,
            "rounds": len(run.rounds[case.name]),
            "provenance": json.dumps(provenance(run, case), sort_keys=True),
        }
        yield CaseEntry(case=row, metrics=list(_metrics(run, case)), host_values=list(_host_values(run, case)))


def _metrics(run: LoadedRun, case: CaseRecord) -> Iterator[Row]:
    """The metrics whose better direction is known, and the energy of a round by meter."""
    declared = metrics_of(case)
    names = dict.fromkeys(name for each in run.passed(case) for name in each.metrics)
    for metric in declared or [known for name in names if (known := by_name(name)) is not None]:
        values = [value for each in run.passed(case) for value in numbers_of(each.metrics.get(metric.name))]
        if values:
            yield _metric(metric.name, metric.unit, metric.better, values, is_key=metric.is_key)
    for meter, joules in case.joules.items():
        yield _metric(f"joules {meter}", "J", "lower", [joules], is_key=False)


def _metric(name: str, unit: str, better: Better, values: Sequence[float], *, is_key: bool) -> Row:
    known = {"name": name, "unit": unit, "better": better, "is_key": is_key}
    return known | {"value": fmean(values), "rounds": len(values)}


def _host_values(run: LoadedRun, case: CaseRecord) -> Iterator[Row]:
    """The mean over the rounds of what each host measured, and the share of the other hosts that are worse.

    Of those that are equal half are counted.
    """
    metrics: dict[str, Metric] = {}
    found: dict[str, dict[str, list[float]]] = {}
    for each in run.passed(case):
        for figure in host_figures(case, each):
            metrics[figure.name] = Metric(name=figure.name, unit=figure.unit, better=figure.better)
            for host, value in figure.values.items():
                found.setdefault(figure.name, {}).setdefault(host, []).append(value)
    for name, of_hosts in found.items():
        sign = 1 if metrics[name].better == "higher" else -1
        means = {host: fmean(values) for host, values in of_hosts.items()}
        ordered = sorted(sign * mean for mean in means.values())
        for host, mean in means.items():
            below = (bisect_left(ordered, sign * mean) + bisect_right(ordered, sign * mean) - 1) / 2
            share = below / (len(ordered) - 1) if len(ordered) > 1 else 0.5
            metric = metrics[name]
            known = {"host": host, "metric": name, "unit": metric.unit, "better": metric.better}
            yield known | {"value": mean, "share_below": share}
