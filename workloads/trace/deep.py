"""Traces deep jobs by their shallow ones: `--layers_traced`.

What shallow traces show need not hold for a deep job (padding, buckets, windows): where not, it is refused.

Calls that repeat with the layers are safe: who fills a bucket or prefetches alike in every layer goes on so. A call of
Megatron whose size grows with the layers is checked against what it sends at the full depth without any pass.
DeepSpeed's buckets are cut from gradients alone, which grow with nothing (`buckets`); its windows are compared here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from workloads.job.parameters import TRAINING, ZERO_STAGES
from workloads.rows.calls import SIZES, Call
from workloads.trace import buckets
from workloads.trace.depth import DepthError, Inferred, at_depth, depth_of, is_divided, prove
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace
from workloads.trace.runs import NoPatternError

LEAST_BUCKET, BUCKET_PER_RANK = 40_000_000, 1_000_000
"""Elements: Megatron-core 0.16.1 closes a bucket at the larger of the first and the second times the ranks."""
ENDS = ("gradients", "step")
"""Phases that follow the passes of an iteration."""


def without_passes(job: TraceJob) -> TraceJob | None:
    """The job at its full depth without a pass: Megatron then sends the gradients and the step of buffers that nobody
    filled, with one bucket a buffer. None where there is no such end.
    """
    if job.frame != "Megatron" or job.phase != TRAINING:
        return None
    return replace(job, num_microbatches=0, iterations=1, overlap_grad_reduce=False, overlap_param_gather=False)


def before(job: TraceJob, depths: tuple[int, int]) -> None:
    """Refuse what is known before anything is traced.

    Raises:
        DepthError: the shallow traces would not show what the deep job does.
    """
    if not is_divided(job):
        raise DepthError(
            f"num_layers {job.num_layers} is not divided evenly over {job.pipeline_model_parallel} stages and "
            f"{job.virtual_pipeline} virtual ones"
        )
    if job.num_experts and job.moe_first_dense_layers >= depths[0]:
        raise DepthError(
            f"layers_traced {depths[0]},{depths[1]}: the first {job.moe_first_dense_layers} layers are dense, so the "
            f"smaller depth is at least {job.moe_first_dense_layers + 1}"
        )
    if job.frame == "DeepSpeed" and job.stage == ZERO_STAGES[-1]:
        _zero3(job, depths)


def _zero3(job: TraceJob, depths: tuple[int, int]) -> None:
    layer, whole = elements(job)
    found = [
        f"layers_traced {depths[0]},{depths[1]}: {name} {size} reaches over {-(-size // layer)} layers of {layer} "
        f"elements, more than the smaller depth shows and fewer than the model has; trace "
        f"{2 * -(-size // layer) + 1} layers or more, so that the waits of its start and of its end are apart"
        for name, size, reach in (
            ("prefetch_bucket_size", job.prefetch_bucket_size, 2 * whole),
            ("max_live_parameters", job.max_live_parameters, 2 * whole),
            ("max_reuse_distance", job.max_reuse_distance, 2 * whole),
            ("world_size * sub_group_size", job.world_size * job.sub_group_size, whole + layer),
        )
        if (depths[0] - 1) * layer < size < reach
    ]
    if job.model_persistence_threshold < whole:
        found.append(
            f"layers_traced: model_persistence_threshold {job.model_persistence_threshold} may hold the small weights"
            f" of a few layers and not of {job.num_layers}; {whole} holds them all"
        )
    if found:
        raise DepthError("\n".join(found))


def check(job: TraceJob, inferred: Inferred, bare: Trace | None) -> None:
    """Refuse an inferred trace of which a size is not sure. bare: the trace of `without_passes`.

    Raises:
        DepthError: a size that grows with the depth is not what the framework says.
    """
    found = sorted(set(_sizes(job, inferred, bare)))
    if found:
        shown = f"layers_traced {inferred.depths[0]},{inferred.depths[1]} says nothing sure of {depth_of(job)} layers: "
        raise DepthError("\n".join(shown + text for text in found))


def with_ends(trace: Trace, bare: Trace) -> Trace:
    """The trace with the ends of its iterations as the framework itself says for this depth, padding included: without
    overlap they do not depend on the passes.
    """
    first, *others = trace.iterations
    started = [tuple(op for op in ops if op.phase not in ENDS) for ops in others]
    return replace(trace, iterations=(first, *(ops + bare.iterations[1] for ops in started)))


def _sizes(job: TraceJob, inferred: Inferred, bare: Trace | None) -> Iterator[str]:
    if bare is not None:
        yield from _megatron(job, inferred, bare)
    elif job.frame == "Megatron":
        yield from (f"{_named(op)} would be {op.bytes} bytes" for op in inferred.growing(job))


def _megatron(job: TraceJob, inferred: Inferred, bare: Trace) -> Iterator[str]:
    sent = {(op.comm_type, op.ranks, op.dtype, op.bytes) for op in bare.ops}
    ranks = job.world_size // (job.tensor_model_parallel_size * job.pipeline_model_parallel)
    limit = job.bucket_size or max(LEAST_BUCKET, BUCKET_PER_RANK * ranks)
    for op in inferred.growing(job):
        if op.phase in ENDS and not job.overlap_grad_reduce:
            continue
        if (op.comm_type, op.ranks, op.dtype, op.bytes) not in sent:
            yield f"{_named(op)} would be {op.bytes} bytes, which with padding and buckets it is not"
        elif job.overlap_grad_reduce and job.pp_stage == 0 and op.bytes // SIZES[op.dtype] > limit:
            yield f"{_named(op)} would be {op.bytes} bytes, but a bucket closes at {limit} elements (bucket_size)"


def _named(op: Call) -> str:
    return f"{op.comm_type.name} over {op.group} ({op.phase})"


def elements(job: TraceJob) -> tuple[int, int]:
    """Numbers of parameters, in elements, of a layer and of the whole decoder that FSDP2 and DeepSpeed train."""
    hidden, heads = job.hidden_size, job.num_attention_heads
    groups = job.num_query_groups or heads
    keys = groups * (hidden // heads)
    bias = int(job.add_bias_linear)
    attention = 2 * hidden * hidden + 2 * hidden * keys + bias * (2 * hidden + 2 * keys)
    wide = 2 if job.swiglu else 1
    mlp = (wide + 1) * hidden * job.ffn_size + bias * (wide * job.ffn_size + hidden)
    layer = attention + mlp + 2 * hidden
    ends = job.vocab_size * hidden * (2 if job.untie_embeddings else 1) + hidden
    return layer, ends + layer * job.num_layers


Run = Callable[[list[TraceJob]], list[Trace]]


def deep_traces(jobs: list[TraceJob], shallow: tuple[int, int], run: Run) -> list[Trace]:
    """The traces of jobs, in their order, inferred from traces of shallower jobs and proved on one layer more.

    A job that is no deeper is traced as it is. shallow: the two numbers of layers that are traced in a chunk of each
    stage, the smaller one first. run: traces jobs and returns one trace a job, in their order.

    Raises:
        DepthError: a trace cannot be inferred, or the proof fails; the message says which operation is the first.
    """
    for job in jobs:
        if not is_whole(job, shallow):
            before(job, shallow)
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
    bare = [without_passes(each) for each in (third, job)]
    return [*(at_depth(job, depth) for depth in shallow), third, *(each for each in bare if each is not None)]


def _straddling(job: TraceJob, third: TraceJob) -> list[TraceJob]:
    """A job that proves where buckets end, if `third` fills none."""
    layer, whole = elements(job)
    if elements(third)[1] <= job.reduce_bucket_size < whole:
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
    prove(shallow, with_ends(said, bare[0]) if ends else said, third)
    check(job, inferred, bare[1] if bare else None)
    whole = inferred.at(job)
    return with_ends(whole, bare[1]) if ends else whole


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
