"""Computes the share of its measurement that a round had made when it ended early, from the log of rank 0."""

from pydantic import BaseModel

from protocol.perflog import Event
from run_benchmarks.results.rank_logs import RankLog
from run_benchmarks.results.verdict import Verdict


class PartialRecord(BaseModel, frozen=True, extra="forbid"):
    """The steps that a round measured before it ended early, of `total_steps` (None: it is unknown how many)."""

    completed_steps: int
    total_steps: int | None

    def __str__(self) -> str:
        total = "an unknown number of" if self.total_steps is None else str(self.total_steps)
        return f"{self.completed_steps} of {total} steps"


def partial_of(rank0: RankLog | None, verdict: Verdict) -> PartialRecord | None:
    """The part that was measured; None for a round that measured everything, or nothing."""
    if rank0 is None or not rank0.steps or verdict.is_measured:
        return None
    if has_finished(rank0) or rank0.is_cut:
        return None
    last = rank0.steps[-1].get("step")
    total = (rank0.value(Event.TRAIN_START) or {}).get("total_steps")
    return PartialRecord(completed_steps=_count(last) or len(rank0.steps), total_steps=_count(total))


def _count(value: object) -> int | None:
    """A number that a host sent, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def has_finished(log: RankLog) -> bool:
    """Whether the rank logged FINISHED, and not for a part of its work."""
    return Event.FINISHED in log.latest and (log.value(Event.FINISHED) or {}).get("partial") is not True
