"""Times the pieces of a model once for all jobs of a table or a sweep whose pieces are alike."""

from dataclasses import fields
from operator import attrgetter
from typing import NamedTuple

from simulation.predict import operations
from simulation.predict.duration import Sent, Stopwatch, Times
from workloads.job.training_job import TrainingJob

_ELSEWHERE = (
    "name", "gpus", "pp", "vpp", "dp", "micro_batches", "distributed_optimizer", "fsdp", "megatron", "positions",
)  # fmt: skip
"""Fields that no piece depends on, but by `of_torch`."""
_decides = attrgetter("of_torch", *(field.name for field in fields(TrainingJob) if field.name not in _ELSEWHERE))


class _Known(NamedTuple):
    """The times of the pieces, what they send, and their FLOPs (`flops_of_pieces`)."""

    times: tuple[Times, ...]
    sent: dict[Sent, None]
    flops: tuple[float, float, float]


class PieceTimes:
    """The times of pieces by the fields of a job that decide them; all jobs of a GPU are on the same machine, and none
    on a network.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Known] = {}

    def of(self, watch: Stopwatch) -> _Known:
        """The pieces of the watch's job: embedding, dense layer, layer with experts and head; no time has one that the
        model lacks.
        """
        return self._found(watch, rested=False)

    def rested(self, watch: Stopwatch) -> tuple[Times, ...]:
        """Their times on the machine after a wait."""
        return self._found(watch, rested=True).times

    def _found(self, watch: Stopwatch, *, rested: bool) -> _Known:
        key = (rested, *_decides(watch.job))
        if key not in self._known:
            self._known[key] = _timed(watch.rested() if rested else watch)
        return self._known[key]


def _timed(watch: Stopwatch) -> _Known:
    times = tuple(watch.part(part) if part else Times() for part in operations.parts(watch.job))
    return _Known(times, dict(watch.sent), flops_of_pieces(watch.job))


def flops_of_pieces(job: TrainingJob) -> tuple[float, float, float]:
    """FLOPs of a micro-batch on a rank, without recomputation: a dense layer, a layer with experts, the head."""
    its = operations.parts(job.without_recompute())
    dense, expert, head = (part.flops if part else 0.0 for part in (its.dense, its.expert, its.head))
    return dense, expert, head
