"""States what one rank of a training with DeepSpeed's ZeRO 1 or 2 sends (deepspeed 0.19.8).

All parameters lie flat in one buffer, of which every rank owns an equal part. Gradients are reduced in buckets over all
ranks, by ZeRO 1 in the last micro-batch and by ZeRO 2 in each; after the step the owners' parts are gathered.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from workloads.dialects.framework.decoder import DecoderPart, Weight, decoder
from workloads.dialects.framework.decoder_kernels import NOTHING, DecoderKernels, leaves
from workloads.dialects.framework.periodic import Periodic
from workloads.job.parameters import ZERO_STAGES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES, UINT8, Call
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

ALIGNED = 2
"""Elements that every rank's part of the flat buffer is a multiple of."""


class ZeroRank:
    """Calls that all ZeRO stages share: all ranks hold the same number of elements, in one group.

    group: the name of that group in the calls of this stage.
    """

    group = "dp"

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        self.args = args
        self.rank = rank
        self.ranks = Ranks(0, 1, args.world_size)
        self.model = decoder(args)
        self.weights = list(dict.fromkeys(self.model.every_weight()))
        self.micro_batches = args.global_batch // (args.world_size * args.micro_batch)
        self.made = DecoderKernels(args, input_first=args.stage == ZERO_STAGES[-1])
        self.kernels = self.made.every(self.model)

    def call(self, comm_type: CommType, dtype: str, count: int, phase: str, module: str = "") -> Call:
        """A call of the set-up or the step. count: elements."""
        return Call(comm_type, self.group, self.ranks, dtype, count * SIZES[dtype], phase, module)

    def passing(self, comm_type: CommType, count: int, phase: str, module: str = "") -> Call:
        """A call of the first micro-batch with parameters or gradients. count: elements."""
        size, dtype = count * SIZES[BFLOAT16], self.args.dtype
        return Call(comm_type, self.group, self.ranks, dtype, size, phase, module, micro_batch=0)

    def from_first(self, dtype: str, count: int, phase: str) -> Call:
        """A broadcast of rank 0. count: elements."""
        number = 0 if phase == "forward" else None
        size = count * SIZES[dtype]
        kind = CommType.broadcast
        return Call(kind, self.group, self.ranks, dtype, size, phase, peer=0, micro_batch=number)

    def broadcasts(self) -> list[Call]:
        """Every rank begins with the parameters of rank 0."""
        return [self.from_first(UINT8, each.numel * SIZES[BFLOAT16], "init") for each in self.weights]

    def update(self, op: str, count: int) -> list[Call]:
        """A part of the optimizer's step over so many elements."""
        return self.made.kernels.made(op, (count,), "step", "", dtype=FLOAT32)

    def stepped(self, count: int, *, scales: bool) -> list[Call]:
        """Adam on this rank's part of the parameters: gradients of 32 bits, clipped; parameters of 16 bits."""
        scaled = self.update("grad_scale", count) if scales else []
        return [*self.update("cast", count), *scaled, *self.update("adam", count), *self.update("cast", count)]

    def overflow(self) -> Call:
        """Whether any rank has a gradient that is no number; in every stage over the data-parallel group."""
        return Call(CommType.all_reduce, "dp", self.ranks, UINT8, SIZES[UINT8], "step")


class GradientBucket:
    """Gradients that are reduced by one call: as many as come before there would be more than `limit` elements."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._weights: list[Weight] = []
        self._count = 0

    def full(self, weight: Weight) -> bool:
        """Whether there is something, and no place for the next."""
        return bool(self._weights) and self._count + weight.numel > self.limit

    def add(self, weight: Weight) -> None:
        self._weights.append(weight)
        self._count += weight.numel

    def taken(self) -> list[Weight]:
        """Takes the parameters that were added out of the bucket."""
        weights, self._weights, self._count = self._weights, [], 0
        return weights


class Zero12Rank(ZeroRank):
    """One rank of ZeRO 1 or 2; `setup` and `iterations` are its calls."""

    def setup(self) -> Block[Call]:
        """The parameters of rank 0."""
        return Block(self.broadcasts())

    def iterations(self, count: int) -> Periodic:
        """All are alike."""
        last = Block(self._pass(reduces=True))
        if self.args.stage == 1:
            plain = Block(self._pass(reduces=False), self.micro_batches - 1, (0, 1))
            passes: Block[Call] = Block([plain, last.shifted((0, self.micro_batches - 1))])
        else:
            passes = Block(last.parts, self.micro_batches, (0, 1))
        return Periodic(cycle=(Block([passes, *self._step()]),), times=count)

    def _pass(self, *, reduces: bool) -> Iterator[Call]:
        """A micro-batch: what it computes, and its gradients' reductions."""
        for part in self.model.runs:
            for leaf in leaves(part):
                kernels = self.kernels.get(leaf.name, NOTHING)
                yield from in_pass([*kernels.before, *kernels.forward], "forward")
            if part.runs:
                yield from in_pass(self.made.end(part), "forward")
        for phase in ("forward", "backward"):
            yield from in_pass(self.made.loss(phase), phase)
        waits = self.args.stage == 1 and not self.args.overlap_comm
        order = list(_completed(self.model))
        at_once = reduces and not waits
        computed: Iterable[tuple[str, list[Weight]]] = ((each, ready if at_once else []) for each, ready in order)
        if reduces and waits:
            computed = chain(computed, [("", self.weights)])
        yield from self._reductions(computed)

    def _reductions(self, computed: Iterable[tuple[str, list[Weight]]]) -> Iterator[Call]:
        """The gradients of a micro-batch: a bucket is sent before the parameter that would be too much for it.

        computed: modules, and the weights whose gradients are complete after theirs.
        """
        bucket = GradientBucket(self.args.reduce_bucket_size)
        for module, weights in computed:
            kernels = self.kernels.get(module, NOTHING)
            yield from in_pass([*self._again(module), *kernels.backward], "backward")
            for weight in weights:
                if bucket.full(weight):
                    yield from self._reduction(bucket.taken())
                bucket.add(weight)
            yield from in_pass(kernels.after, "backward")
        left = bucket.taken()
        if left:
            yield from self._reduction(left)

    def _again(self, module: str) -> list[Call]:
        """Kernels of full recomputation before a layer's last module goes backward, up to its product."""
        layer, _, word = module.partition(".mlp.")
        if not self.kernels or word != "down_proj" or self.args.activation_recompute != "full":
            return []
        *again, last = (kernels for name, kernels in self.kernels.items() if name.startswith(f"{layer}."))
        return [*(call for each in again for call in (*each.before, *each.forward)), *last.before]

    def _reduction(self, weights: list[Weight]) -> Iterator[Call]:
        count = sum(each.numel for each in weights)
        alone = self.args.contiguous_gradients and count > self.args.reduce_bucket_size
        for size in self._pieces(weights[0]) if alone else (count,):
            yield self.passing(CommType.all_reduce, size, "backward")

    def _pieces(self, weight: Weight) -> Iterator[int]:
        """Elements of the reductions of a parameter that no bucket holds."""
        start = sum(each.numel for each in self.weights[: self.weights.index(weight)])
        part = self._flat // self.args.world_size
        return owners_parts(start, start + weight.numel, part, self.args.reduce_bucket_size)

    @property
    def _flat(self) -> int:
        """Elements of the flat buffer."""
        step = ALIGNED * self.args.world_size
        return -(-sum(each.numel for each in self.weights) // step) * step

    def _step(self) -> list[Call]:
        own = self._flat // self.args.world_size
        calls = [self.overflow(), *self.update("grad_norm", own), self.call(CommType.all_reduce, FLOAT32, 1, "step")]
        calls += self.stepped(own, scales=self.args.clip_grad > 0)
        if self.args.world_size > 1:
            calls.append(self.call(CommType.all_gather_into_tensor, self.args.dtype, self._flat, "step"))
        return calls


def owners_parts(start: int, end: int, part: int, limit: int) -> Iterator[int]:
    """Elements of the reductions of a gradient that no bucket holds, from `start` to `end` of the flat buffer: whole
    owners' parts of `part` elements, together until they are above the limit.
    """
    size = 0
    while start < end:
        owned = min(end, (start // part + 1) * part) - start
        start, size = start + owned, size + owned
        if size > limit:
            yield size
            size = 0
    if size:
        yield size


def in_pass(calls: Iterable[Call], phase: str) -> list[Call]:
    """The same kernels as part of a pass, such as `forward`, of the first micro-batch."""
    return [replace(call, phase=phase, micro_batch=0) for call in calls]


def _completed(model: DecoderPart) -> list[tuple[str, list[Weight]]]:
    """Modules in backward order, each with the parameters whose gradients are complete after it: a tied one when the
    embedding has run, too, a bias before its weight.
    """
    found: list[tuple[str, list[Weight]]] = []
    seen: set[Weight] = set()
    for part in reversed(list(_backwards(model))):
        new = [weight for weight in part.weights if weight not in seen]
        seen.update(new)
        found.append((part.name, new[::-1]))
    return found[::-1]


def _backwards(part: DecoderPart) -> Iterator[DecoderPart]:
    for each in reversed(part.runs):
        yield from _backwards(each)
    yield part
