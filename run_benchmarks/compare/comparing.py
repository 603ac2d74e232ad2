"""Compares the cases of two sets of runs: better, same, worse, cannot tell or not comparable, metric by metric.

Welch's t-test of rounds errs where runs differ among themselves (placement, boot): with the spread between runs known
from the history, whole runs are the units. Sources: Welch, Biometrika 34 (1947); Holm, Scand. J. Statist. 6 (1979).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, variance
from typing import Literal

from common.errors import in_brief
from common.statistics import student_quantile, student_tail
from protocol.baseline_file import CaseBaseline
from protocol.outcome import Metric
from run_benchmarks.compare.rules import Rules, Word
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.outcomes import metrics_of
from run_benchmarks.results.provenance import provenance
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.results.standards import case_series, numbers_of

MAX_DEGREES = 1000
POWER = 0.8
MOST_UNITS = 10_000
BATCHES, MIN_STEPS = 10, 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """The variance of the mean of one run, from runs of before that were made alike, with its degrees of freedom."""

    variance: float
    degrees: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The mean of B less that of A, in the unit of the values. `error`: its standard error; `p_value`: two-sided."""

    first: float
    second: float
    error: float
    degrees: int
    p_value: float
    units: tuple[int, int]

    @property
    def value(self) -> float:
        """The difference of the means."""
        return self.second - self.first

    def half_width(self, confidence: float) -> float:
        """Half of the interval that holds the true difference with this confidence."""
        return student_quantile((1 - confidence) / 2, self.degrees) * self.error

    def found(self, confidence: float) -> float:
        """The difference that such a comparison finds with probability POWER."""
        return self.half_width(confidence) + student_quantile(1 - POWER, self.degrees) * self.error

    def needed(self, width: float, confidence: float) -> int | None:
        """The units on each side at which half of the interval is at most `width`; None beyond MOST_UNITS."""
        scale = self.error / math.sqrt(sum(1 / n for n in self.units))  # of one unit

        def suffices(units: int) -> bool:
            degrees = min(2 * units - 2, MAX_DEGREES)
            return student_quantile((1 - confidence) / 2, degrees) * scale * math.sqrt(2 / units) <= width

        found = bisect_left(range(2, MOST_UNITS), True, key=suffices) + 2
        return found if found < MOST_UNITS else None


def between_rounds(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Welch's test of the values of two runs' rounds; None where one has fewer than two."""
    sizes = len(first), len(second)
    if min(sizes) < 2:
        return None
    parts = [variance(values) / len(values) for values in (first, second)]
    total = sum(parts)
    degrees = sum(sizes) - 2
    if total > 0:
        # Shares: the squares of the variances themselves may be beyond a float, or 0.
        degrees = int(1 / sum((part / total) ** 2 / (n - 1) for part, n in zip(parts, sizes, strict=True)))
    return _difference(fmean(first), fmean(second), math.sqrt(total), max(1, degrees), sizes)


def batch_means(steps: Sequence[float]) -> list[float]:
    """Means of BATCHES equal parts of a round's steps, in their unit; the steps before these, at most a tenth, warm up.

    Steps follow one another and are alike; means of long parts are nearly independent (Conway, Management Science 9
    (1963)). With fewer than MIN_STEPS steps they are not, and there are none.
    """
    if len(steps) < MIN_STEPS:
        return []
    size = len(steps) // (BATCHES + 1)
    latest = steps[-size * BATCHES :]
    return [fmean(latest[at : at + size]) for at in range(0, len(latest), size)]


def between_runs(first: Sequence[float], second: Sequence[float], history: Spread | None) -> Difference | None:
    """Student's test of the means of runs, with the spread of both sides and the history pooled.

    None where these have less than two degrees of freedom together.
    """
    sums = [variance(values) * (len(values) - 1) for values in (first, second) if len(values) > 1]
    degrees = sum(len(values) - 1 for values in (first, second))
    if history is not None:
        sums.append(history.variance * history.degrees)
        degrees += history.degrees
    if degrees < 2:
        return None
    error = math.sqrt(math.fsum(sums) / degrees * (1 / len(first) + 1 / len(second)))
    return _difference(fmean(first), fmean(second), error, degrees, (len(first), len(second)))


def _difference(first: float, second: float, error: float, degrees: int, units: tuple[int, int]) -> Difference:
    degrees = min(degrees, MAX_DEGREES)
    certain = 1.0 if first == second else 0.0
    p_value = 2 * student_tail(abs(second - first) / error, degrees) if error > 0 else certain
    return Difference(first=first, second=second, error=error, degrees=degrees, p_value=p_value, units=units)


def spread_of(groups: Sequence[Sequence[float]]) -> Spread | None:
    """The spread of run means, in the unit of the metric, within groups of runs that were made alike.

    None without two runs of one group.
    """
    usable = [values for values in groups if len(values) > 1]
    degrees = sum(len(values) - 1 for values in usable)
    if not degrees:
        return None
    return Spread(
        variance=math.fsum(variance(values) * (len(values) - 1) for values in usable) / degrees, degrees=degrees
    )


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Each p-value adjusted by Holm's method for the number of tests: all errors together stay at the level."""
    adjusted, largest = {}, 0.0
    for index, (name, p_value) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(p_values) - index) * p_value))
        adjusted[name] = largest
    return adjusted


UNKNOWN_SPREAD = "the spread between runs is not known: a difference may be that of two runs of the same cluster"
SHOWN_CHARACTERS = 80
NEITHER = "measured in fewer than two rounds and no runs of before were made alike"
OF_NOTHING = "its mean in A is 0: no change of it has a percentage"


class UnreadableRecordError(Exception):
    """A benchmark cannot read what was recorded of it: anybody's benchmark, and anybody's record."""


@dataclass(frozen=True, kw_only=True)
class CaseOfRun:
    """A case in one run."""

    run: LoadedRun
    case: CaseRecord

    def values(self, metric: str) -> list[float]:
        """The metric's value in each round that passed."""
        return [value for each in self.run.passed(self.case) for value in numbers_of(each.metrics.get(metric))]

    def batches(self, metric: Metric) -> list[float]:
        """Batch means, in its unit, of the metric over the steps of the only round that passed; none of several."""
        rounds = self.run.passed(self.case)
        if len(rounds) != 1 or not metric.of_steps:
            return []
        return batch_means([value for step in rounds[0].steps for value in numbers_of(step.get(metric.of_steps))])

    def described(self) -> CaseBaseline:
        """Its model, device and conditions.

        Raises:
            UnreadableRecordError: its benchmark fails at settings that no run could have had.
        """
        try:
            return case_series(self.run.record.run_id, self.case, self.run.passed(self.case))
        except Exception as error:
            raise UnreadableRecordError(f"its benchmark cannot read its record: {in_brief(error)}") from error

    def provenance(self) -> dict[str, str]:
        """The hardware and software that it ran on, by name, in words."""
        return provenance(self.run, self.case)


Groups = Mapping[str, Sequence[Sequence[float]]]  # by metric its means in runs of before, in groups made alike
Before = Callable[[CaseOfRun], Groups]


@dataclass(frozen=True, kw_only=True)
class MetricResult:
    """A metric of B against A. `percent` and `half_width` are of A's mean; positive is better, whatever the direction.

    `note`: how many rounds or runs would tell, or what was not known.
    """

    metric: Metric
    word: Word
    first: float | None = None
    second: float | None = None
    percent: float | None = None
    half_width: float | None = None
    p_value: float | None = None
    found_percent: float | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """A case of both sets: the key figure decides; `changed` is the provenance that differs."""

    case: str
    word: Word
    reason: str = ""
    metrics: list[MetricResult] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    fails: bool = False


def compare(first: Sequence[LoadedRun], second: Sequence[LoadedRun], before: Before, rules: Rules) -> list[CaseResult]:
    """Each case of either set. `before`: what other runs measured, whose spread is that between runs."""
    names = dict.fromkeys(case.name for run in (*first, *second) for case in run.record.cases)
    return [_told(name, list(_of(name, first)), list(_of(name, second)), before, rules) for name in names]


def of_folders(history: Sequence[LoadedRun]) -> Before:
    """The measurements of these runs of a case, those with its device and conditions."""

    def groups(case: CaseOfRun) -> Groups:
        alike = _alike(list(_of(case.case.name, history)), case.described())
        return {
            metric.name: [[fmean(values) for each in group if (values := each.values(metric.name))] for group in alike]
            for metric in metrics_of(case.case)
        }

    return groups


def _of(name: str, runs: Sequence[LoadedRun]) -> Iterator[CaseOfRun]:
    for run in runs:
        yield from (
            CaseOfRun(run=run, case=case) for case in run.record.cases if case.name == name and run.passed(case)
        )


def _told(name: str, first: list[CaseOfRun], second: list[CaseOfRun], before: Before, rules: Rules) -> CaseResult:
    """The result of a case, also where its benchmark fails at settings that no run could have had."""
    try:
        return _case(name, first, second, before, rules)
    except UnreadableRecordError as error:
        fails = "not comparable" in rules.of(name)[1]
        return CaseResult(case=name, word="not comparable", reason=str(error), fails=fails)


def _case(name: str, first: list[CaseOfRun], second: list[CaseOfRun], before: Before, rules: Rules) -> CaseResult:
    percent, fail_on = rules.of(name)
    if reason := _not_comparable(first, second):
        word: Word = "not comparable"
        return CaseResult(case=name, word=word, reason=reason, fails=word in fail_on)
    compared = list(_all_compared(first, second, before(first[0])))
    others = {metric.name: each.difference for metric, each in compared if not metric.is_key}
    adjusted = holm({name: difference.p_value for name, difference in others.items() if difference})
    results = [_result(metric, each, (rules.confidence, percent), adjusted) for metric, each in compared]
    key = next((each for each in results if each.metric.is_key), None)
    word = "cannot tell" if key is None else key.word
    return CaseResult(
        case=name,
        word=word,
        reason="its benchmark declares no key figure" if key is None else key.note,
        metrics=results,
        changed=list(_changed(first, second)),
        fails=word in fail_on,
    )


def _all_compared(
    first: list[CaseOfRun], second: list[CaseOfRun], groups: Groups
) -> Iterator[tuple[Metric, _Compared]]:
    """Each metric that the benchmark declares for comparisons and that both sides have."""
    for metric in metrics_of(second[0].case):
        if metric.is_key or metric.is_reference:
            found = _compared(metric, first, second, groups.get(metric.name, ()))
            if found is not None:
                yield metric, found


def _not_comparable(first: list[CaseOfRun], second: list[CaseOfRun]) -> str:
    for side, found in (("A", first), ("B", second)):
        if not found:
            return f"no round of it passed in {side}"
    reference = first[0].described()
    for each in (*first[1:], *second):
        other = each.described()
        if (other.model, other.framework) != (reference.model, reference.framework):
            return f"{each.run.record.run_id} has another benchmark, {other.model}:{other.framework}"
        if mismatch := reference.mismatch(other.device, other.conditions):
            return f"{each.run.record.run_id} has {mismatch}".replace("in the baseline", f"in {reference.run}")
    return ""


def _alike(history: list[CaseOfRun], reference: CaseBaseline) -> list[list[CaseOfRun]]:
    """The runs of before with the case's device and conditions, in groups with the same provenance."""
    groups: dict[str, list[CaseOfRun]] = {}
    for each in history:
        other = each.described()
        if (other.model, other.framework) == (reference.model, reference.framework) and not reference.mismatch(
            other.device, other.conditions
        ):
            groups.setdefault(json.dumps(each.provenance(), sort_keys=True), []).append(each)
    return list(groups.values())


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """A metric's means on both sides and their difference, None if nothing says how sure it is."""

    means: tuple[float, float]
    difference: Difference | None
    units: Literal["runs", "rounds", "batches of steps"]


def _compared(
    metric: Metric, first: list[CaseOfRun], second: list[CaseOfRun], before: Sequence[Sequence[float]]
) -> _Compared | None:
    """The metric of both sides; None where one has no value of it."""
    sides = [[values for each in side if (values := each.values(metric.name))] for side in (first, second)]
    if not all(sides):
        return None
    means = [[fmean(values) for values in side] for side in sides]
    found = between_runs(means[0], means[1], spread_of(before))
    units: Literal["runs", "rounds", "batches of steps"] = "runs"
    if found is None:
        units = "rounds"
        found = between_rounds(*([value for values in side for value in values] for side in sides))
    if found is None:
        units = "batches of steps"
        found = between_rounds(
            *([value for each in side for value in each.batches(metric)] for side in (first, second))
        )
    return _Compared(means=(fmean(means[0]), fmean(means[1])), difference=found, units=units)


def _result(
    metric: Metric, compared: _Compared, limits: tuple[float, float], adjusted: Mapping[str, float]
) -> MetricResult:
    """The word for a metric. `limits`: confidence, and the percent within which both are the same."""
    confidence, same = limits
    first, second = compared.means
    found = compared.difference
    if found is None or found.first == 0:
        note = NEITHER if found is None else OF_NOTHING
        return MetricResult(metric=metric, word="cannot tell", first=first, second=second, note=note)
    # An interval of a metric beside the key figure is as wide as Holm's strictest test demands.
    strict = confidence if metric.is_key else 1 - (1 - confidence) / max(1, len(adjusted))
    p_value = found.p_value if metric.is_key else adjusted[metric.name]
    scale = 100 / abs(found.first)
    percent = found.value * scale * (1 if metric.better == "higher" else -1)
    half = found.half_width(strict) * scale
    notes = [] if compared.units == "runs" else [UNKNOWN_SPREAD]
    word: Word = "cannot tell"
    if abs(percent) + half <= same:
        word = "same"
    elif p_value < 1 - confidence:
        word = "better" if percent > 0 else "worse"
    else:
        units = compared.units
        needed = found.needed(same / scale, strict)
        notes.insert(0, f"{needed} {units} on each side would tell" if needed else f"no number of {units} would tell")
    if compared.units == "batches of steps":
        notes.append("one round on each side: its steps were compared")
    return MetricResult(
        metric=metric,
        word=word,
        first=first,
        second=second,
        percent=percent,
        half_width=half,
        p_value=p_value,
        found_percent=found.found(strict) * scale,
        note="; ".join(notes),
    )


def _changed(first: list[CaseOfRun], second: list[CaseOfRun]) -> Iterator[str]:
    """The provenance that differs between the sides, in words."""
    sides = [[each.provenance() for each in side] for side in (first, second)]
    for name in dict.fromkeys(name for side in sides for each in side for name in each):
        texts = [" | ".join(sorted({each.get(name, "") for each in side})) for side in sides]
        if texts[0] != texts[1]:
            yield f"{name}: {texts[0][:SHOWN_CHARACTERS] or 'none'}, then {texts[1][:SHOWN_CHARACTERS] or 'none'}"
