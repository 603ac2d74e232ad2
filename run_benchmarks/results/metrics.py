"""Combines the values of a metric over several rounds by the metric's own rule, with their spread."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from statistics import fmean, stdev
from typing import Any

from pydantic import BaseModel

from protocol.default_outcome import is_measured


class Rule(StrEnum):
    """The rule by which values are combined: KEEP gives the value if all are equal, else their list."""

    MEAN = "mean"
    MAX = "max"
    MIN = "min"
    KEEP = "keep"


# The first pattern that matches a metric's name decides; without a match, floats are averaged (times and rates) and
# integers are kept (counts, sizes, steps).
RULES: tuple[tuple[str, Rule], ...] = (
    ("max_*", Rule.MAX), ("min_*", Rule.MIN), ("peak_memory_bytes", Rule.MAX), ("peak_tflops", Rule.KEEP),
    ("*_bytes", Rule.KEEP), ("*_size", Rule.KEEP), ("*_steps", Rule.KEEP), ("num_*", Rule.KEEP),
    ("flops_per_*", Rule.KEEP), ("*[a-z]_count", Rule.KEEP), ("*_time", Rule.MEAN), ("*_us", Rule.MEAN),
    ("*_ms", Rule.MEAN), ("*_seconds", Rule.MEAN), ("*_GBps", Rule.MEAN), ("*_per_second*", Rule.MEAN),
    ("throughput*", Rule.MEAN), ("*_percent", Rule.MEAN),
)  # fmt: skip


class Spread(BaseModel, extra="forbid"):
    """The spread of the `n` rounds that passed; `rule` is how the metric's value was combined from them.

    `std` is the standard deviation of a sample (n - 1), in the unit of the metric.
    """

    rule: Rule
    n: int
    mean: float
    std: float
    min: float
    max: float


def rule_of(name: str, values: Sequence[Any]) -> Rule:
    """The rule of a metric with these values: values that are no numbers are kept, whatever the name."""
    if not all(map(is_measured, values)):
        return Rule.KEEP
    named = next((rule for pattern, rule in RULES if fnmatchcase(name, pattern)), None)
    return named or (Rule.MEAN if any(isinstance(value, float) for value in values) else Rule.KEEP)


def combine(rounds: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, Spread]]:
    """Each metric combined over several rounds, and the spread of those with several values that are not kept."""
    merged: dict[str, Any] = {}
    spreads: dict[str, Spread] = {}
    for name in dict.fromkeys(name for metrics in rounds for name in metrics):
        values = [metrics[name] for metrics in rounds if name in metrics]
        rule = rule_of(name, values)
        if rule is Rule.KEEP:
            merged[name] = values[0] if all(value == values[0] for value in values) else values
            continue
        if len(values) == 1:
            merged[name] = values[0]
            continue
        spread = Spread(
            rule=rule, n=len(values), mean=fmean(values), std=stdev(values), min=min(values), max=max(values)
        )
        combined = {Rule.MEAN: spread.mean, Rule.MAX: spread.max, Rule.MIN: spread.min}[rule]
        merged[name] = values[0] if spread.min == spread.max else combined
        spreads[name] = spread
    return merged, spreads
