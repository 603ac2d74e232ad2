"""Outcome of a benchmark whose result is a few numbers: references and their comparison, no tables of its own.

Benchmarks without an outcome.py use it, with the METRICS of their config.py; the outcomes of others extend it.
"""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from statistics import median
from typing import Any, ClassVar, TypeGuard

from pydantic import JsonValue

from protocol.outcome import (
    Assessment,
    Better,
    Block,
    Change,
    Comparison,
    MeasuredCase,
    MeasuredRound,
    Metric,
    Reference,
)

# Settings that say how a case is run and not what it measures.
INCIDENTAL = ("timeout_s",)
# Unit and direction of an undeclared metric, by its name; the first matching pattern applies.
CONVENTION: tuple[tuple[str, str, Better], ...] = (
    ("*_GBps", "GB/s", "higher"),
    ("*_per_second*", "1/s", "higher"),
    ("throughput*", "1/s", "higher"),
    ("*_us", "us", "lower"),
    ("*_ms", "ms", "lower"),
)
SHOWN_CHARACTERS = 100
MOST = 1e150  # its square is still a number


class DefaultOutcome:
    """Outcome of plain numbers. `metrics`: the metrics that every case of the benchmark has.

    `incidental`: a benchmark's settings that do not change what is measured, beside INCIDENTAL.
    """

    incidental: ClassVar[tuple[str, ...]] = ()

    def __init__(self, metrics: Sequence[Metric] = ()) -> None:
        self._metrics = tuple(metrics)

    def metrics(self, config: Mapping[str, Any]) -> Sequence[Metric]:
        """The metrics that every case has."""
        return self._metrics

    def conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """All settings but incidental ones, and the size."""
        left_out = (*INCIDENTAL, *self.incidental)
        settings = {key: value for key, value in case.config.items() if key not in left_out}
        return {**settings, "nnodes": case.nnodes, "nproc": case.nproc}

    def references(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Mapping[str, Reference]:
        """The median over the rounds of each metric declared as a reference; without declared ones, of CONVENTION's."""
        declared = self.metrics(case.config)
        names = dict.fromkeys(name for each in rounds for name in each.metrics)
        metrics = [m for m in declared if m.is_reference] if declared else [m for m in map(by_name, names) if m]
        found = {metric: _values(metric.name, rounds) for metric in metrics}
        return {metric.name: reference(values, metric) for metric, values in found.items() if values}

    def compare(self, now: Mapping[str, Reference], then: Mapping[str, Reference], percent: float) -> Comparison:
        """Compare the medians; a sentence for each that is worse by more than `percent`, beyond the other's range."""
        changes = compare(now, then, percent)
        return Comparison(changes=changes, sentences=tuple(in_words(each) for each in changes if each.is_regression))

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """Nothing."""
        return Assessment()

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """Nothing."""
        return ()

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """Nothing."""
        return ()

    def probe(self, config: Mapping[str, Any]) -> Mapping[str, JsonValue] | None:
        """None."""
        return None


def by_name(name: str) -> Metric | None:
    """The metric by CONVENTION; None if no pattern matches its name."""
    found = next(((unit, better) for pattern, unit, better in CONVENTION if fnmatchcase(name, pattern)), None)
    if found is None or len(name) > SHOWN_CHARACTERS:
        return None
    return Metric(name=name, unit=found[0], better=found[1])


def is_measured(value: object) -> TypeGuard[int | float]:
    """Whether it is a number with which arithmetic is possible, in any unit: JSON from a host may contain anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST


def _values(name: str, rounds: Sequence[MeasuredRound]) -> list[float]:
    values = [each.metrics.get(name) for each in rounds]
    return [float(value) for value in values if is_measured(value) and value > 0]


def reference(values: Sequence[float], metric: Metric) -> Reference:
    """The median and the range of `values`, in the unit of `metric`; at least one value, each finite and above 0."""
    return Reference(
        value=median(values), low=min(values), high=max(values), n=len(values), unit=metric.unit, better=metric.better
    )


def compare(
    now: Mapping[str, Reference], then: Mapping[str, Reference], percent: float, what: Mapping[str, str] | None = None
) -> tuple[Change, ...]:
    """Every measurement that both contain in the same unit, the worst first.

    A regression is worse in the median by more than `percent`, and its range lies beyond the reference's: overlapping
    ranges prove nothing. `what` names measurements for people, by key; the others are named by their keys.
    """
    changes = []
    for key in now.keys() & then.keys():
        mine, known = now[key], then[key]
        if (mine.unit, mine.better) != (known.unit, known.better):
            continue
        ratio = mine.value / known.value
        if mine.better == "higher":
            worse, is_apart = 100 * (1 - ratio), mine.high < known.low
        else:
            worse, is_apart = 100 * (ratio - 1), mine.low > known.high
        changes.append(
            Change(
                what=(what or {}).get(key, key),
                now=mine,
                then=known,
                percent=worse,
                is_regression=worse > percent and is_apart,
            )
        )
    return tuple(sorted(changes, key=lambda change: (-change.percent, change.what)))


def in_words(change: Change) -> str:
    """How much worse or better one measurement is."""
    unit = f" {change.now.unit}" if change.now.unit else ""
    way = "lower" if change.now.value < change.then.value else "higher"
    moved = 100 * abs(change.now.value / change.then.value - 1)
    return (
        f"{change.what} is {moved:.0f} % {way} than the baseline: {change.now.value:.4g}{unit}"
        f" against {change.then.value:.4g}{unit}"
    )
