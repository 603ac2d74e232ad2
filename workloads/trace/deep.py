"""Traces deep jobs by their shallow ones: `--layers_traced`."""

from collections.abc import Callable
from dataclasses import replace

from workloads.trace import buckets, limits
from workloads.trace.depth import DepthError, Inferred, at_depth, depth_of, prove
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace
from workloads.trace.runs import NoPatternError

Run = Callable[[list[TraceJob]], list[Trace]]


def deep_traces(jobs: list[TraceJob], shallow: tuple[int, int], run: Run) -> list[Trace]:
    """The traces of jobs, inferred from those with the layers `shallow` in a chunk, and proved on one layer more.

    A job that is no deeper is traced as it is. run: traces jobs, in their order.

    Raises:
        DepthError: a trace cannot be inferred, or the proof fails; the message says which operation is the first.
    """
    for job in jobs:
        if not is_whole(job, shallow):
            limits.before(job, shallow)
    wanted = [wanted_jobs(job, shallow) for job in jobs]
    traces = iter(run([job for each in wanted for job in each]))
    found = [[next(traces) for _ in each] for each in wanted]
    return [_inferred(job, shallow, each) for job, each in zip(jobs, found, strict=True)]


def is_whole(job: TraceJob, shallow: tuple[int, int]) -> bool:
    """Whether the job is no deeper than the proof of its inference, so that it is traced as it is."""
    return depth_of(job) <= shallow[1] + 1


def wanted_jobs(job: TraceJob, shallow: tuple[int, int]) -> list[TraceJob]:
    """The jobs to trace: three depths; of Megatron also the ends of iterations, at the third depth and the job's; of
    DeepSpeed, where only the job fills a bucket, the third depth also with buckets that end inside of layers.
    """
    if is_whole(job, shallow):
        return [job]
    third = at_depth(job, shallow[1] + 1)
    if job.frame == "DeepSpeed":
        return [*(buckets.apart(at_depth(job, depth)) for depth in shallow), third, *_straddling(job, third)]
    bare = [limits.without_passes(each) for each in (third, job)]
    return [*(at_depth(job, depth) for depth in shallow), third, *(each for each in bare if each is not None)]


def _straddling(job: TraceJob, third: TraceJob) -> list[TraceJob]:
    """A job that proves where buckets end, if `third` fills none."""
    layer, whole = limits.elements(job)
    if limits.elements(third)[1] <= job.reduce_bucket_size < whole:
        return [replace(third, reduce_bucket_size=layer + layer // 2)]
    return []


def _inferred(job: TraceJob, shallow: tuple[int, int], traces: list[Trace]) -> Trace:
    if len(traces) == 1:
        return traces[0]
    if job.frame == "DeepSpeed":
        return _cut(job, shallow, traces)
    first, second, third, *bare = traces
    inferred = _pattern(shallow, first, second)
    ends = bool(bare) and not job.overlap_grad_reduce
    said = inferred.at(third.job)
    prove(shallow, limits.with_ends(said, bare[0]) if ends else said, third)
    limits.check(job, inferred, bare[1] if bare else None)
    whole = inferred.at(job)
    return limits.with_ends(whole, bare[1]) if ends else whole


def _pattern(shallow: tuple[int, int], first: Trace, second: Trace) -> Inferred:
    try:
        return Inferred(first, second)
    except NoPatternError as reason:
        raise DepthError(
            f"layers_traced {shallow[0]},{shallow[1]}: what {shallow[1]} layers send is not what {shallow[0]} send and "
            f"equal layers more ({reason}): buckets or windows do not end with the layers; trace more "
            "layers or the job itself, or let generate write it from rules"
        ) from None


def _cut(job: TraceJob, shallow: tuple[int, int], traces: list[Trace]) -> Trace:
    """DeepSpeed: gradients alone repeat with the layers; buckets are cut from them."""
    first, second, *proofs = traces
    inferred = _pattern(shallow, buckets.unpadded(first), buckets.unpadded(second))
    for proof in proofs:
        prove(shallow, buckets.filled(inferred.at(buckets.apart(proof.job)), proof.job), proof)
    return buckets.filled(inferred.at(buckets.apart(job)), job)
