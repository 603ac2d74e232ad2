"""Checks that the metrics which a case expects something of exist, in the units of its `expect`."""

from collections.abc import Mapping, Sequence

from common.errors import ABSENT, Problem, in_brief
from protocol.case_config import CaseConfig
from protocol.masking import mask_config
from protocol.outcome import Metric, declared
from run_benchmarks.settings.limits import ANY_DEVICE, folded, parse_limit
from training.benchmarks.catalog import Benchmark


def metric_named(name: str, metrics: Sequence[Metric]) -> Metric | None:
    """The metric of that name, also without the brackets of its name."""
    return next((metric for metric in metrics if folded(metric.name) == folded(name)), None)


def expectation_problems(
    name: str, limits: Mapping[str, Mapping[str, str]], benchmark: Benchmark, config: CaseConfig, source: str
) -> list[Problem]:
    """Metrics in a case's `expect` that its benchmark lacks with these settings, and other units than theirs.

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
