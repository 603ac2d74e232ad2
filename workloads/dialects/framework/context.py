"""States what attention computes, and what context-parallel ranks send for it, as Transformer Engine does.

Each rank has two chunks of every sequence, so that causal masks cost all alike. By all-to-all (DeepSpeed-Ulysses,
arXiv:2309.14509) a rank gets whole sequences of some heads; in a ring (Ring Attention, arXiv:2310.01889) keys and
values go round, backwards with their gradients.
"""

from collections.abc import Iterator
from dataclasses import replace

from workloads.dialects.framework.kernels import Kernels
from workloads.dialects.framework.placement import RankPlacement
from workloads.job.parameters import ALL_TO_ALL, ELEMENT_BYTES, WorkloadArgs
from workloads.rows.calls import BFLOAT16, Call
from workloads.rows.ops import CommType


def of_one_rank(args: WorkloadArgs) -> WorkloadArgs:
    """The parameters of what one rank computes: its context-parallel part of a sequence as `seq_length`, in tokens."""
    return replace(args, seq_length=args.seq_length // args.context_parallel_size)


def window_of(args: WorkloadArgs, layer: int) -> int:
    """Tokens that a token attends to in a layer, counted from 0; 0: all before it."""
    every = args.full_attention_every
    return 0 if args.sliding_window is None or (every and (layer + 1) % every == 0) else args.sliding_window


class CoreAttention:
    """Attention itself, of one rank's heads. widths: of a head's query and key, and of its value."""

    def __init__(
        self, args: WorkloadArgs, place: RankPlacement, kernels: Kernels, name: str,
        heads: tuple[int, int], widths: tuple[int, int], layer: int = 0,
    ) -> None:  # fmt: skip
        """heads: of queries, and groups of keys and values, on this rank; layer: its number, from 0."""
        self.args, self.place, self.kernels, self.name = args, place, kernels, name
        self.window = window_of(args, layer)
        self.heads, self.groups = heads
        self.widths = widths

    def forward(self, phase: str) -> list[Call]:
        kernels, cp = self.kernels, self.place.cp
        if cp == 1:
            return kernels.attention(phase, self.name, (self.heads, self.groups), self.widths, window=self.window)
        if self.args.cp_comm_type == ALL_TO_ALL:
            query, keys, values, output = self._sizes()
            heads = (self.heads // cp, self.groups // cp)
            attended = kernels.attention(phase, self.name, heads, self.widths, times=cp)
            return [*self._exchange(phase, query, keys, values), *attended, *self._exchange(phase, output)]
        return list(self._ring(phase))

    def backward(self) -> list[Call]:
        """Backward; what selective recomputation computes and sends again comes first."""
        kernels, cp = self.kernels, self.place.cp
        again = self.args.activation_recompute == "selective" and self.args.frame == "Megatron"
        first = self.forward("backward") if again else []
        if cp == 1:
            heads = (self.heads, self.groups)
            return [*first, *kernels.attention_back(self.name, heads, self.widths, window=self.window)]
        if self.args.cp_comm_type == ALL_TO_ALL:
            query, keys, values, output = self._sizes()
            heads = (self.heads // cp, self.groups // cp)
            attended = kernels.attention_back(self.name, heads, self.widths, times=cp)
            sent = self._exchange("backward", query, keys, values)
            return [*first, *self._exchange("backward", output), *attended, *sent]
        return [*first, *self._ring_back()]

    def _sizes(self) -> tuple[int, int, int, int]:
        """Bytes of a rank's queries, keys, values and output."""
        qk, value = self.widths
        widths = (self.heads * qk, self.groups * qk, self.groups * value, self.heads * value)
        query, keys, values, output = (ELEMENT_BYTES * self.kernels.tokens * width for width in widths)
        return query, keys, values, output

    def _exchange(self, phase: str, *sizes: int) -> list[Call]:
        kind = CommType.all_to_all_single
        return [Call(kind, "cp", self.place.context, BFLOAT16, size, phase, self.name) for size in sizes]

    def _ring(self, phase: str) -> Iterator[Call]:
        """Keys and values are sent on while attention sees those that came before."""
        _, keys, values, _ = self._sizes()
        for step in range(self.place.cp):
            if step < self.place.cp - 1:
                yield from self._pass_on(phase, keys + values)
            if step:
                yield from self._seen("attention_part", phase, step)
            else:
                yield from self.kernels.attention(phase, self.name, (self.heads, self.groups), self.widths)

    def _ring_back(self) -> Iterator[Call]:
        """The same in reverse: keys and values go alone at first, then with their gradients, which go alone at last."""
        _, keys, values, _ = self._sizes()
        last = self.place.cp - 1
        for step in range(self.place.cp):
            yield from self._pass_on("backward", (keys + values) * (1 if step in (0, last) else 2), -1)
            if step < last:
                yield from self._seen("attention_part_backward", "backward", last - step)
            else:
                yield from self.kernels.attention_back(self.name, (self.heads, self.groups), self.widths)

    def _pass_on(self, phase: str, size: int, way: int = 1) -> list[Call]:
        """A message to the rank `way` places on and one from the other side, in an order that waits for no message."""
        group, at = self.place.context, self.place.context_rank
        ranks = group.expand()
        ways = ((CommType.isend, ranks[(at + way) % len(ranks)]), (CommType.irecv, ranks[(at - way) % len(ranks)]))
        calls = [Call(kind, "cp", group, BFLOAT16, size, phase, self.name, peer=peer) for kind, peer in ways]
        return calls[::-1] if at % 2 else calls

    def _seen(self, op: str, phase: str, step: int) -> list[Call]:
        """Attention to the keys of the rank `step` places before: to the first half of an earlier rank's chunks, by the
        second half of the queries to a later one's.
        """
        tokens = self.kernels.sequence
        sides = (tokens, tokens // 2) if step <= self.place.context_rank else (tokens // 2, tokens)
        return self.kernels.made(
            op, (self.kernels.args.micro_batch, *sides, self.heads, self.groups, *self.widths), phase, self.name
        )
