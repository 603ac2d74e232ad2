"""Holds a prediction against the iterations that a run of the benchmarks measured: `predict --against RUN_FOLDER`."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from common.errors import input_problem
from common.run_folder import read_record, rounds
from common.summary import JsonValue as Plain
from simulation.predict import certainty
from simulation.predict.iteration import Prediction

# Metrics of an iteration's median, and milliseconds of their unit: a training step, an AICB iteration.
METRICS = {"step_time_p50": 1e3, "iteration_p50_ms": 1.0}
SPREAD = 1.5
"""How many times the spread of repeats a deviation may have before it is called one."""


COMMUNICATION, OPTIMIZER, COMPUTE = "exposed communication", "optimizer", "compute"
_PREDICTED = {**dict.fromkeys(("dp", "tp", "ep", "cp", "pp"), COMMUNICATION), "optimizer": OPTIMIZER}
# Metrics of a profiled training (s) and of an AICB iteration (ms) that say how long a part took.
_PHASES = {
    "phase_exposed_communication": (COMMUNICATION, 1e3), "exposed_ms": (COMMUNICATION, 1.0),
    "phase_optimizer": (OPTIMIZER, 1e3), "phase_forward": (COMPUTE, 1e3), "phase_backward": (COMPUTE, 1e3),
    "phase_data": (COMPUTE, 1e3),
}  # fmt: skip


class Measured(NamedTuple):
    """A case's iterations in ms: the median of each round that passed, and its parts where they were measured."""

    case: str
    rounds: tuple[float, ...]
    parts: Mapping[str, float] = MappingProxyType({})

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


def measured(folder: Path, gpus: int | None, flag: str = "--against") -> list[Measured]:
    """The measurements of each case of a run on `gpus` ranks; None: on any number.

    Raises:
        InputProblems: the folder is no run's, or no round that passed measured an iteration on as many ranks.
    """
    found: dict[str, list[float]] = {}
    parts: dict[str, dict[str, list[float]]] = {}
    sizes = set()
    for path in rounds(folder, flag):
        record = read_record(path, _Round)
        if record.verdict not in ("pass", "degraded"):
            continue
        for metric, unit in METRICS.items():
            value = record.metrics.get(metric)
            if isinstance(value, int | float) and value > 0:
                sizes.add(record.world_size)
                if gpus in (record.world_size, None):
                    found.setdefault(record.case, []).append(value * unit)
                    for part, ms in _parts(record.metrics).items():
                        parts.setdefault(record.case, {}).setdefault(part, []).append(ms)
    if not found and sizes:
        raise input_problem(
            flag, folder, f"its iterations are of {', '.join(map(str, sorted(sizes)))} ranks, not {gpus}"
        )
    if not found:
        raise input_problem(flag, folder, f"no round that passed measured {' or '.join(METRICS)}")
    return [
        Measured(case, tuple(values), {part: median(ms) for part, ms in parts.get(case, {}).items()})
        for case, values in found.items()
    ]


def _parts(metrics: Mapping[str, JsonValue]) -> dict[str, float]:
    """Milliseconds of an iteration's parts in one round."""
    found: dict[str, float] = {}
    for metric, (part, unit) in _PHASES.items():
        value = metrics.get(metric)
        if isinstance(value, int | float) and value >= 0:
            found[part] = found.get(part, 0.0) + value * unit
    return found


def _predicted_parts(found: Prediction) -> dict[str, float]:
    """Milliseconds of the parts that a run may measure."""
    predicted: dict[str, float] = {}
    for key, ms in found.classes.items():
        part = _PREDICTED.get(key, COMPUTE)
        predicted[part] = predicted.get(part, 0.0) + ms
    return predicted


def deviating(found: Prediction, its: Measured) -> tuple[str, float] | None:
    """The part that deviates most, and by how many ms it took longer than predicted; None: no part was measured."""
    predicted = _predicted_parts(found)
    longer = {part: ms - predicted.get(part, 0.0) for part, ms in its.parts.items()}
    return max(longer.items(), key=lambda each: abs(each[1]), default=None)


def sentence(found: Prediction, its: Measured) -> str:
    """The measured time beside the predicted one, and what the deviation means."""
    sure = certainty.interval(found)
    deviation = found.ms / its.ms - 1
    said = f"{its.case}: measured {its.ms:.1f} ms (median of {len(its.rounds)}), predicted {100 * deviation:+.1f} %"
    if worst := deviating(found, its):
        said += f", most of it in {worst[0]} ({worst[1]:+.1f} ms)"
    if abs(deviation) <= SPREAD * its.spread:
        return f"{said}: no more than {SPREAD:g} times the spread of its rounds"
    if sure.low <= its.ms <= sure.high:
        return f"{said}: inside the interval"
    if its.ms > sure.high:
        return f"{said}: the job takes longer than the interval allows"
    return f"{said}: the job takes less than the interval allows"


def data(found: Prediction, its: Measured) -> dict[str, Plain]:
    """The same for a program."""
    predicted, worst = _predicted_parts(found), deviating(found, its)
    parts: list[dict[str, Plain]] = [
        {"part": part, "predicted_ms": predicted.get(part, 0.0), "measured_ms": ms} for part, ms in its.parts.items()
    ]
    return {
        "case": its.case, "measured_ms": its.ms, "rounds_ms": list(its.rounds), "spread": its.spread,
        "deviation": found.ms / its.ms - 1, "parts": parts, "deviates": worst and worst[0],
        "sentence": sentence(found, its),
    }  # fmt: skip
