"""Holds a prediction against the iterations that a run of the benchmarks measured: `predict --against RUN_FOLDER`."""

from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from common.errors import input_problem
from common.summary import JsonValue as Plain
from simulation.common.run_folder import read_record, rounds
from simulation.predict import certainty
from simulation.predict.iteration import Prediction

# Metrics of an iteration's median, and milliseconds of their unit: a training step, an AICB iteration.
METRICS = {"step_time_p50": 1e3, "iteration_p50_ms": 1.0}
SPREAD = 1.5
"""How many times the spread of repeats a deviation may have before it is called one."""


class Measured(NamedTuple):
    """A case's iterations in ms: the median of each round that passed."""

    case: str
    rounds: tuple[float, ...]

    @property
    def ms(self) -> float:
        return median(self.rounds)

    @property
    def spread(self) -> float:
        """The rounds' range over their median."""
        return (max(self.rounds) - min(self.rounds)) / self.ms


class _Round(BaseModel):
    """The fields that are read of round.json."""

    case: str
    verdict: str
    world_size: int
    metrics: dict[str, JsonValue]


def measured(folder: Path, gpus: int, flag: str = "--against") -> list[Measured]:
    """The measurements of each case of a run on `gpus` ranks.

    Raises:
        InputProblems: the folder is no run's, or no round that passed measured an iteration on as many ranks.
    """
    found: dict[str, list[float]] = {}
    sizes = set()
    for path in rounds(folder, flag):
        record = read_record(path, _Round)
        if record.verdict not in ("pass", "degraded"):
            continue
        for metric, unit in METRICS.items():
            value = record.metrics.get(metric)
            if isinstance(value, int | float) and value > 0:
                sizes.add(record.world_size)
                if record.world_size == gpus:
                    found.setdefault(record.case, []).append(value * unit)
    if not found:
        of = f"on {', '.join(map(str, sorted(sizes)))} ranks, not {gpus}" if sizes else f"with {' or '.join(METRICS)}"
        raise input_problem(flag, folder, f"no round that passed measured an iteration: {of}" if not sizes else
                            f"its rounds measured iterations {of}")  # fmt: skip
    return [Measured(case, tuple(values)) for case, values in found.items()]


def sentence(found: Prediction, its: Measured) -> str:
    """The measured time beside the predicted one, and what the deviation means."""
    sure = certainty.interval(found)
    deviation = found.ms / its.ms - 1
    said = f"{its.case}: measured {its.ms:.1f} ms (median of {len(its.rounds)}), predicted {100 * deviation:+.1f} %"
    if abs(deviation) <= SPREAD * its.spread:
        return f"{said}: no more than {SPREAD:g} times the spread of its rounds"
    if sure.low <= its.ms <= sure.high:
        return f"{said}: inside the interval"
    if its.ms > sure.high:
        return f"{said}: the job takes longer than the interval allows"
    return f"{said}: the job takes less than the interval allows"


def data(found: Prediction, its: Measured) -> dict[str, Plain]:
    """The same for a program."""
    return {
        "case": its.case, "measured_ms": its.ms, "rounds_ms": list(its.rounds), "spread": its.spread,
        "deviation": found.ms / its.ms - 1, "sentence": sentence(found, its),
    }  # fmt: skip
