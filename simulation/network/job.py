"""Holds what the ranks of one or several jobs compute and send in an iteration."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from common.summary import JsonValue
from simulation.common.untimed import warn_if_untimed
from simulation.flows.groups import RankGroup
from simulation.flows.train import FlowSchedule

WAITS, QUEUES, SENDS = range(3)  # modes of a phase
FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, TRANSFER = range(4)  # parts of a row; a transfer between stages has no row

# Makes the flows of a collective of so many bytes, by the algorithm of this number if there is a choice.
ScheduleMaker = Callable[[str, RankGroup, int, int | None], FlowSchedule]


class GroupCollective(NamedTuple):
    """One collective of all groups of a kind. `end_gap_ns`: from its end on a rank to the rank's next step.

    `groups` are none for a transfer between stages.
    """

    op: str
    kind: str
    size_bytes: int
    group_ranks: int
    schedules: list[FlowSchedule]
    end_gap_ns: int
    groups: Sequence[RankGroup] = ()


class JobPhase(NamedTuple):
    """One phase: computation, then a collective by its number (None: nothing is sent).

    `row` is the row's number from 0, `part` one of FORWARD and so on. `mode` says whether the rank WAITS for the
    collective, QUEUES it, or SENDS without looking at it again.
    """

    row: int
    part: int
    compute_ns: int
    collective: int | None
    mode: int


class JobPart(NamedTuple):
    """One job of those on a network: its name, its first rank, the number of its ranks, and which rows are its own."""

    name: str
    first: int
    ranks: int
    rows: range


class Job(NamedTuple):
    """The work of all GPUs in an iteration; several jobs on one network are one Job of several parts.

    Each rank, which has the number of its GPU, works through the phases of `programs[program_of[rank]]`.
    """

    names: list[str]
    programs: list[list[JobPhase]]
    program_of: list[int]
    collectives: list[GroupCollective]
    parts: list[JobPart]

    @property
    def ranks(self) -> int:
        """The number of GPUs up to the last that has work."""
        return len(self.program_of)

    def phases(self, rank: int) -> list[JobPhase]:
        """The phases of a rank, in order."""
        return self.programs[self.program_of[rank]]


def numbers_in_parts(job: Job) -> list[int]:
    """The number of each collective among those of its part, whichever other parts there are."""
    found = [0] * len(job.collectives)
    for part in job.parts:
        programs = {job.program_of[rank] for rank in range(part.first, part.first + part.ranks)}
        its = {phase.collective for each in programs for phase in job.programs[each]}
        for place, number in enumerate(sorted(number for number in its if number is not None)):
            found[number] = place
    return found


def iterations(job: Job, finished: Sequence[int], data: dict[str, JsonValue]) -> str:
    """When the first rank of a job ended, or the last ones of several jobs, by `finished` (ns by rank); `data` gets it
    in us, with the end of the last rank of all. What did not end is below 0, and None in `data`.
    """
    parts = job.parts
    first = _us(finished[parts[0].first])
    data["iteration_of_rank_0_us"] = first
    data["iteration_us"] = _us(_end(finished))
    if len(parts) == 1:
        return f"iteration of rank 0 {_told(first)}"
    took = [_us(_end(finished[part.first : part.first + part.ranks])) for part in parts]
    data["jobs"] = [
        {"name": part.name, "first_rank": part.first, "ranks": part.ranks, "iteration_us": us}
        for part, us in zip(parts, took, strict=True)
    ]
    return "iteration of " + ", ".join(
        f"{part.name} on {part.first}-{part.first + part.ranks - 1} {_told(us)}"
        for part, us in zip(parts, took, strict=True)
    )


def _end(finished: Sequence[int]) -> int:
    """The end of the last rank; below 0 if one did not end."""
    return min(finished) if min(finished) < 0 else max(finished)


def _us(end_ns: int) -> float | None:
    return end_ns / 1000 if end_ns >= 0 else None


def _told(us: float | None) -> str:
    return "did not end" if us is None else f"{us:.3f} us"


def warn_of_untimed(job: Job, finished: Sequence[int]) -> list[str]:
    """Warn of each part whose first rank computes for almost nothing of its iteration; `finished` are ns by rank."""
    found = []
    for part in job.parts:
        computation = sum(phase.compute_ns for phase in job.phases(part.first))
        found += warn_if_untimed(part.name, computation, finished[part.first])
    return found
