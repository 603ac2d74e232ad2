"""Finds where the step times of a run have settled, and how well their mean is known. Needs no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Self

from common.statistics import CONFIDENCE, percentile, student_quantile

BLOCK = 5
# Fewer steps show no steady state.
MIN_STEPS = 20
# Steps at the beginning of the steady state of which an extreme one still belongs to the warm-up.
_BEGINNING = 10
# A Hampel identifier takes values beyond 3 scaled median absolute deviations as extreme.
_EXTREME = 3 * 1.4826
# A block of the second half, but for the last ones, whose error is smaller by this factor shows a change.
_FAR_BETTER = 4
_LAST = 4
# Blocks of an interval: (steps at least, number of blocks).
_INTERVALS = ((400, 20), (MIN_STEPS, 10))


@dataclass(frozen=True, kw_only=True, slots=True)
class SteadyState:
    """Step times after the warm-up: their number, mean and percentiles (nearest rank) in seconds.

    The mean is within `half_width` seconds of the true one with 95 % confidence; None: too few steps to tell.
    """

    warmup_steps: int
    warmup_seconds: float
    steps: int
    mean: float
    half_width: float | None
    p50: float
    p99: float

    @classmethod
    def of(cls, times: Sequence[float], warmup_steps: int | None = None) -> Self | None:
        """The steady state of step times in seconds, in order; None if there is none.

        A time that is NaN was not measured. `warmup_steps` fixes the end of the warm-up, else `settled_after` finds it.
        """
        if warmup_steps is None:
            measured = [time for time in times if not math.isnan(time)]
            found = settled_after(measured)
            if found is None:
                return None
            warmup, steady = measured[:found], measured[found:]
        else:
            warmup, steady = (
                [time for time in part if not math.isnan(time)] for part in (times[:warmup_steps], times[warmup_steps:])
            )
        if not steady:
            return None
        in_order = sorted(steady)
        return cls(
            warmup_steps=len(warmup) if warmup_steps is None else warmup_steps,
            warmup_seconds=math.fsum(warmup),
            steps=len(steady),
            mean=fmean(steady),
            half_width=half_width(steady),
            p50=percentile(in_order, 50),
            p99=percentile(in_order, 99),
        )


def settled_after(times: Sequence[float]) -> int | None:
    """Number of steps after which the step time, in seconds, has settled; None if it has not, or not visibly.

    The rule is MSER-5: of all blocks of five steps with which the steady state may begin, take the one that minimizes
    the squared standard error of the mean over the blocks from it on; the first one that is as good but for the
    deviation of such an estimate. If the best is the middle one, or one in the second half is better by far, there is
    no steady state. Each block counts with its median instead of its mean, so that one slow step in the middle of a run
    is no warm-up; instead, the warm-up reaches to the last step of the next ten that is extreme among all that follow
    (Hampel's identifier): compilations make single steps slow.

    Source: White, "An effective truncation heuristic for bias reduction in simulation output", Simulation 69 (1997);
    blocks of five: White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics" (2000).
    """
    if len(times) < MIN_STEPS:
        return None
    blocks = [median(times[begin : begin + BLOCK]) for begin in range(0, len(times) - BLOCK + 1, BLOCK)]
    centre = median(blocks)  # sums of squares of differences from it lose no digits
    errors = []
    total = squares = 0.0
    for count, block in enumerate(reversed(blocks), start=1):
        total += block - centre
        squares += (block - centre) ** 2
        errors.append((squares - total**2 / count) / count**2)
    errors.reverse()
    begin = _first_as_good(errors)
    if begin is None:
        return None
    begin *= BLOCK
    steady = times[begin:]
    usual = median(steady)
    bound = usual + _EXTREME * median(abs(time - usual) for time in steady)
    slow = [number for number, time in enumerate(steady[:_BEGINNING], start=1) if time > bound]
    return begin + (slow[-1] if slow else 0)


def _first_as_good(errors: Sequence[float]) -> int | None:
    """The first block of the first half with an error like the least one there; None if a later one is better."""
    half = len(errors) // 2
    like = 1 + math.sqrt(2 / len(errors))
    least = min(errors[: half + 1])
    if errors[half] == least and errors[0] > like * least:
        return None
    if _FAR_BETTER * min(errors[half : max(half + 1, len(errors) - _LAST)]) < least:
        return None
    return next(number for number, error in enumerate(errors) if error <= like * least)


def half_width(times: Sequence[float]) -> float | None:
    """Half the width of the 95 % confidence interval of the mean of step times, in seconds; None for fewer than 20.

    Successive steps are not independent. The interval is that of the means of blocks of consecutive steps, which depend
    on one another less the longer they are (non-overlapping batch means): ten blocks, twenty from 400 steps on.

    Source: Schmeiser, "Batch size effects in the analysis of simulation output", Operations Research 30 (1982).
    """
    count = next((count for least, count in _INTERVALS if len(times) >= least), None)
    if count is None:
        return None
    length = len(times) // count
    first = len(times) - count * length
    means = [fmean(times[begin : begin + length]) for begin in range(first, len(times), length)]
    return student_quantile((1 - CONFIDENCE) / 2, count - 1) * stdev(means) / math.sqrt(count)
