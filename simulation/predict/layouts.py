"""Enumerates the layouts of a model over GPUs, keeps those that fit, and ranks them by time."""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from common.errors import InputProblems
from common.progress import StepProgress
from simulation.predict.iteration import Prediction, predict
from simulation.predict.job_table import job_of
from simulation.predict.kept import Estimate, KeptLayouts
from simulation.predict.machine import Machine
from simulation.predict.pieces import PieceTimes
from workloads.job.training_job import TrainingJob

SWEPT = ("tp", "pp", "vpp", "cp", "ep", "mbs", "recompute", "fsdp", "zero")
"""Of Megatron-LM the distributed optimizer is zero 1."""
MOST = 200_000
"""Layouts that are looked at in one sweep."""


class Layout(NamedTuple):
    """A layout that fits, and what is predicted of it, in ms, GiB, and tokens a second."""

    job: TrainingJob
    estimate: Estimate

    @property
    def tokens_per_second_and_gpu(self) -> float:
        return self.job.tokens_per_iteration / self.estimate.ms * 1e3 / self.job.gpus


@dataclass(frozen=True, slots=True)
class Ranking:
    """A sweep's result: how many layouts divide evenly; those that fit, by time; the least memory in GiB; the first
    rule that refused a layout ("": none).
    """

    divided: int
    fitting: list[Layout]
    least_gib: float
    refused: str


def second_behind(first: Prediction, second: Prediction) -> Mapping[str, float]:
    """By class, ms that the second layout takes longer than the first."""
    longer = {
        key: second.classes.get(key, 0.0) - first.classes.get(key, 0.0) for key in {**first.classes, **second.classes}
    }
    return dict(sorted(longer.items(), key=lambda each: -abs(each[1])))


def powers(most: int) -> list[str]:
    """1, 2, 4 up to `most`."""
    found, size = [], 1
    while size <= most:
        found.append(str(size))
        size *= 2
    return found


def choices(row: Mapping[str, str], given: Mapping[str, Sequence[str]], machine: Machine) -> dict[str, Sequence[str]]:
    """The values of each swept column: those that were given, else what is usual for the model and the GPUs; of dp, the
    values to which the others are restricted.

    Tensor parallelism stays among the GPUs that NVLink joins; experts, heads and layers bound ep, tp and pp.
    """
    gpus = int(row["gpus"])
    joined = min(8, machine.nvlink_domain)
    experts = int(row.get("experts") or 0)
    usual: dict[str, Sequence[str]] = {
        "tp": powers(min(joined, gpus, int(row["heads"]))), "pp": powers(min(gpus, int(row["layers"]), 64)),
        "vpp": ["1", "2", "4"], "cp": ["1", "2"], "ep": powers(min(gpus, experts)) if experts else ["1"],
        "mbs": ["1", "2", "4"], "recompute": ["none", "full"], "fsdp": ["0"],
        "zero": [""],
    }  # fmt: skip
    return {**given, **{key: given.get(key) or usual[key] for key in SWEPT}}


def jobs(row: Mapping[str, str], swept: Mapping[str, Sequence[str]]) -> Iterator[TrainingJob | str]:
    """The job of each combination; a text: the rule by which it is none ("": batch or GPUs do not divide evenly)."""
    gbs = int(row["gbs"])
    wanted = {int(size) for size in swept.get("dp", ())}
    for values in product(*(swept[key] for key in SWEPT)):
        yield _job(row, dict(zip(SWEPT, values, strict=True)), gbs, wanted)


def _job(row: Mapping[str, str], chosen: dict[str, str], gbs: int, wanted: Set[int]) -> TrainingJob | str:
    """The job of the values of the swept columns; `wanted`: data parallel sizes, none: all."""
    tp, pp, vpp, cp, mbs = (int(chosen[key]) for key in ("tp", "pp", "vpp", "cp", "mbs"))
    dp, left = divmod(int(row["gpus"]), tp * pp * cp)
    if left or not dp or not _divides(gbs, dp * mbs, pp, vpp):
        return ""
    own = row.get("distributed_optimizer") if chosen["fsdp"] == "0" else None
    zero = chosen.pop("zero") or own or "1"
    if wanted and dp not in wanted:
        return ""
    if zero == "0" and chosen["fsdp"] != "0":
        return "zero 0: FSDP has no whole optimizer"
    try:
        return job_of({**row, **chosen, "distributed_optimizer": zero}, f"tp{tp} pp{pp}")
    except InputProblems as problems:
        return str(problems.problems[0])


def _divides(gbs: int, samples: int, pp: int, vpp: int) -> bool:
    """Whether the batch is whole micro-batches of so many samples, of interleaved stages as many as each round has."""
    return gbs % samples == 0 and (vpp <= 1 or (pp > 1 and (gbs // samples) % pp == 0))


def ranking(found: Iterator[TrainingJob | str], machine: Machine, kept: KeptLayouts, most: int) -> Ranking:
    """Predict every layout but those that are kept; those whose reserved memory fits, the shortest iteration first.

    most: combinations, those without a job among them.
    """
    fitting, divided, least, refused, known = [], 0, float("inf"), "", PieceTimes()
    try:
        with StepProgress("layouts", most) as progress:
            for job in found:
                progress.advance()
                if isinstance(job, str):
                    refused = refused or job
                    continue
                estimate = kept.known(job.gpus, divided)
                if estimate is None:
                    prediction = predict(job, machine, known=known)
                    estimate = Estimate(prediction.ms, prediction.memory.reserved)
                    kept.add(job.gpus, divided, estimate)
                divided += 1
                least = min(least, estimate.reserved_gib)
                if estimate.reserved_gib <= machine.memory_GiB:
                    fitting.append(Layout(job, estimate))
    finally:
        kept.write()
    fitting.sort(key=lambda each: each.estimate.ms)
    return Ranking(divided, fitting, least, refused)
