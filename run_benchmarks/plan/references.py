"""Checks that the references of a case are valid: the metrics of `expect` exist, BASELINE can be compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from common.errors import ABSENT, Problem, in_brief
from protocol import baseline_file
from protocol.case_config import CaseConfig
from protocol.masking import mask_config
from protocol.outcome import MeasuredCase, Metric, declared
from run_benchmarks.settings.limits import ANY_DEVICE, folded, parse_limit
from run_benchmarks.settings.settings import Settings
from training.benchmarks.catalog import Benchmark, without_version


class SizedCase(Protocol):
    """The fields that are needed of a case's settings."""

    @property
    def nnodes(self) -> int: ...

    @property
    def nproc(self) -> int: ...


class LookedUpCase(Protocol):
    """The fields that are needed of a resolved case."""

    @property
    def name(self) -> str: ...

    @property
    def benchmark(self) -> Benchmark: ...

    @property
    def config(self) -> CaseConfig: ...

    @property
    def settings(self) -> SizedCase: ...


def metric_named(name: str, metrics: Sequence[Metric]) -> Metric | None:
    """The metric of that name, also without the brackets of its name."""
    return next((metric for metric in metrics if folded(metric.name) == folded(name)), None)


def expectation_problems(
    name: str, limits: Mapping[str, Mapping[str, str]], benchmark: Benchmark, config: CaseConfig, source: str
) -> list[Problem]:
    """Metrics in a case's `expect` that its benchmark does not have with these settings, and units that differ from
    theirs.

    Args:
        limits: the result of settings.limits.limits_by_device.
        source: the file with the case, for the messages.
    """
    if not limits:
        return []
    try:
        metrics = declared(benchmark.outcome.metrics(mask_config(config.model_dump(mode="json"))))
    except Exception as error:  # noqa: BLE001 - a mistake in a benchmark's own code is this case's mistake
        return [outcome_problem(source, f"{name}.expect", benchmark, "metrics", error)]
    known_as = f"metrics of {benchmark.model}:{benchmark.framework} with these settings"
    known = tuple(metric.name for metric in metrics)
    problems = []
    for device, of_device in limits.items():
        prefix = f"{name}.expect" if device == ANY_DEVICE else f"{name}.expect[{device!r}]"
        seen: dict[str, str] = {}
        for wanted, text in of_device.items():
            key, metric = f"{prefix}.{wanted}", metric_named(wanted, metrics)
            unit = parse_limit(text).unit
            if metric is None:
                none = "" if known else ": the benchmark declares none, by METRICS in its config.py or an outcome.py"
                problems.append(Problem(source, key, text, f"unknown metric{none}", known, known_as if known else ""))
            elif unit and unit != metric.unit:
                problems.append(Problem(source, key, text, f"expected {metric.unit or 'no unit'} as its unit"))
            elif metric.name in seen:
                problems.append(Problem(source, key, text, f"the same metric as {seen[metric.name]!r}: expected once"))
            else:
                seen[metric.name] = wanted
    return problems


def outcome_problem(source: str, key: str, benchmark: Benchmark, part: str, error: Exception) -> Problem:
    """The mistake that `part` of a benchmark's outcome fails on the settings of a case."""
    message = f"{part}() of {benchmark.model}:{benchmark.framework}'s outcome fails: {in_brief(error)}"
    return Problem(source, key, ABSENT, message)


def baseline_notes(settings: Settings, cases: Sequence[LookedUpCase]) -> tuple[list[Problem], list[str]]:
    """Check BASELINE: a problem if no case of the run has an entry in it, a warning for each case without one.

    A problem, too, for each case whose conditions its benchmark cannot tell.

    Args:
        cases: those without mistakes; of the others only name, model and framework are looked up.

    Raises:
        BaselineError: the file cannot be read.
    """
    file = settings.test.BASELINE
    if file is None:
        return [], []
    baseline = baseline_file.load(file)
    absent = f"is not compared: BASELINE {file} has no case of this name and model"
    notes = [f"{name} {absent}" for name in _without_entry(settings, cases, baseline)]
    problems: list[Problem] = []
    for case in cases:
        found = baseline.of_case(case.name, case.benchmark.model, case.benchmark.framework)
        try:
            conditions = dict(case.benchmark.outcome.conditions(measured_case(case)))
        except Exception as error:  # noqa: BLE001 - as above
            problems.append(outcome_problem(settings.source(case.name), case.name, case.benchmark, "conditions", error))
            continue
        mismatches = [each.mismatch(each.device, conditions) for each in found]
        if not found:
            notes.append(f"{case.name} {absent}")
        elif all(mismatches):
            notes.append(f"{case.name} is not compared: BASELINE {file} is of other settings: {mismatches[0]}")
    if problems or not notes or len(notes) < len(settings.test.CASES):
        return problems, notes
    known = tuple(dict.fromkeys(each.case for each in baseline.cases))
    allowed = (
        f"a baseline with one of the CASES in it at least; it has {', '.join(known) or 'none'}; {'; '.join(notes)}"
    )
    return [Problem(settings.source("BASELINE"), "BASELINE", str(file), allowed)], []


def _without_entry(
    settings: Settings, cases: Sequence[LookedUpCase], baseline: baseline_file.Baseline
) -> Iterator[str]:
    """The names of those with mistakes, which `cases` lacks, that the baseline has no entry of."""
    resolved = {case.name for case in cases}
    for name, case in settings.cases.items():
        if name not in resolved and not baseline.of_case(name, case.model, without_version(case.framework)):
            yield name


def measured_case(case: LookedUpCase) -> MeasuredCase:
    """The case in the form that its benchmark's outcome takes."""
    config, size = case.config.model_dump(mode="json"), case.settings
    return MeasuredCase.masked(case.name, config, nnodes=size.nnodes, nproc=size.nproc)
