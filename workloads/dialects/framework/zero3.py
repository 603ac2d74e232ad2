"""States what one rank of a training with DeepSpeed's ZeRO 3 sends (deepspeed 0.19.8).

Every parameter is divided over all ranks. The first micro-batch learns the order of the modules, the second decides
which parameters stay gathered; from the third on a micro-batch depends only on what the one before left gathered.

A module's parameters are gathered when it begins and released when it ends. Once the order of the modules is known,
parameters are gathered ahead, and released only where no module needs them soon.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from workloads.dialects.framework.decoder import DecoderPart, Weight
from workloads.dialects.framework.decoder_kernels import NOTHING
from workloads.dialects.framework.periodic import Periodic, in_turns
from workloads.dialects.framework.zero import GradientBucket, ZeroRank, in_pass
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import FLOAT16, FLOAT64, INT64, UINT8, Call
from workloads.rows.ops import CommType

LEARNS, DECIDES = 0, 1
"""Numbers of the micro-batches that learn the order of the modules, and which parameters are released where."""


class Fetch(NamedTuple):
    """A module begins, in the forward pass or, `backward`, in front of its backward pass. numbers: its parameters."""

    module: str
    numbers: tuple[int, ...]
    phase: str
    backward: bool


class Release(NamedTuple):
    """A module ends."""

    module: str
    numbers: tuple[int, ...]


class Gradient(NamedTuple):
    """A gradient is complete."""

    number: int


class Compute(NamedTuple):
    """Kernels run."""

    kernels: tuple[Call, ...]


Event = Fetch | Release | Gradient | Compute


class FetchLimits(NamedTuple):
    """Elements: gathered ahead at once, gathered in all, and between two uses that keep a parameter gathered."""

    ahead: int
    live: int
    reuse: int


class Fetching:
    """One rank's parameters. sizes: elements of each; persistent: those that stay gathered; events: a micro-batch.

    `micro_batch` runs one; what it decided in the first with a known order holds in all that follow.
    """

    def __init__(
        self, sizes: list[int], events: Sequence[Event], persistent: frozenset[int], limits: FetchLimits
    ) -> None:
        self.sizes = sizes
        self.events = events
        self.persistent = persistent
        self.limits = limits
        self.begins = [event for event in events if isinstance(event, Fetch)]
        self.uses = [(number, step) for step, each in enumerate(self.begins) for number in sorted(set(each.numbers))]
        self._steps: list[list[int]] = [[] for _ in sizes]
        for number, step in self.uses:
            self._steps[number].append(step)
        self._before = [0, *accumulate(sum(sizes[number] for number in each.numbers) for each in self.begins)]
        self._released: dict[tuple[str, int], frozenset[int]] = {}

    def micro_batch(
        self,
        kind: int,
        gathered: frozenset[int],
        gather: Callable[[list[int], Fetch], None],
        gradient: Callable[[int], None],
        compute: Callable[[tuple[Call, ...]], None],
    ) -> frozenset[int]:
        """Run one from what is `gathered`. Returns what it leaves.

        kind: LEARNS, or any other number; gather, gradient, compute: called for parameters as they are gathered by one
        call, for each gradient that is complete, and for the kernels between them.
        """
        run = _Run(self, kind != LEARNS, set(gathered), gather)
        for event in self.events:
            if isinstance(event, Fetch):
                run.begin(event)
            elif isinstance(event, Release):
                run.end(event)
            elif isinstance(event, Compute):
                compute(event.kernels)
            else:
                gradient(event.number)
        return run.left()

    def released(self, module: Release, step: int, fetched: dict[int, int]) -> frozenset[int]:
        """Parameters that the module's end releases at this step. fetched: for which use each was gathered last."""
        key = (module.module, step)
        if key not in self._released:
            self._released[key] = frozenset(
                number for number in module.numbers
                if number not in self.persistent and fetched.get(number, -1) <= step and not self._soon(number, step)
            )  # fmt: skip
        return self._released[key]

    def _soon(self, number: int, step: int) -> bool:
        """Whether a module needs the parameter again within the distance that keeps it."""
        steps = self._steps[number]
        place = bisect_left(steps, step)
        return place < len(steps) and self._before[steps[place]] - self._before[step] < self.limits.reuse


class _Run:
    """One micro-batch. known: the order of the modules is known."""

    def __init__(
        self, of: Fetching, known: bool, gathered: set[int], gather: Callable[[list[int], Fetch], None]
    ) -> None:
        self.of = of
        self.known = known
        self.gathered = gathered
        self.gather = gather
        self.step = 0
        self.live = 0
        self.queue = deque(of.uses if known else ())
        self.fetched: dict[int, int] = {}
        self.flying: dict[int, list[int]] = {}
        self.active: dict[int, set[str]] = {}
        self.open: dict[str, Fetch] = {}

    def begin(self, event: Fetch) -> None:
        """Gather what the module needs and does not have, wait for it, then gather ahead."""
        if event.backward:
            self.open[event.module] = event
        self._gather([each for each in event.numbers if not self._held(each)], event)
        for number in event.numbers:
            self.active.setdefault(number, set()).add(event.module)
            self._wait(number)
        if self.known:
            self._dequeue(event)
            self._ahead(event)
        self.step += 1

    def end(self, event: Release) -> None:
        """Release what nothing needs soon; while the order is unknown, all."""
        self.open.pop(event.module, None)
        released = self.of.released(event, self.step, self.fetched) if self.known else event.numbers
        for number in event.numbers:
            self.active.get(number, set()).discard(event.module)
            if number in released:
                self._release(number)

    def left(self) -> frozenset[int]:
        """Numbers of the parameters that stay gathered after the micro-batch.

        Modules whose backward has no Release end here, and what is still on its way is waited for and released.
        """
        for event in self.open.values():
            for number in event.numbers:
                self.active[number].discard(event.module)
                if number not in self.of.persistent:
                    self._release(number)
        for number in list(self.flying):
            self._wait(number)
            self._release(number)
        return frozenset(self.gathered)

    def _held(self, number: int) -> bool:
        return number in self.gathered or number in self.flying

    def _gather(self, numbers: list[int], event: Fetch) -> None:
        if not numbers:
            return
        self.live += sum(self.of.sizes[number] for number in numbers)
        self.gather(numbers, event)
        together = list(numbers)
        for number in numbers:
            self.flying[number] = together

    def _wait(self, number: int) -> None:
        """Parameters of one call arrive together."""
        together = self.flying.pop(number, [])
        self.gathered.update(together)
        together.clear()

    def _release(self, number: int) -> None:
        if number in self.gathered and not self.active.get(number):
            self.gathered.discard(number)
            self.live -= self.of.sizes[number]

    def _dequeue(self, event: Fetch) -> None:
        """Take what the module needs from the queue of parameters to come, unless it was gathered ahead for it."""
        needed = {number for number in event.numbers if self.fetched.get(number, -1) < self.step}
        taken: set[int] = set()
        while self.queue and len(taken) < len(needed):
            number, step = self.queue.popleft()
            self.fetched[number] = step
            taken.add(number)

    def _ahead(self, event: Fetch) -> None:
        """Gather the parameters of the next modules, until there are enough of them."""
        most = min(self.of.limits.live - self.live, self.of.limits.ahead)
        wanted: dict[int, None] = {}
        size = 0
        while self.queue and size < most and self.of.limits.ahead:
            number, step = self.queue.popleft()
            self.fetched[number] = max(self.fetched.get(number, -1), step)
            if number not in wanted and not self._held(number):
                wanted[number] = None
                size += self.of.sizes[number]
        self._gather(list(wanted), event)


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
