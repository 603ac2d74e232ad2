"""Series of 30 to 100 runs as clusters make them: flat, with heavy tails, autocorrelated, with a step or a drift.

The standard deviation is 1 but for outliers: of the heavy ones Student's t with three degrees of freedom, scaled to 1,
and beside it one in twenty runs ten away. A step is 3, at least ten runs from both ends; a drift is 4 to 8 in all.
"""

import math
import random
from typing import Literal

Kind = Literal["flat", "heavy", "autocorrelated"]
STEP, MARGIN = 3.0, 10


def noise(source: random.Random, kind: Kind) -> list[float]:
    """A series without any change."""
    runs = source.randint(30, 100)
    if kind == "flat":
        return [source.gauss(0, 1) for _ in range(runs)]
    if kind == "heavy":
        return [_student(source) + source.choice((-10, 10)) * (source.random() < 0.05) for _ in range(runs)]
    found = [source.gauss(0, 1)]
    while len(found) < runs:
        found.append(0.3 * found[-1] + math.sqrt(1 - 0.3**2) * source.gauss(0, 1))
    return found


def _student(source: random.Random) -> float:
    return source.gauss(0, 1) / math.sqrt(math.fsum(source.gauss(0, 1) ** 2 for _ in range(3)))


def with_step(source: random.Random, kind: Kind) -> tuple[list[float], int]:
    """A series and the first run of its new level."""
    values = noise(source, kind)
    place, step = source.randint(MARGIN, len(values) - MARGIN), STEP * source.choice((-1, 1))
    return [value + step * (index >= place) for index, value in enumerate(values)], place


def with_drift(source: random.Random, kind: Kind) -> list[float]:
    """A series that rises or falls all the time."""
    values = noise(source, kind)
    whole = source.uniform(4, 8) * source.choice((-1, 1))
    return [value + whole * index / len(values) for index, value in enumerate(values)]
