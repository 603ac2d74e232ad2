"""Orders the passes of an iteration: without a pipeline, 1F1B, and interleaved 1F1B over virtual stages."""

from collections.abc import Callable, Iterator

from workloads.dialects.framework.placement import RankPlacement
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import BFLOAT16, Call
from workloads.rows.ops import CommType

SEND_PREV, RECV_PREV, SEND_NEXT, RECV_NEXT = "send_prev", "recv_prev", "send_next", "recv_next"
BATCHED = (SEND_PREV, RECV_PREV, SEND_NEXT, RECV_NEXT)
EVEN = (SEND_NEXT, RECV_PREV, SEND_PREV, RECV_NEXT)
ODD = (RECV_PREV, SEND_NEXT, RECV_NEXT, SEND_PREV)
"""Unbatched sends and receives alternate between neighbours, so that they do not wait for each other."""


class StageExchange:
    """Sends and receives of a stage: an activation (its slice under sequence parallelism) or its gradient each.

    unbatched: as the interleaved schedule overlaps them with computation.
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement, *, unbatched: bool) -> None:
        size = message_size(args)
        self.order = (ODD if place.stage % 2 else EVEN) if unbatched else BATCHED
        before, after = place.neighbour(-1), place.neighbour(1)
        made = {
            SEND_PREV: (CommType.isend, before, "backward"),
            RECV_PREV: (CommType.irecv, before, "forward"),
            SEND_NEXT: (CommType.isend, after, "forward"),
            RECV_NEXT: (CommType.irecv, after, "backward"),
        }
        self.made = {
            way: Call(kind, "pp", place.pipeline, BFLOAT16, size, phase, peer=peer)
            for way, (kind, peer, phase) in made.items()
        }

    def __call__(self, *ways: str, when: bool = True) -> Block[Call]:
        """These messages in the order of the network, or none."""
        return Block([self.made[way] for way in self.order if way in ways] if when else [])


def message_size(args: WorkloadArgs) -> int:
    """Bytes of a message between stages: the activation of a micro-batch, or a tensor rank's slice of its sequence."""
    return args.activation_bytes // (args.tensor_model_parallel_size if args.enable_sequence_parallel else 1)


Pass = Callable[[int, int], Block[Call]]
"""The calls of a pass of (micro-batch, chunk)."""

NEXT_MICRO_BATCH = (0, 1)
ENDS = 2
"""Groups of micro-batches at each end of the interleaved schedule that may differ from those between."""


def without_pipeline(count: int, forward: Pass, backward: Pass) -> Block[Call]:
    """Forward and backward of each micro-batch in turn. Only the first forward and the last backward may differ."""
    if count < 3:
        return Block([each(number, 0) for number in range(count) for each in (forward, backward)])
    middle = Block[Call]([forward(1, 0), backward(1, 0)], count - 2, NEXT_MICRO_BATCH)
    return Block([forward(0, 0), backward(0, 0), middle, forward(count - 1, 0), backward(count - 1, 0)])


def one_forward_one_backward(args: WorkloadArgs, place: RankPlacement, forward: Pass, backward: Pass) -> Block[Call]:
    """Warm-up forwards, then one forward and one backward by turns, then the remaining backwards."""
    exchange = StageExchange(args, place, unbatched=False)
    after, before = not place.last, not place.first
    count = args.num_microbatches
    receive = exchange(RECV_PREV, when=before)
    warmup = min(place.pp - place.stage - 1, count)
    parts: list[Block[Call]] = []
    for number in range(warmup):
        parts += [receive, forward(number, 0), exchange(SEND_NEXT, when=after)]
    if count > warmup:
        parts.append(receive)
    turn = exchange(SEND_NEXT, RECV_NEXT, when=after)
    back = exchange(SEND_PREV, RECV_PREV, when=before)
    steady = count - warmup
    if steady:
        parts += [forward(warmup, 0), turn]
        if steady > 1:
            parts += [backward(0, 0), back]
            if steady > 2:
                middle = [forward(warmup + 1, 0), turn, backward(1, 0), back]
                parts.append(Block(middle, steady - 2, NEXT_MICRO_BATCH))
            parts += [forward(count - 1, 0), turn]
        parts += [backward(steady - 1, 0), exchange(SEND_PREV, when=before)]
    for number in range(steady, count):
        parts += [exchange(RECV_NEXT, when=after), backward(number, 0), exchange(SEND_PREV, when=before)]
    return Block(parts)


class Interleaved:
    """The interleaved schedule of one stage. A virtual micro-batch is a pass of one micro-batch through one chunk.

    overlap: sends and receives run beside the computation (Megatron's --overlap-p2p-communication).
    """

    def __init__(self, args: WorkloadArgs, place: RankPlacement) -> None:
        self.place = place
        self.chunks = args.virtual_pipeline
        self.count = args.num_microbatches
        self.total = self.count * self.chunks
        self.overlap = args.overlap_p2p
        self.exchange = StageExchange(args, place, unbatched=args.overlap_p2p)
        self.period = place.pp * self.chunks
        ahead = 2 * (place.pp - place.stage - 1) + (self.chunks - 1) * place.pp
        self.warmup = min(ahead, self.total)

    def entry(self, number: int) -> tuple[int, int]:
        """(micro-batch, chunk) of a virtual micro-batch: groups of pp micro-batches go through every chunk."""
        group, rest = divmod(number, self.period)
        chunk, within = divmod(rest, self.place.pp)
        return group * self.place.pp + within, chunk

    def chunk(self, number: int, *, forward: bool) -> int:
        """The chunk of a virtual micro-batch; backwards the chunks come in reverse."""
        chunk = self.entry(number % self.total)[1]
        return chunk if forward else self.chunks - 1 - chunk

    def receives(self, number: int, *, forward: bool) -> bool:
        """Whether a message comes for the pass after `number`: the leading stage gets none for the first chunk."""
        leading = self.place.first if forward else self.place.last
        if not leading:
            return True
        reach = self.place.pp - 1
        if number < reach:
            return False
        return self.chunk(number - reach, forward=forward) != (self.chunks - 1 if forward else 0)

    def rows(self, forward: Pass, backward: Pass) -> Block[Call]:
        parts = [self.exchange(RECV_PREV, when=not self.place.first)]
        for number in range(self.warmup):
            parts += self._warm(number, forward)
        steady = self.total - self.warmup
        for start, repeat in self._periods(steady):
            turns = [
                self._steady(start + turn, steady, forward, backward) for turn in range(self.period if repeat else 1)
            ]
            parts.append(Block([part for turn in turns for part in turn], max(1, repeat), (0, self.place.pp)))
        return Block([*parts, *self._cool(steady, backward)])

    def _periods(self, steady: int) -> Iterator[tuple[int, int]]:
        """(first, times) of the steady turns: single ones with times 0 at both ends, whole periods in between.

        A group of micro-batches is as the one before it but for the first two and the last two.
        """
        whole = max(0, steady // self.period - 2 * ENDS)
        first = ENDS * self.period if whole else steady
        yield from ((number, 0) for number in range(first))
        if whole:
            yield first, whole
            yield from ((number, 0) for number in range(first + whole * self.period, steady))

    def _forward(self, number: int, forward: Pass) -> tuple[Block[Call], bool]:
        """The pass, and whether its output goes to the next stage."""
        micro_batch, chunk = self.entry(number)
        return forward(micro_batch, chunk), not (self.place.last and chunk == self.chunks - 1)

    def _backward(self, number: int, backward: Pass) -> tuple[Block[Call], bool]:
        chunk = self.chunk(number, forward=False)
        return backward(number, chunk), not (self.place.first and chunk == 0)

    def _warm(self, number: int, forward: Pass) -> list[Block[Call]]:
        passed, sends = self._forward(number, forward)
        receives = self.receives(number, forward=True) and number < self.total - 1
        turns = number == self.warmup - 1 and self.warmup < self.total
        out = [way for way, whether in ((SEND_NEXT, sends), (RECV_PREV, receives)) if whether]
        gradient = [RECV_NEXT] if turns and not self.place.last else []
        if self.overlap:
            return [passed, self.exchange(*out), self.exchange(*gradient)]
        return [passed, self.exchange(*out, *gradient)]

    def _steady(self, number: int, steady: int, forward: Pass, backward: Pass) -> list[Block[Call]]:
        there, sends = self._forward(number + self.warmup, forward)
        back, returns = self._backward(number, backward)
        receives = self.receives(number + self.warmup, forward=True) and number < steady - 1
        out = [way for way, whether in ((SEND_NEXT, sends), (RECV_PREV, receives)) if whether]
        awaits = self.receives(number, forward=False)
        home = [way for way, whether in ((SEND_PREV, returns), (RECV_NEXT, awaits)) if whether]
        if self.overlap:
            return [there, self.exchange(*out), back, self.exchange(*home)]
        return [there, back, self.exchange(*out, *home)]

    def _cool(self, steady: int, backward: Pass) -> list[Block[Call]]:
        parts = []
        if self.warmup == self.total:
            parts.append(self.exchange(RECV_NEXT, when=not self.place.last))
        for number in range(steady, self.total):
            back, returns = self._backward(number, backward)
            awaits = self.receives(number, forward=False) and number < self.total - 1
            home = [way for way, whether in ((SEND_PREV, returns), (RECV_NEXT, awaits)) if whether]
            parts += [back, self.exchange(*home)]
        return parts
