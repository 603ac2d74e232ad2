"""Computes the probability that chance brings so many bad measurements, and how many are independent.

Sources: Fisher, "Statistical Methods for Research Workers" (1934), section 21.02, for the exact test; Kish, "Survey
Sampling" (1965), for the design effect.
"""

import math
from collections.abc import Sequence

ALPHA = 0.001
"""Probability of a false alarm over the comparisons of one test of one symptom: each test spends as much."""
_NEGLIGIBLE = 1e-17
# A correlation counts if repeats that are independent exceed it with a probability of 5 %.
_STDS_OF_NO_CORRELATION = 1.645


def alpha_of_round(rounds: int) -> float:
    """The probability (0 to 1, one digit) of a false suspicion in one of so many `rounds`, where a part is named that
    most of them suspect. Over all rounds that is ALPHA = C(rounds, most) * chance ** most but for the rounding to one
    digit, of 3 or 5 rounds up to a quarter more.

    Source: Bonferroni's inequality.
    """
    most = rounds // 2 + 1
    return float(f"{(ALPHA / math.comb(rounds, most)) ** (1 / most):.1g}")


def design_effect(bad: Sequence[int], pairs: int, repeats: int) -> float:
    """By how many measurements one of independent evidence is had, 1 to `repeats`.

    `bad` has the bad measurements of each pair with any, of so many `pairs` of `repeats` measurements each. The
    correlation of two repeats of a pair is that of the pairs' second moments.
    """
    share = sum(bad) / (pairs * repeats) if pairs * repeats else 0.0
    if repeats < 2 or pairs < 2 or not 0 < share < 1:
        return 1.0
    both = sum(each * (each - 1) for each in bad) / (pairs * repeats * (repeats - 1))
    correlation = (both - share**2) / (share * (1 - share))
    if correlation < _STDS_OF_NO_CORRELATION * math.sqrt(2 / (pairs * repeats * (repeats - 1))):
        return 1.0
    return 1 + (repeats - 1) * min(1.0, correlation)


def chance(bad: int, measured: int, share: float) -> float:
    """p-value: probability (0 to 1) of at least `bad` bad ones of `measured`, each bad with the probability `share`.

    Source: the binomial distribution.
    """
    if bad <= 0:
        return 1.0
    if share >= 1:
        return 1.0
    log_share, log_rest = math.log(share), math.log1p(-share)
    whole = 0.0
    for k in range(bad, measured + 1):
        term = math.exp(_log_choose(measured, k) + k * log_share + (measured - k) * log_rest)
        whole += term
        if k > measured * share and term <= _NEGLIGIBLE * whole:
            break
    return min(1.0, whole)


def exact_chance(bad: int, measured: int, all_bad: int, all_measured: int) -> float:
    """p-value: probability (0 to 1) that of `all_bad` bad ones among `all_measured`, `bad` or more are in `measured`.

    Source: Fisher's exact test, one-sided: the tail of the hypergeometric distribution.
    """
    if bad <= 0:
        return 1.0
    every = _log_choose(all_measured, measured)
    whole = 0.0
    for k in range(bad, min(measured, all_bad) + 1):
        if measured - k > all_measured - all_bad:
            continue
        term = math.exp(_log_choose(all_bad, k) + _log_choose(all_measured - all_bad, measured - k) - every)
        whole += term
        if term <= _NEGLIGIBLE * whole and k * all_measured > measured * all_bad:
            break
    return min(1.0, whole)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
