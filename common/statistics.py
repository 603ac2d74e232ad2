"""Computes quantiles of Student's t distribution exactly, without scipy, which the head node does not have."""

import math


def student_quantile(probability: float, degrees: int) -> float:
    """The value that t with `degrees` degrees of freedom (1 or more) exceeds with 1 - probability; dimensionless.

    `probability` lies between 0.5 and 1. Found by bisection, to nine digits.
    """
    low, high = 0.0, 1.0
    while _distribution(high, degrees) < probability:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _distribution(middle, degrees) < probability else (low, middle)
    return high


def _distribution(value: float, degrees: int) -> float:
    """Probability that t is below `value`, at least 0.

    Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.3 and 26.7.4.
    """
    angle = math.atan(value / math.sqrt(degrees))
    cosine, sine = math.cos(angle), math.sin(angle)
    if degrees == 1:
        return 0.5 + angle / math.pi
    odd = degrees % 2
    term = total = cosine if odd else 1.0
    for number in range(2 + odd, degrees, 2):
        term *= cosine * cosine * (number - 1) / number
        total += term
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return 0.5 + within / 2
