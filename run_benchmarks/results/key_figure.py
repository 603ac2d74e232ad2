"""Computes the figure that stands for a case: its value in each round, its direction, percent of what is expected."""

from collections.abc import Mapping, Sequence
from typing import Any

from protocol.outcome import Metric
from run_benchmarks.results.comparison import BaselineRecord, ExpectationRecord
from run_benchmarks.results.outcomes import CaseLike, joules_of, metrics_of
from run_benchmarks.results.records import KeyFigure, RoundRecord
from run_benchmarks.results.standards import numbers_of
from run_benchmarks.settings.limits import parse_limit

STEADY_DIFFERS = 0.1


def key_figure(
    case: CaseLike,
    passed: Sequence[RoundRecord],
    metrics: Mapping[str, Any],
    expectations: Sequence[ExpectationRecord] = (),
    baseline: BaselineRecord | None = None,
) -> KeyFigure | None:
    """The key figure that the case's benchmark declares; None if it declares or measured none."""
    known = metrics_of(case)
    declared = next((metric for metric in known if metric.is_key), None)
    values = numbers_of(metrics.get(declared.name)) if declared is not None else []
    if declared is None or len(values) != 1:
        return None
    percent, expected = _against(declared, values[0], expectations, baseline)
    return KeyFigure(
        metric=declared.name,
        unit=declared.unit,
        better=declared.better,
        value=values[0],
        of_rounds=[value for each in passed for value in numbers_of(each.metrics.get(declared.name))],
        percent_of_expected=percent,
        expected=expected,
        steady=_steady(known, metrics, values[0]),
    )


def _steady(known: Sequence[Metric], metrics: Mapping[str, Any], value: float) -> float | None:
    steady = [each for metric in known if metric.is_steady for each in numbers_of(metrics.get(metric.name))]
    return steady[0] if len(steady) == 1 and abs(steady[0] - value) > STEADY_DIFFERS * abs(value) else None


def _against(
    metric: Metric, value: float, expectations: Sequence[ExpectationRecord], baseline: BaselineRecord | None
) -> tuple[float | None, str]:
    """Percent of the first reference of the metric's limits, else of the baseline; and its name.

    A bound on the other side, a throughput that must stay below a value, expects nothing.
    """
    for each in expectations:
        limit = parse_limit(each.limit)
        bounded = limit.low if metric.better == "higher" else limit.high
        if each.metric == metric.name and value > 0 and abs(bounded) < float("inf") and limit.reference > 0:
            ratio = value / limit.reference
            return 100 * (ratio if metric.better == "higher" else 1 / ratio), f"expect {each.limit}"
    for row in baseline.rows if baseline is not None else ():
        if row.what == metric.name:
            return 100 * row.ratio, f"baseline {baseline.file}" if baseline is not None else ""
    return None, ""


def energy_of(passed: Sequence[RoundRecord]) -> dict[str, float]:
    """Joules of a round's measured work, the mean of the rounds that passed, by power meter that all of them have."""
    of_rounds = [joules_of(each.nodes) for each in passed]
    common = set.intersection(*map(set, of_rounds)) if of_rounds else set()
    return {meter: sum(each[meter] for each in of_rounds) / len(of_rounds) for meter in sorted(common)}
