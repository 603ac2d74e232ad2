"""Aggregates the steps of all ranks while their logs are read: the rate of the median rank, the spread, the slowest.

Steps are cut into buckets of one width, by number; when there are too many, two become one. Ranks log the same steps,
so that buckets of the same width hold the same ones.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median

from pydantic import BaseModel

from common.statistics import percentile
from protocol.default_outcome import is_measured
from protocol.perflog import Event, PerfLogRecord

MOST_BUCKETS = 200
LOW, HIGH = 5, 95
# Rates in STEP_END by name, the first that a benchmark logs; else steps/s by the times of the lines.
RATES = (("tokens/s_interval", "tokens/s"), ("seq/s_interval", "samples/s"))
STEPS_UNIT = "steps/s"


_Widened = dict[int, tuple[int, float | None, float]]
"""By bucket the last step, the mean rate and the mean end (epoch ms)."""


class StepCurves(BaseModel, extra="forbid"):
    """The progress of the ranks by step, each list as long as `steps` (the last of each bucket); rates in `unit`.

    `low` and `high`: 5th and 95th percentile of the ranks. `slowest`: the rank with the lowest median rate.
    `late_ms`: by rank, by how much it ended a step later than the median rank, median over the steps, by the clocks of
    the hosts as the check compared them.
    """

    unit: str
    steps: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]
    slowest: int
    slowest_rate: list[float]
    late_ms: dict[int, float]


class StepBuckets:
    """The steps of one rank: by bucket the last step, the sum of its rates and of its ends (epoch ms), their number."""

    def __init__(self) -> None:
        self.width = 1
        self.unit = STEPS_UNIT
        self._buckets: dict[int, tuple[int, float, int, float, int]] = {}
        self._last: tuple[int, int] | None = None

    def add(self, record: PerfLogRecord) -> None:
        """Take a STEP_END; one without a number is left out."""
        value = record.value if record.event is Event.STEP_END else None
        number = value.get("step") if isinstance(value, dict) else None
        if not isinstance(value, dict) or not isinstance(number, int) or isinstance(number, bool) or number < 1:
            return
        end_ms = record.metadata.time_ms
        rate = self._rate(value, number, end_ms)
        self._last = number, end_ms
        at = number // self.width
        if at not in self._buckets and len(self._buckets) >= MOST_BUCKETS:
            self._halve()
            at = number // self.width
        last, rates, rated, ends, count = self._buckets.get(at, (0, 0.0, 0, 0.0, 0))
        rates, rated = (rates, rated) if rate is None else (rates + rate, rated + 1)
        self._buckets[at] = max(last, number), rates, rated, ends + end_ms, count + 1

    def _rate(self, value: Mapping[str, object], number: int, end_ms: int) -> float | None:
        for name, unit in RATES:
            if is_measured(found := value.get(name)):
                self.unit = unit
                return float(found)
        if self._last is None or number <= self._last[0] or end_ms <= self._last[1]:
            return None
        return 1000 * (number - self._last[0]) / (end_ms - self._last[1])

    def _halve(self) -> None:
        self.width *= 2
        before, self._buckets = self._buckets, {}
        for at, (last, rates, rated, ends, count) in before.items():
            kept = self._buckets.get(at // 2, (0, 0.0, 0, 0.0, 0))
            self._buckets[at // 2] = (
                max(kept[0], last), kept[1] + rates, kept[2] + rated, kept[3] + ends, kept[4] + count,
            )  # fmt: skip

    def widened(self, width: int) -> _Widened:
        """By bucket of that many steps the last step, the mean rate (in `unit`) and the mean end (epoch ms)."""
        while self.width < width:
            self._halve()
        return {
            at: (last, rates / rated if rated else None, ends / count)
            for at, (last, rates, rated, ends, count) in self._buckets.items()
        }


def step_curves(ranks: Mapping[int, StepBuckets], offset_ms: Mapping[int, float]) -> StepCurves | None:
    """The curves of these ranks; None where they share no two steps.

    `offset_ms`: by rank, what its host's clock is ahead of the head node's.
    """
    width = max((found.width for found in ranks.values()), default=1)
    by_rank = {rank: widened for rank, found in ranks.items() if (widened := found.widened(width))}
    units = {ranks[rank].unit for rank in by_rank}
    shared = _shared(list(by_rank.values()))
    if len(units) != 1 or len(shared) < 2:
        return None
    rates = {rank: [float(found[at][1] or 0.0) for at in shared] for rank, found in by_rank.items()}
    slowest = min(rates, key=lambda rank: (median(rates[rank]), rank))
    ordered = [sorted(each) for each in zip(*rates.values(), strict=True)]
    first = min(by_rank)
    ends = {rank: [found[at][2] - offset_ms.get(rank, 0.0) for at in shared] for rank, found in by_rank.items()}
    return StepCurves(
        unit=units.pop(),
        steps=[by_rank[first][at][0] for at in shared],
        middle=_of_each(ordered, median),
        low=_of_each(ordered, lambda each: percentile(each, LOW)),
        high=_of_each(ordered, lambda each: percentile(each, HIGH)),
        slowest=slowest,
        slowest_rate=[_short(each) for each in rates[slowest]],
        late_ms=_lateness(ends),
    )


def _of_each(ordered: Sequence[Sequence[float]], figure: Callable[[Sequence[float]], float]) -> list[float]:
    return [_short(figure(each)) for each in ordered]


def _shared(ranks: Sequence[_Widened]) -> list[int]:
    """The buckets in which every rank has a rate."""
    if not ranks:
        return []
    common = set.intersection(*map(set, ranks))
    return sorted(at for at in common if all(_is_rate(found[at][1]) for found in ranks))


def _lateness(ends: Mapping[int, Sequence[float]]) -> dict[int, float]:
    """By rank the median ms by which it ends a step after the median rank."""
    middle = [median(each) for each in zip(*ends.values(), strict=True)]
    return {
        rank: round(median(end - mid for end, mid in zip(each, middle, strict=True)), 1)
        for rank, each in sorted(ends.items())
    }


def _is_rate(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _short(value: float) -> float:
    return float(f"{value:.5g}")
