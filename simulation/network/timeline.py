"""Lists what each rank did when, in a run at any level: spans of computation, of collectives and of transfers."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from simulation.network.job import INPUT_GRADIENT, QUEUES, SENDS, TRANSFER, WAITS, WEIGHT_GRADIENT, Job, JobPhase
from simulation.network.tables import RanksRun

COMPUTE, WAITED, BESIDE = "computation", "waited for", "beside computation"
TURN_NS = 1  # that a step takes besides its computation
_PARTS = {INPUT_GRADIENT: " input gradient", WEIGHT_GRADIENT: " weight gradient"}


class Span(NamedTuple):
    """An activity of a rank from `begin` to `end` (ns). `track` is COMPUTE, WAITED or BESIDE, `kind` that of the
    groups.
    """

    rank: int
    track: str
    kind: str
    name: str
    begin: int
    end: int
    collective: int | None = None


def spans(job: Job, run: RanksRun, slowness: Mapping[int, float], rank: int) -> Iterator[Span]:
    """The activities of a rank, up to where the run ended; `slowness`, dimensionless, is how many times as long it
    computes.
    """
    now, factor = 0, slowness.get(rank, 1.0)
    queued: list[Span] = []
    begins, ends = run.parts_of(rank)
    for phase in job.phases(rank):
        computed = int(phase.compute_ns * factor)
        name = _name(job, phase)
        if computed > TURN_NS:
            yield Span(rank, COMPUTE, COMPUTE, name, now, now + computed)
        now += computed
        number = phase.collective
        if number is not None:
            if begins[number] < 0 or (phase.mode == WAITS and ends[number] < 0):
                return
            collective = job.collectives[number]
            begin, end = begins[number], ends[number]
            if end > begin:
                track = WAITED if phase.mode == WAITS else BESIDE
                said = f"{name}: {collective.op} {collective.size_bytes} bytes" if phase.row >= 0 else name
                span = Span(rank, track, collective.kind, said, begin, end, number)
                yield span
                queued += [span] if phase.mode == QUEUES else []
            if phase.mode == WAITS and end > now:
                now = end + collective.end_gap_ns
        now += TURN_NS
    for span in sorted(queued, key=lambda each: each.end):  # at the end a rank waits for what it queued
        if span.end > now:
            yield span._replace(track=WAITED, begin=now)
            now = span.end


def _name(job: Job, phase: JobPhase) -> str:
    if phase.part == TRANSFER:
        return "send to another stage" if phase.mode == SENDS else "receive from another stage"
    return job.names[phase.row] + _PARTS.get(phase.part, "")
