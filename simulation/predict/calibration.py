"""Fits a machine's factors to measured iterations: few factors, drawn towards the shipped ones.

The mean squared error of the logarithm of each layout's rows, in units of MEASURED_SIGMA, summed over layouts, and the
squared deviations of the factors' logarithms from the shipped values, in units of FACTOR_SIGMA, are least (maximum a
posteriori of log-normal laws). Rows that differ in the number of micro-batches alone are one layout.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import exp, log

from simulation.predict.iteration import predict
from simulation.predict.machine import Factors, Machine
from workloads.job.training_job import TrainingJob

MEASURED_SIGMA = 0.05
"""Of a layout: repeats of SimuMax's scatter by 4 to 10 %."""
FACTOR_SIGMA = 0.15
ROUNDS = 4
_GOLDEN = (5**0.5 - 1) / 2
_STEPS = 18
_REACH = 1.0  # of a factor's logarithm around the shipped value


def calibrated(machine: Machine, measured: Sequence[tuple[TrainingJob, float]]) -> Machine:
    """The machine with factors for jobs that took `ms`; what no job shows stays as it is."""
    rows: dict[str, int] = Counter(job.precision for job, _ in measured)
    layouts = Counter(replace(job, name="", micro_batches=1) for job, _ in measured)
    weighted = [(job, ms, 1 / layouts[replace(job, name="", micro_batches=1)]) for job, ms in measured]
    knobs: list[tuple[_Setter, list[_Measured]]] = [
        (_product_setter(precision), [row for row in weighted if row[0].precision == precision]) for precision in rows
    ]
    if any(job.experts for job, _ in measured):
        knobs.append((_dispatch, [row for row in weighted if row[0].experts]))
    knobs.append((_attention, weighted))
    shifts = [0.0] * len(knobs)
    for _ in range(ROUNDS):
        for at, (setter, jobs) in enumerate(knobs):
            machine, shifts[at] = _fitted(machine, jobs, setter, shifts[at])
    source = {**machine.factors.source, **{key: f"calibrated on {count} rows" for key, count in rows.items()}}
    return replace(machine, factors=replace(machine.factors, source=source))


_Measured = tuple[TrainingJob, float, float]
_Setter = Callable[[Factors, float], Factors]


def _product_setter(precision: str) -> _Setter:
    def setter(factors: Factors, times: float) -> Factors:
        return replace(factors, products={**factors.products, precision: factors.products[precision] * times})

    return setter


def _dispatch(factors: Factors, times: float) -> Factors:
    return replace(factors, dispatch=factors.dispatch * times)


def _attention(factors: Factors, times: float) -> Factors:
    return replace(factors, attention=factors.attention * times)


def _fitted(machine: Machine, jobs: Sequence[_Measured], setter: _Setter, before: float) -> tuple[Machine, float]:
    """The machine with the best value of one factor, by golden-section search, and its shift from the shipped value.

    before: the shift of the machine's present value.
    """

    def changed(shift: float) -> Machine:
        return replace(machine, factors=setter(machine.factors, exp(shift - before)))

    def cost(shift: float) -> float:
        other = changed(shift)
        errors = (weight * log(predict(job, other).ms / ms) ** 2 for job, ms, weight in jobs)
        return sum(errors) / MEASURED_SIGMA**2 + (shift / FACTOR_SIGMA) ** 2

    low, high = -_REACH, _REACH
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = cost(left), cost(right)
    for _ in range(_STEPS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = cost(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = cost(right)
    best = (low + high) / 2
    return changed(best), best
