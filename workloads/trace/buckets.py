"""Cuts DeepSpeed's gradient buckets: from a trace that reduces each gradient alone, that of buckets of any size.

deepspeed 0.19.8 sends a bucket before the gradient that would make it more than reduce_bucket_size elements. So its
reductions are those of the gradients alone, drawn together where the last one of a bucket stands. Gradients alone
repeat with the layers, buckets need not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby

from workloads.dialects.framework.zero import owners_parts
from workloads.rows.calls import Call
from workloads.rows.ops import CommType
from workloads.trace.depth import DepthError
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace

ALIGNED = 2
"""Elements for each rank that the flattened parameters of ZeRO 1 and 2 are padded to multiples of."""
ELEMENT = 2
"""Bytes of a parameter and of its gradient: bfloat16 or float16."""

ENDS = ("embedding", "head")
"""Modules outside of all layers; they may be larger than a bucket."""


def apart(job: TraceJob) -> TraceJob:
    """The job with every gradient reduced alone, and whole: ZeRO 1 and 2 cut it up only with contiguous_gradients."""
    return replace(job, reduce_bucket_size=1, contiguous_gradients=job.stage == 3 and job.contiguous_gradients)


def unpadded(trace: Trace) -> Trace:
    """The trace with the gathering of ZeRO 1 and 2 without padding, so that it grows with the layers."""
    return _gathering(trace, sum(_parameters(trace)))


def filled(trace: Trace, job: TraceJob) -> Trace:
    """The trace of `job` from that of `apart(job)`.

    Raises:
        DepthError: elements of a gradient, or the place of one that owners reduce in parts, are not known.
    """
    parameters = _parameters(trace)
    step = ALIGNED * job.world_size
    flat = -(-sum(parameters) // step) * step
    cutter = _Cutter(job, parameters, flat)
    # No bucket outlives the backward pass of a micro-batch.
    runs = [[list(run) for _, run in groupby(ops, lambda op: op.micro_batch)] for ops in trace.iterations]
    found = [[sent for run in each for sent in cutter.cut(run)] for each in runs]
    before = [0, *accumulate(len(sent) for each in found for sent in each)]
    iterations, old = [], 0
    for each in found:
        ops: list[Call] = []
        for sent in each:
            old += 1
            for op in sent:
                # Of the calls up to the wait those count that are still there.
                later = op.overlap or 0
                ops.append(replace(op, overlap=before[old + later] - before[old]) if later > 0 else op)
        iterations.append(tuple(ops))
    return _gathering(Trace(job, trace.versions, tuple(iterations)), flat)


def _parameters(trace: Trace) -> list[int]:
    """Elements of the parameters, which rank 0 broadcasts in their order in the flat buffer."""
    return [op.bytes // ELEMENT for op in trace.iterations[0] if op.comm_type is CommType.broadcast]


def _gathering(trace: Trace, elements: int) -> Trace:
    if trace.job.stage == 3:
        return trace
    gathered = CommType.all_gather_into_tensor
    iterations = (
        tuple(
            replace(op, bytes=elements * ELEMENT) if op.comm_type is gathered and op.phase == "step" else op
            for op in ops
        )
        for ops in trace.iterations
    )
    return replace(trace, iterations=tuple(iterations))


@dataclass
class _Cutter:
    """Cuts what was sent of a flat buffer of parameters into what was sent of each.

    parameters: elements of each, in the buffer's order; flat: the buffer's elements with padding.
    """

    job: TraceJob
    parameters: Sequence[int]
    flat: int
    _elements: dict[int, set[int]] = field(init=False)

    def __post_init__(self) -> None:
        ranks = self.job.world_size if self.job.stage == 3 else 1
        self._elements = {}
        for count in self.parameters:
            self._elements.setdefault(-(-count // ranks) * ranks, set()).add(count)

    def cut(self, run: Sequence[Call]) -> Iterator[list[Call]]:
        """For each call of a run what stands in its place: itself, nothing, or the bucket that it is the last of."""
        reductions = [number for number, op in enumerate(run) if self._reduces(op)]
        sizes = [self._count(run[number]) for number in reductions]
        buckets = dict(_buckets(reductions, sizes, self.job.reduce_bucket_size))
        gone = set(reductions) - set(buckets)
        for number, op in enumerate(run):
            if number in buckets:
                members = buckets[number]
                total = sum(run[reductions[at]].bytes for at in members)
                count = sum(sizes[at] for at in members)
                yield [replace(op, bytes=size) for size in self._sent(total, count, sizes, members)]
            else:
                yield [] if number in gone else [op]

    def _reduces(self, op: Call) -> bool:
        kind = CommType.reduce_scatter_tensor if self.job.stage == 3 else CommType.all_reduce
        return op.phase == "backward" and op.comm_type is kind

    def _count(self, op: Call) -> int:
        """Elements of a gradient; ZeRO 3 sends it with the padding of its shards, buckets count it without."""
        found = self._elements.get(op.bytes // ELEMENT, set())
        if len(found) != 1:
            raise DepthError(
                f"a gradient of {op.bytes} bytes is that of parameters of {sorted(found)} elements on "
                f"{self.job.world_size} ranks, so that nobody knows which of them fills a bucket"
            )
        return min(found)

    def _sent(self, total: int, count: int, sizes: Sequence[int], members: range) -> list[int]:
        """Bytes of each reduction of a bucket."""
        if self.job.stage == 3 or not self.job.contiguous_gradients or count <= self.job.reduce_bucket_size:
            return [total]
        equal = [at for at, size in enumerate(sizes) if size == count]
        places = [at for at, size in enumerate(self.parameters) if size == count]
        if self.job.stage == 2 or self.job.overlap_comm:
            # As gradients become ready: the head's before the embedding's, but a layer's in an order of their own.
            if len(places) > len(ENDS):
                raise DepthError(
                    f"a layer's parameter of {count} elements is more than reduce_bucket_size "
                    f"{self.job.reduce_bucket_size}, so it is reduced in the parts that its owners have of the "
                    "whole depth"
                )
            places.reverse()
        start = sum(self.parameters[: places[equal.index(members[0])]])
        pieces = owners_parts(start, start + count, self.flat // self.job.world_size, self.job.reduce_bucket_size)
        return [size * ELEMENT for size in pieces]


def _buckets(places: Sequence[int], sizes: Sequence[int], limit: int) -> Iterator[tuple[int, range]]:
    """The place of the last gradient of each bucket, and which of `sizes` it holds."""
    start = count = 0
    for at, size in enumerate(sizes):
        if at > start and count + size > limit:
            yield places[at - 1], range(start, at)
            start, count = at, 0
        count += size
    if sizes:
        yield places[-1], range(start, len(sizes))
