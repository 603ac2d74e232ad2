"""Estimates the noise of figures that are measured repeatedly, and how unlikely a deviation is by noise alone.

A figure is the logarithm of a time. The noise of its median over the repeats is the larger of the scatter from repeat
to repeat and of 1.4826 * MAD of what a model of the figures leaves unexplained. A drift that all groups share from
repeat to repeat is removed if that lowers the noise. Extreme repeats do not count as scatter if they are so rare that
no group is likely to have nothing else. Of many groups a sample suffices.

A noise that was estimated from few repeats may be far too small by chance: quantiles of Student's t allow for it.

Source: Rousseeuw and Croux, "Alternatives to the Median Absolute Deviation" (1993), for 1.4826 * MAD.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import TypeVar

from common.statistics import MAD, scatter, student_quantile, student_tail

# A repeat beyond this many robust standard deviations is extreme: chance gives one in two million.
_WILD = 5.0
_Value = TypeVar("_Value")
# Groups that are looked at to estimate a noise.
_SAMPLED = 5000


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The figures of groups: of each repeat, without drift where there was one, and their medians.

    `noise` is the standard deviation of a median from repeat to repeat, of `degrees` degrees of freedom (0: unknown),
    both in logarithms; `calm` is that without the extreme repeats, which have the share `wild` (0 to 1).
    """

    repeats: tuple[Sequence[float], ...]
    values: list[float]
    noise: float
    degrees: int
    calm: float
    wild: float

    def is_calm(self, groups: int, chance: float) -> bool:
        """Whether so many groups are extreme in all their repeats, by themselves, with a smaller probability."""
        return self.wild ** (groups * len(self.repeats)) <= chance


def settle(repeats: Sequence[Sequence[float]], chance: float) -> Settled:
    """Take the medians over the repeats, each a figure for every group; `chance` as for `tame_noise` (0 to 1)."""
    sampled = [every_nth(column) for column in repeats]
    # The standard error of a median of normal values is sqrt(pi / 2n) standard deviations.
    share = min(1.0, math.sqrt(math.pi / (2 * len(repeats))))
    noise, degrees = _noise(sampled, chance, lost_degrees=0)
    drifts = [median(column) for column in zip(*_scatter(sampled), strict=True)]
    still = [[value - drift for value in column] for column, drift in zip(sampled, drifts, strict=True)]
    quiet, fewer = _noise(still, chance, lost_degrees=len(repeats) - 1)
    columns: tuple[Sequence[float], ...] = tuple(repeats)
    shown: Sequence[Sequence[float]] = sampled
    if fewer and (not degrees or limit(0.0, quiet, fewer, chance) < limit(0.0, noise, degrees, chance)):
        columns = tuple([value - d for value in column] for column, d in zip(repeats, drifts, strict=True))
        noise, degrees, shown = quiet, fewer, still
    calm, wild = _without_extremes(_scatter(shown))
    calm *= math.sqrt(len(shown[0]) * (len(shown) - 1) / degrees) if degrees else math.inf
    return Settled(
        repeats=columns,
        values=medians(columns),
        noise=share * noise,
        degrees=degrees,
        calm=min(share * noise, share * calm),
        wild=wild,
    )


def medians(columns: Sequence[Sequence[float]]) -> list[float]:
    """The median of each group over the repeats, in the unit of the values (logarithms)."""
    half, count = len(columns) // 2, len(columns)
    if count == 1:
        return list(columns[0])
    if len(columns[0]) > _SAMPLED and find_spec("numpy") is not None:  # a head node may lack it
        import numpy

        every = numpy.sort(numpy.array([numpy.asarray(column, dtype=float) for column in columns]), axis=0)
        middle: list[float] = (every[half] if count % 2 else (every[half - 1] + every[half]) / 2).tolist()
        return middle
    if count % 2:
        return [sorted(values)[half] for values in zip(*columns, strict=True)]
    ordered = map(sorted, zip(*columns, strict=True))
    return [(values[half - 1] + values[half]) / 2 for values in ordered]


def every_nth(values: Sequence[_Value]) -> Sequence[_Value]:
    """A sample of many values, evenly spread."""
    return values[:: 1 + (len(values) - 1) // _SAMPLED] if values else values


def spread(left: Sequence[float]) -> float:
    """Robust standard deviation of what a model leaves unexplained, in the unit of the values (logarithms)."""
    return scatter(every_nth(left)) if left else 0.0


def repeat_noise(distances: Sequence[Sequence[float]]) -> float:
    """Standard deviation from repeat to repeat, in the unit of the values (logarithms), pooled over the groups'
    distances from their medians.
    """
    degrees = sum(len(each) - 1 for each in distances)
    return math.sqrt(sum(value**2 for each in distances for value in each) / degrees) if degrees > 0 else 0.0


def plain_noise(repeats: Sequence[Sequence[float]]) -> float:
    """`repeat_noise` of columns of figures (logarithms), drift and extremes included."""
    return repeat_noise(_scatter([every_nth(column) for column in repeats]))


def limit(bound: float, noise: float, degrees: int, chance: float) -> float:
    """The larger of `bound` and the deviation that noise alone, of `degrees` degrees of freedom, exceeds with the
    probability `chance` (0 to 1); all others are logarithms.
    """
    return max(bound, student_quantile(chance, degrees) * noise if noise else 0.0)


def tail(deviation: float, noise: float, degrees: int) -> float:
    """Probability (0 to 1) that noise alone exceeds a deviation; all are logarithms, the noise of `degrees` degrees of
    freedom.
    """
    if degrees < 1 or deviation <= 0:
        return 1.0
    return student_tail(deviation / noise, degrees) if noise > 0 else 0.0


def _scatter(columns: Sequence[Sequence[float]]) -> list[list[float]]:
    """Each group's distances from its median."""
    return [[value - median(values) for value in values] for values in zip(*columns, strict=True)]


def _noise(columns: Sequence[Sequence[float]], chance: float, *, lost_degrees: int) -> tuple[float, int]:
    """(standard deviation of one repeat, degrees of freedom), without extremes as `tame_noise` decides."""
    scatter = _scatter(columns)
    degrees = sum(len(each) - 1 for each in scatter)
    free = degrees - lost_degrees
    if free < 1:
        return math.inf, 0
    return tame_noise(scatter, chance) * math.sqrt(degrees / free), free


def tame_noise(scatter: Sequence[Sequence[float]], chance: float) -> float:
    """`repeat_noise` without the extreme repeats if the probability that a given group has no others is smaller than
    `chance`; a group is named only if all its repeats are bad.
    """
    calm, wild = _without_extremes(scatter)
    return calm if wild ** min(map(len, scatter)) <= chance else repeat_noise(scatter)


def _without_extremes(scatter: Sequence[Sequence[float]]) -> tuple[float, float]:
    """`repeat_noise` without the extreme repeats, and the share of these (0 to 1) by Laplace's rule of succession."""
    distances = [abs(value) for each in scatter for value in each if value]
    usual = MAD * median(distances) if distances else 0.0
    wild = sum(value > _WILD * usual for value in distances)
    calm = repeat_noise([[value for value in each if abs(value) <= _WILD * usual] or [0.0] for each in scatter])
    return calm, (wild + 1) / (sum(map(len, scatter)) + 2)
