"""Traces deep jobs by their shallow ones: `--layers_traced`."""

from collections.abc import Callable

from training.benchmarks.aicb.trace import limits
from training.benchmarks.aicb.trace.depth import DepthError, Inferred, at_depth, depth_of, prove
from training.benchmarks.aicb.trace.job import TraceJob
from training.benchmarks.aicb.trace.record import Trace
from training.benchmarks.aicb.trace.runs import NoPatternError

Run = Callable[[list[TraceJob]], list[Trace]]


def depths(text: str) -> tuple[int, int]:
    """Two depths from `2,4`.

    Raises:
        ValueError: the text is none.
    """
    first, second = map(int, text.split(","))
    if not 1 <= first < second:
        raise ValueError(text)
    return first, second


depths.__name__ = "pair of depths like 2,4"


def deep_traces(jobs: list[TraceJob], shallow: tuple[int, int], run: Run) -> list[Trace]:
    """The traces of jobs, inferred from those with the layers `shallow` in a chunk, and proved on one layer more.

    A job that is no deeper is traced as it is. run: traces jobs, in their order.

    Raises:
        DepthError: a trace cannot be inferred, or the proof fails; the message says which operation is the first.
    """
    for job in jobs:
        if depth_of(job) > shallow[1] + 1:
            limits.before(job, shallow)
    wanted = [wanted_jobs(job, shallow) for job in jobs]
    traces = iter(run([job for each in wanted for job in each]))
    found = [[next(traces) for _ in each] for each in wanted]
    return [_inferred(job, shallow, each) for job, each in zip(jobs, found, strict=True)]


def wanted_jobs(job: TraceJob, shallow: tuple[int, int]) -> list[TraceJob]:
    """What is traced: three depths; of Megatron also the ends of iterations, at the third depth and the job's."""
    if depth_of(job) <= shallow[1] + 1:
        return [job]
    third = at_depth(job, shallow[1] + 1)
    bare = [limits.without_passes(each) for each in (third, job)]
    return [*(at_depth(job, depth) for depth in shallow), third, *(each for each in bare if each is not None)]


def _inferred(job: TraceJob, shallow: tuple[int, int], traces: list[Trace]) -> Trace:
    if len(traces) == 1:
        return traces[0]
    first, second, third, *bare = traces
    try:
        inferred = Inferred(first, second)
    except NoPatternError as reason:
        raise DepthError(
            f"layers_traced {shallow[0]},{shallow[1]}: what {shallow[1]} layers send is not what {shallow[0]} send and "
            f"equal layers more ({reason}): buckets or windows do not end with the layers; trace the job "
            "itself, or let generate write it from rules"
        ) from None
    ends = bool(bare) and not job.overlap_grad_reduce
    said = inferred.at(third.job)
    prove(shallow, limits.with_ends(said, bare[0]) if ends else said, third)
    limits.check(job, inferred, bare[1] if bare else None)
    whole = inferred.at(job)
    return limits.with_ends(whole, bare[1]) if ends else whole
