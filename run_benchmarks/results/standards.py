"""Holds the cases of a run against the limits of their `expect` and against a baseline, and makes new baselines."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.whole_files import PRESENT
from protocol.baseline_file import Baseline, CaseBaseline, load
from protocol.default_outcome import is_measured
from protocol.outcome import FigureOutcome
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.plan.references import metric_named
from run_benchmarks.results.comparison import BaselineRecord, BaselineRow, ExpectationRecord
from run_benchmarks.results.outcomes import (
    CaseLike,
    device_of,
    measured_case,
    measured_round,
    metrics_of,
    outcome_of,
)
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.settings.limits import limits_for, parse_limit
from training.benchmarks.catalog import without_version


@dataclass(frozen=True, kw_only=True)
class Held:
    """A case against its standards. `failures`: why it does not meet them; `warnings`: what could not be checked."""

    expectations: tuple[ExpectationRecord, ...] = ()
    baseline: BaselineRecord | None = None
    failures: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Standards:
    """BASELINE as it is when the controller starts or resumes the run, and the limits of each case."""

    def __init__(self, file: Path | None, percent: float) -> None:
        self._file, self._percent = file, percent
        self._baseline: Baseline | None = load(file) if file else None

    def hold(self, case: CasePlan, passed: Sequence[RoundRecord], metrics: Mapping[str, Any]) -> Held:
        """Hold the rounds that passed, and the metrics of all of them together, against what the case has to meet."""
        if not passed:
            return Held()
        expectations = expectations_of(case, passed, metrics)
        failures = [each.sentence for each in expectations if not each.met]
        warnings = []
        if case.expect and not expectations:
            names = ", ".join(case.expect)
            warnings.append(f"no limit was checked: expect has some for {names}, this ran on {device_of(passed)}")
        baseline = self._against_baseline(case, passed)
        if baseline is not None and baseline.is_below:
            failures.append(f"worse than the baseline {baseline.file}: {'; '.join(baseline.sentences)}")
        elif baseline is not None and not baseline.rows:
            warnings += baseline.sentences
        return Held(
            expectations=tuple(expectations), baseline=baseline, failures=tuple(failures), warnings=tuple(warnings)
        )

    def _against_baseline(self, case: CasePlan, passed: Sequence[RoundRecord]) -> BaselineRecord | None:
        if self._file is None or self._baseline is None:
            return None
        return against_baseline(case, passed, self._file, self._baseline, self._percent)


def expectations_of(
    case: CasePlan, passed: Sequence[RoundRecord], metrics: Mapping[str, Any]
) -> list[ExpectationRecord]:
    """Each limit that applies to the device of these rounds, and whether the metric meets it in all of them."""
    declared = metrics_of(case)
    found = []
    for name, texts in limits_for(case.expect, {device for each in passed for device in each.devices}).items():
        metric = metric_named(name, declared)
        if metric is None:  # another version of the benchmark planned the case
            raise LookupError(f"metric {name} of its expect is unknown")
        values = numbers_of(metrics.get(metric.name))
        missing = [each.round for each in passed if not numbers_of(each.metrics.get(metric.name))]
        for text in texts:
            limit = parse_limit(text)
            broken = [value for value in values if not limit.holds(value)]
            found.append(
                ExpectationRecord(
                    metric=metric.name,
                    unit=metric.unit,
                    limit=text,
                    measured=next(iter(broken or values), None),
                    met=bool(values) and not broken and not missing,
                    missing_rounds=missing if values else [],
                )
            )
    return found


def numbers_of(value: object) -> list[float]:
    """The numbers of a case's metric: one, or one per round if they are not combined; empty for other values."""
    values = value if isinstance(value, list) else [value]
    return [float(each) for each in values if is_measured(each)]


def against_baseline(
    case: CaseLike, passed: Sequence[RoundRecord], file: Path, baseline: Baseline, percent: float
) -> BaselineRecord:
    """The case's rounds against its entry of `baseline`, read from `file`. Sentences name what cannot be compared."""
    now = case_baseline("", case, passed)
    fitting, reasons = baseline.counterpart(now)
    if fitting is None:
        why = f"it is of {'; or of '.join(reasons)}" if reasons else "it has no case of this name and model"
        return BaselineRecord(
            file=str(file), percent=percent, sentences=[f"not compared with the baseline {file}: {why}"], rows=[]
        )
    compared = outcome_of(case).compare(now.entries, fitting.entries, percent)
    changes, sentences = compared.changes, list(compared.sentences)
    if not changes:
        sentences = [f"not compared with the baseline {file}: it holds none of this case's measurements"]
    elif not sentences:
        sentences = [f"all {len(changes)} measurements are within {percent:g} % of the baseline {file}"]
    sentences += compared.remarks
    unknown = len(now.entries) - len(changes)
    if changes and unknown:
        sentences.append(f"{unknown} more of this case's measurements are not in {file} and were not compared")
    absent = len(fitting.entries) - len(changes)
    if changes and absent:
        sentences.append(f"{absent} more of the measurements in {file} were not made in this run")
    rows = [
        BaselineRow(
            what=change.what,
            unit=change.now.unit,
            better=change.now.better,
            measured=change.now.value,
            baseline=change.then.value,
            ratio=change.ratio,
            below=change.is_regression,
        )
        for change in changes
    ]
    return BaselineRecord(file=str(file), device=now.device, percent=percent, sentences=sentences, rows=rows)


def case_baseline(run: str, case: CaseLike, passed: Sequence[RoundRecord]) -> CaseBaseline:
    """The figures of the case's rounds that a baseline keeps."""
    outcome, measured = outcome_of(case), measured_case(case)
    return CaseBaseline(
        case=case.name,
        model=case.model,
        framework=without_version(case.framework),
        device=device_of(passed),
        run=run,
        conditions=dict(outcome.conditions(measured)),
        entries=dict(outcome.references(measured, [measured_round(each) for each in passed])),
    )


def case_series(run: str, case: CaseLike, passed: Sequence[RoundRecord]) -> CaseBaseline:
    """The figures of the case's rounds with what must be the same for its metrics to be compared by their names."""
    outcome, described = outcome_of(case), case_baseline(run, case, passed)
    if not isinstance(outcome, FigureOutcome):
        return described
    return described.model_copy(update={"conditions": dict(outcome.figure_conditions(measured_case(case)))})


def refusal(file: Path, *, overwrite: bool) -> str | None:
    """Why no baseline can be saved in `file`, asked before anything runs; None if it can."""
    if file.is_dir() or not file.parent.is_dir():
        return f"--save-baseline {file}: expected the path of a file in an existing folder"
    if not os.access(file.parent, os.W_OK | os.X_OK):
        return f"--save-baseline {file}: nothing can be written in its folder"
    if file.exists() and not overwrite:
        return f"--save-baseline {file}: {PRESENT}, or name another file"
    return None
