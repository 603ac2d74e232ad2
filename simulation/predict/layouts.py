"""Enumerates the layouts of a model over GPUs, keeps those that fit, and ranks them by time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from common.errors import InputProblems
from simulation.predict.iteration import Prediction, predict
from simulation.predict.job import TrainingJob
from simulation.predict.job_table import job_of
from simulation.predict.machine import Machine

SWEPT = ("tp", "pp", "vpp", "cp", "ep", "mbs", "recompute", "fsdp")
MOST = 200_000
"""Layouts that are looked at in one sweep."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a sweep found: layouts that divide evenly, those of them that fit, by time."""

    divided: int
    fitting: list[Prediction]
    least_gib: float

    def second_behind(self) -> Mapping[str, float]:
        """By class, ms that the second layout takes longer than the first."""
        first, second = self.fitting[0].classes, self.fitting[1].classes
        longer = {key: second.get(key, 0.0) - first.get(key, 0.0) for key in {*first, *second}}
        return dict(sorted(longer.items(), key=lambda each: -abs(each[1])))


def powers(most: int) -> list[str]:
    """1, 2, 4 up to `most`."""
    found, size = [], 1
    while size <= most:
        found.append(str(size))
        size *= 2
    return found


def choices(row: Mapping[str, str], given: Mapping[str, Sequence[str]], machine: Machine) -> dict[str, Sequence[str]]:
    """The values of each swept column: those that were given, else what is usual for the model and the GPUs.

    Tensor parallelism stays among the GPUs that NVLink joins; experts, heads and layers bound ep, tp and pp.
    """
    gpus = int(row["gpus"])
    joined = min(8, machine.nvlink_domain)
    experts = int(row.get("experts") or 0)
    usual: dict[str, Sequence[str]] = {
        "tp": powers(min(joined, gpus, int(row["heads"]))), "pp": powers(min(gpus, int(row["layers"]), 64)),
        "vpp": ["1", "2", "4"], "cp": ["1", "2"], "ep": powers(min(gpus, experts)) if experts else ["1"],
        "mbs": ["1", "2", "4"], "recompute": ["none", "full"], "fsdp": ["0"],
    }  # fmt: skip
    return {key: given.get(key) or usual[key] for key in SWEPT}


def jobs(row: Mapping[str, str], swept: Mapping[str, Sequence[str]]) -> Iterator[TrainingJob]:
    """The jobs of all combinations that divide evenly: the batch, heads, layers, experts and GPUs."""
    gpus, gbs = int(row["gpus"]), int(row["gbs"])
    for values in product(*(swept[key] for key in SWEPT)):
        chosen = dict(zip(SWEPT, values, strict=True))
        tp, pp, vpp, cp, mbs = (int(chosen[key]) for key in ("tp", "pp", "vpp", "cp", "mbs"))
        dp, left = divmod(gpus, tp * pp * cp)
        if left or not dp or gbs % (dp * mbs) or (vpp > 1 and (pp == 1 or (gbs // (dp * mbs)) % pp)):
            continue
        try:
            yield job_of({**row, **chosen}, f"tp{tp} pp{pp}")
        except InputProblems:
            continue


def ranking(found: Iterator[TrainingJob], machine: Machine) -> Ranking:
    """Predict every layout; those whose reserved memory fits, the shortest iteration first."""
    fitting, divided, least = [], 0, float("inf")
    for job in found:
        divided += 1
        prediction = predict(job, machine)
        least = min(least, prediction.memory.reserved)
        if prediction.memory.reserved <= machine.memory_GiB:
            fitting.append(prediction)
    fitting.sort(key=lambda each: each.ms)
    return Ranking(divided, fitting, least)
