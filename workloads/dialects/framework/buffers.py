"""Divides gradients and parameters into the buckets of Megatron-core's DistributedDataParallel."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from workloads.dialects.framework.layers import Parameter
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES, Call
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

LEAST_BUCKET = 40_000_000
BUCKET_PER_RANK = 1_000_000
"""Elements: without a bucket_size a bucket closes at the larger of 40 M and 1 M for each data-parallel rank."""
ALIGNED = 64
"""Elements that each parameter's start is a multiple of under the distributed optimizer."""
BUCKET_ALIGNED = 128
"""Elements that each bucket's end is a multiple of, besides the data-parallel size."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """Parameters whose gradients one call reduces: each with its first element in the buffer of `numel`, padded."""

    parameters: tuple[tuple[int, Parameter], ...]
    numel: int

    def between(self, low: int, high: int) -> Iterator[tuple[Parameter, int]]:
        """The parameters in a part of the buffer, and how many elements of each."""
        for start, parameter in self.parameters:
            count = min(high, start + parameter.numel) - max(low, start)
            if count > 0:
                yield parameter, count


@dataclass(frozen=True, slots=True)
class BucketGroup:
    """Buckets that are sent together. group: name of the data-parallel group; `ranks` are its ranks."""

    buckets: tuple[Bucket, ...]
    group: str
    ranks: Ranks
    sharded: bool
    gradient: str

    @property
    def names(self) -> frozenset[str]:
        return frozenset(parameter.name for bucket in self.buckets for _, parameter in bucket.parameters)

    def stepped(self, rank: int) -> Iterator[tuple[Parameter, int]]:
        """The parameters that a rank's optimizer updates, and how many elements of each: its shard, or all."""
        place = self.ranks.expand().index(rank) if self.sharded else 0
        for bucket in self.buckets:
            own = bucket.numel // (len(self.ranks) if self.sharded else 1)
            yield from bucket.between(place * own, (place + 1) * own)

    def reduction(self, phase: str) -> Call:
        """The gradients' reduction: to the owners of shards, or to all."""
        kind = CommType.reduce_scatter_tensor if self.sharded else CommType.all_reduce
        return Call(kind, self.group, self.ranks, self.gradient, self._numel * SIZES[self.gradient], phase)

    def gather(self, phase: str) -> Call:
        """The updated parameters."""
        size = self._numel * SIZES[BFLOAT16]
        return Call(CommType.all_gather_into_tensor, self.group, self.ranks, BFLOAT16, size, phase)

    @property
    def _numel(self) -> int:
        return sum(bucket.numel for bucket in self.buckets)


def bucket_groups(
    parameters: list[Parameter], args: WorkloadArgs, group: str, ranks: Ranks, *, limit: int | None, together: bool
) -> list[BucketGroup]:
    """limit: elements at which a bucket closes, None for one bucket. together: all buckets in one group."""
    if not parameters:
        return []
    gradient = FLOAT32 if args.grad_reduce_in_fp32 else BFLOAT16
    sharded = args.use_distributed_optimizer
    made = _buckets(parameters, len(ranks), sharded=sharded, limit=limit)
    grouped = [tuple(made)] if together else [(bucket,) for bucket in made]
    return [BucketGroup(each, group, ranks, sharded, gradient) for each in grouped]


def bucket_limit(args: WorkloadArgs, ranks: int, *, stage: int, chunk: int) -> int | None:
    """Elements of a bucket: only overlapping reductions need several, and only where they are on the critical path."""
    if not args.overlap_grad_reduce or stage > 0 or chunk > 0:
        return None
    return args.bucket_size or max(LEAST_BUCKET, BUCKET_PER_RANK * ranks)


def _buckets(parameters: list[Parameter], ranks: int, *, sharded: bool, limit: int | None) -> list[Bucket]:
    """From the last parameter to the first, as gradients become ready."""
    step = lcm(ranks, BUCKET_ALIGNED)
    made: list[Bucket] = []
    inside: list[tuple[int, Parameter]] = []
    begin = end = 0

    def close(at: int) -> None:
        nonlocal begin, end, inside
        end = _up(at, step) if sharded else at
        made.append(Bucket(tuple((start - begin, parameter) for start, parameter in inside), end - begin))
        begin, inside = end, []

    for parameter in reversed(parameters):
        start = _up(end, ALIGNED) if sharded else end
        alone = sharded and parameter.alone
        if alone and inside:
            close(start)
            start = end
        end = start + parameter.numel
        inside.append((start, parameter))
        if alone or (limit is not None and end - begin >= limit):
            close(end)
    if inside:
        close(end)
    return made


def _up(number: int, step: int) -> int:
    return -(-number // step) * step
