"""States what one rank of a training with DeepSpeed's ZeRO 3 sends (deepspeed 0.19.8).

Every parameter is divided over all ranks. The first micro-batch learns the order of the modules, the second decides
which parameters stay gathered; from the third on a micro-batch depends only on what the one before left gathered.
"""

from collections.abc import Iterable, Iterator

from workloads.dialects.framework.decoder import DecoderPart, Weight
from workloads.dialects.framework.decoder_kernels import NOTHING
from workloads.dialects.framework.fetching import Compute, Event, Fetch, Fetching, FetchLimits, Gradient, Release
from workloads.dialects.framework.periodic import Periodic, in_turns
from workloads.dialects.framework.zero import GradientBucket, ZeroRank, in_pass
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import CommType
from workloads.rows.traced_op import FLOAT16, FLOAT64, INT64, UINT8, Call

BARRIERS = 3
"""Of the set-up: before the shards, before and after the optimizer's states."""
LEARNED = 2
"""Micro-batches after which nothing new is learned."""
Known = tuple[int, frozenset[int]]
"""How many micro-batches have run, at most LEARNED, and the numbers of the parameters that are gathered."""


class Zero3Rank(ZeroRank):
    """One rank; `setup` and `iterations` are its calls."""

    group = "world"

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        super().__init__(args, rank)
        self.numbers = {each: number for number, each in enumerate(self.weights)}
        self.persistent = self._persistent()
        self.stay = frozenset(self.numbers[each] for each in self.persistent)
        loss = [*in_pass(self.made.loss("forward"), "forward"), *in_pass(self.made.loss("backward"), "backward")]
        events = [*self._forward(self.model, "forward"), *_run(loss), *self._backward(self.model)]
        limits = FetchLimits(args.prefetch_bucket_size, args.max_live_parameters, args.max_reuse_distance)
        self.fetching = Fetching([each.numel for each in self.weights], events, self.stay, limits)

    def setup(self) -> Block[Call]:
        """Parameters are divided as they are made, also the head's that a tied one replaces; each is gathered once."""
        calls = self.broadcasts()
        if not self.args.untie_embeddings:
            calls.append(calls[0])
        calls += [self.call(CommType.barrier, UINT8, 0, "init")] * BARRIERS
        calls += [self._gather([each], "init") for each in self.weights]
        return Block(calls)

    def iterations(self, count: int) -> Periodic:
        """The first ones differ."""
        return in_turns(count, (0, frozenset[int]()), self._iteration)[0]

    def _iteration(self, known: Known) -> tuple[Block[Call], Known]:
        passes, (learned, _) = in_turns(self.micro_batches, known, self._pass)
        return Block([passes.numbered(), *self._step()]), (learned, self.stay)

    def _pass(self, known: Known) -> tuple[Block[Call], Known]:
        """One micro-batch, as number 0."""
        learned, gathered = known
        calls = list(self._compared(learned))
        bucket = GradientBucket(self.args.reduce_bucket_size)

        def gather(numbers: list[int], module: Fetch) -> None:
            if self.args.world_size > 1:
                calls.append(self._gather([self.weights[each] for each in numbers], module.phase, module.module))

        def reduce(number: int) -> None:
            weight = self.weights[number]
            if bucket.full(weight):
                calls.append(self._reduction(bucket.taken()))
            bucket.add(weight)

        left = self.fetching.micro_batch(learned, gathered, gather, reduce, calls.extend)
        calls.append(self._reduction(bucket.taken()))
        return Block(calls), (min(learned + 1, LEARNED), left)

    def _compared(self, learned: int) -> Iterator[Call]:
        """Ranks compare with rank 0 what they have learned: lengths and numbers of lists."""
        modules, uses = len(self.fetching.begins), len(self.fetching.uses)
        for length in ((0,), (modules, uses, uses), ())[learned]:
            yield self.from_first(INT64, 1, "forward")
            yield self.from_first(INT64, length, "forward")

    def _gather(self, weights: list[Weight], phase: str, module: str = "") -> Call:
        kind, count = CommType.all_gather_into_tensor, self._padded(weights)
        if phase in ("init", "step"):
            return self.call(kind, self.args.dtype, count, phase, module)
        return self.passing(kind, count, phase, module)

    def _reduction(self, weights: list[Weight]) -> Call:
        return self.passing(CommType.reduce_scatter_tensor, self._padded(weights), "backward")

    def _padded(self, weights: Iterable[Weight]) -> int:
        """Elements with each parameter in equal parts."""
        return sum(map(self._part, weights)) * self.args.world_size

    def _part(self, weight: Weight) -> int:
        return -(-weight.numel // self.args.world_size)

    def _step(self) -> list[Call]:
        """Overflow with 16-bit floats, the norm of each group, the persistent parameters as they are now."""
        calls = [self.overflow()] if self.args.dtype == FLOAT16 else []
        groups = self._sub_groups()
        for own in groups:
            calls += [*self.update("grad_norm", own), self.call(CommType.all_reduce, FLOAT64, 1, "step")]
        calls += [call for own in groups for call in self.stepped(own, scales=True)]
        if self.args.world_size > 1 or len(self.persistent) == 1:
            calls += [self._gather([each], "step") for each in self.persistent]
        return calls

    def _sub_groups(self) -> list[int]:
        """Elements of groups that the optimizer steps one by one: parameters until shards are sub_group_size."""
        groups, size = [], 0
        for each in self.weights:
            size += self._part(each)
            if size >= self.args.sub_group_size or each == self.weights[-1]:
                groups.append(size)
                size = 0
        return groups

    def _persistent(self) -> list[Weight]:
        """Small parameters, which stay gathered until there are too many."""
        found: list[Weight] = []
        left = self.args.model_persistence_threshold
        for each in self.weights:
            if each.numel <= min(left, self.args.param_persistence_threshold):
                found.append(each)
                left -= each.numel
        return found

    def _own(self, part: DecoderPart) -> tuple[int, ...]:
        return tuple(self.numbers[each] for each in part.weights)

    def _forward(self, part: DecoderPart, phase: str) -> Iterator[Event]:
        kernels = self.kernels.get(part.name, NOTHING)
        yield from _run(in_pass(kernels.before, phase))
        yield Fetch(part.name, self._own(part), phase, backward=False)
        yield from _run(in_pass(kernels.forward, phase))
        for each in part.runs:
            yield from self._forward(each, phase)
        yield Release(part.name, self._own(part))
        if _is_layer(part):
            yield from _run(in_pass(self.made.end(part), phase))

    def _backward(self, part: DecoderPart, again: DecoderPart | None = None) -> Iterator[Event]:
        """The parts in the other order. The whole and the embedding, whose inputs have no gradient, never end.

        again: the layer that the first part recomputes, up to the last module that keeps something.
        """
        yield Fetch(part.name, self._own(part), "backward", backward=True)
        kernels = self.kernels.get(part.name, NOTHING)
        recomputes = self.args.activation_recompute == "full"
        if again is not None and not part.runs:
            yield from self._recomputed(again)
        yield from _run(in_pass(kernels.backward, "backward"))
        for each in reversed(part.runs):
            first = each is part.runs[-1]
            inside = part if recomputes and _is_layer(part) else again
            yield from self._backward(each, inside if first else None)
        tied = part.name == "lm_head" and not self.args.untie_embeddings
        yield from (Gradient(number) for number in (() if tied else self._own(part)))
        if part.name not in ("", "embed_tokens"):
            yield Release(part.name, self._own(part))
        yield from _run(in_pass(kernels.after, "backward"))

    def _recomputed(self, layer: DecoderPart) -> Iterator[Event]:
        """A layer's parts forward again; the last module begins but neither it nor what holds it ends."""
        events = [event for each in layer.runs for event in self._forward(each, "backward")]
        while isinstance(events[-1], Release):
            events.pop()
        yield from events


def _is_layer(part: DecoderPart) -> bool:
    return part.name.rpartition(".")[0] == "layers"


def _run(calls: list[Call]) -> Iterator[Compute]:
    if calls:
        yield Compute(tuple(calls))
