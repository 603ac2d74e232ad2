"""Runs a pipeline schedule step by step: GPipe, 1F1B (PipeDream-flush) or interleaved 1F1B, and measures its bubble.

Every stage works through its own list of forward and backward passes in order; a pass begins when its stage is free and
what it needs has arrived. The lists are those of Megatron-LM (Narayanan et al., SC'21, section 2.2).
"""

from collections.abc import Iterator
from typing import NamedTuple

from common.errors import input_problem
from common.progress import StepProgress

CLOSED, GPIPE, ONE_F_ONE_B, INTERLEAVED = "closed", "gpipe", "1f1b", "interleaved"
SCHEDULES = (CLOSED, GPIPE, ONE_F_ONE_B, INTERLEAVED)
PIPELINES = (ONE_F_ONE_B, INTERLEAVED, GPIPE)
MOST_PASSES = 20_000_000  # a minute; each that is not over takes some hundred bytes


class Pass(NamedTuple):
    """One forward or backward pass of a micro-batch through one chunk of a stage."""

    forward: bool
    micro_batch: int
    chunk: int


class PipelineRun(NamedTuple):
    """Times in us. busy: of one stage; makespan: from the first pass to the last; bubble: what a stage waits."""

    makespan: float
    busy: float

    @property
    def bubble(self) -> float:
        """The time in which a stage waits."""
        return self.makespan - self.busy


def order(schedule: str, stages: int, stage: int, micro_batches: int, chunks: int) -> Iterator[Pass]:
    """The passes of a stage in the order in which it runs them. chunks is 1 unless the schedule is interleaved."""
    total = micro_batches * chunks
    if schedule == GPIPE:
        yield from (_pass(True, number, stages, chunks) for number in range(total))
        yield from (_pass(True, number, stages, chunks)._replace(forward=False) for number in reversed(range(total)))
        return
    warm_up = stages - stage - 1
    if schedule == INTERLEAVED and chunks > 1:
        warm_up = 2 * warm_up + (chunks - 1) * stages
    warm_up = min(warm_up, total)
    yield from (_pass(True, number, stages, chunks) for number in range(warm_up))
    for number in range(total - warm_up):
        yield _pass(True, warm_up + number, stages, chunks)
        yield _pass(False, number, stages, chunks)
    yield from (_pass(False, number, stages, chunks) for number in range(total - warm_up, total))


def run_schedule(
    schedule: str,
    stages: int,
    micro_batches: int,
    chunks: int,
    forward_us: float,
    backward_us: float,
    transfer_us: float,
) -> PipelineRun:
    """Run a schedule. forward_us, backward_us: of one micro-batch in a whole stage; a chunk takes its part of it.

    Raises:
        InputProblems: there are too many passes, or interleaving has micro-batches that the stages do not divide.
    """
    check(schedule, stages, micro_batches, chunks, f"; --schedule {CLOSED} takes any number")
    took = {True: forward_us / chunks, False: backward_us / chunks}
    ends: dict[tuple[bool, int, int, int], float] = {}
    todo = [order(schedule, stages, stage, micro_batches, chunks) for stage in range(stages)]
    following = [next(passes, None) for passes in todo]
    free = [0.0] * stages
    with StepProgress("passes", 2 * stages * micro_batches * chunks) as progress:
        while any(following):
            done = 0
            for stage in range(stages):
                while (one := following[stage]) is not None:
                    ready = ready_at(one, stage, stages, chunks, ends, transfer_us)
                    if ready is None:
                        break
                    free[stage] = max(free[stage], ready) + took[one.forward]
                    ends[one.forward, one.micro_batch, one.chunk, stage] = free[stage]
                    following[stage] = next(todo[stage], None)
                    done += 1
            if not done:
                raise AssertionError(f"{schedule} with {stages} stages and {micro_batches} micro-batches stands still")
            progress.advance(done)
    return PipelineRun(max(free), micro_batches * (forward_us + backward_us))


def check(schedule: str, stages: int, micro_batches: int, chunks: int, advice: str = "") -> None:
    """Refuse what `run_schedule` cannot run; `advice` follows what is said of too many passes.

    Raises:
        InputProblems: see `run_schedule`.
    """
    passes = 2 * stages * micro_batches * chunks
    if passes > MOST_PASSES:
        what = f"runs {passes} passes, at most {MOST_PASSES}{advice}"
        raise input_problem(f"--schedule {schedule}", None, what)
    if schedule == INTERLEAVED and chunks > 1 and micro_batches % stages:
        nearest = max(1, round(micro_batches / stages)) * stages
        what = f"ga {micro_batches} is no multiple of pp {stages}; {nearest} is"
        raise input_problem("--schedule interleaved", None, what)


def _pass(forward: bool, number: int, stages: int, chunks: int) -> Pass:
    """Megatron's numbering: `stages` micro-batches through a chunk, then through the next; backward from the last."""
    if chunks == 1:
        return Pass(forward, number, 0)
    round_, rest = divmod(number, stages * chunks)
    chunk, offset = divmod(rest, stages)
    return Pass(forward, round_ * stages + offset, chunk if forward else chunks - 1 - chunk)


def ready_at(
    one: Pass, stage: int, stages: int, chunks: int, ends: dict[tuple[bool, int, int, int], float], transfer_us: float
) -> float | None:
    """When what a pass needs is there, which nothing else needs, in us as `ends` has it; None: not yet known."""
    micro_batch, chunk = one.micro_batch, one.chunk
    if one.forward:
        if stage == 0 and chunk == 0:
            return 0.0
        before = (True, micro_batch, chunk, stage - 1) if stage else (True, micro_batch, chunk - 1, stages - 1)
    elif stage == stages - 1 and chunk == chunks - 1:
        return ends.pop((True, micro_batch, chunk, stage), None)
    else:
        last = stage == stages - 1
        before = (False, micro_batch, chunk + 1, 0) if last else (False, micro_batch, chunk, stage + 1)
    end = ends.pop(before, None)
    return None if end is None else end + (transfer_us if before[3] != stage else 0.0)
