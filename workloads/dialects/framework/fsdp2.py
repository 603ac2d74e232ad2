"""States what one rank of a training with FSDP2 sends: torch's fully_shard over each layer, then over the whole.

A layer's parameters are gathered just before they are needed, in the backward pass one layer early, and gradients are
reduced to the owners of their shards in the backward pass of the last micro-batch. Each parameter is
divided by its first dimension, rounded up, so that some ranks hold padding.
"""

from collections.abc import Iterable
from math import prod

from workloads.dialects.framework.decoder import Weight, ends, layer
from workloads.dialects.framework.turns import Turns
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES, Call
from workloads.rows.ops import CommType
from workloads.rows.traced_op import Ranks

ROOT = -1
"""The number of the unit that holds what is in no layer."""


class Fsdp2Rank:
    """One rank; `setup` and `iterations` are its calls. With `replicate` r the shards have r copies each."""

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        self.args = args
        self.count = args.world_size // args.replicate
        first = rank // self.count * self.count
        self.shard = Ranks(first, 1, self.count)
        self.copies = Ranks(rank % self.count, self.count if args.replicate > 1 else 1, args.replicate)
        self.gradient = FLOAT32 if args.grad_reduce_in_fp32 else BFLOAT16
        self.layer = self._padded(layer(args, 0).every_weight())
        self.root = self._padded(dict.fromkeys(weight for part in ends(args) for weight in part.weights))

    def setup(self) -> Block[Call]:
        """Nothing: parameters begin as shards."""
        return Block()

    def iterations(self, count: int) -> Turns:
        """All are alike."""
        return Turns(cycle=(self._iteration(),), times=count)

    def _iteration(self) -> Block[Call]:
        count = self.args.global_batch // (self.args.world_size * self.args.micro_batch)
        plain = Block[Call]([*self._forward(0), *self._backward(0, last=False)], count - 1, (0, 1))
        return Block([plain, *self._forward(count - 1), *self._backward(count - 1, last=True)])

    def _padded(self, weights: Iterable[Weight]) -> int:
        """Elements of the buffer that a unit is gathered in."""
        return sum(-(-each.shape[0] // self.count) * self.count * prod(each.shape[1:]) for each in weights)

    def _forward(self, micro_batch: int) -> list[Call]:
        units = [ROOT, *range(self.args.num_layers)]
        return [self._gather(unit, "forward", micro_batch) for unit in units]

    def _backward(self, micro_batch: int, *, last: bool) -> list[Call]:
        """The root's gather, then each layer's: when a layer begins, the one before it is gathered already."""
        gathers = self.args.reshard_after_forward
        order = [*reversed(range(self.args.num_layers)), ROOT]
        calls = [self._gather(unit, "backward", micro_batch) for unit in (ROOT, order[0]) if gathers]
        for unit, ahead in zip(order, [*order[1:], ROOT], strict=True):
            if gathers and ahead != ROOT:
                calls.append(self._gather(ahead, "backward", micro_batch))
            if last:
                calls += self._reduction(unit, micro_batch)
        return calls

    def _gather(self, unit: int, phase: str, micro_batch: int) -> Call:
        size = self._elements(unit) * SIZES[BFLOAT16]
        kind = CommType.all_gather_into_tensor
        return Call(kind, "dp_shard", self.shard, BFLOAT16, size, phase, _name(unit), micro_batch=micro_batch)

    def _reduction(self, unit: int, micro_batch: int) -> list[Call]:
        """To the owners of the shards, then over the copies of a shard."""
        size, name = self._elements(unit) * SIZES[self.gradient], _name(unit)
        over = [(CommType.reduce_scatter_tensor, "dp_shard", self.shard, size)]
        if len(self.copies) > 1:
            over.append((CommType.all_reduce, "dp_replicate", self.copies, size // self.count))
        return [
            Call(kind, group, ranks, self.gradient, each, "backward", name, micro_batch=micro_batch)
            for kind, group, ranks, each in over
        ]

    def _elements(self, unit: int) -> int:
        return self.root if unit == ROOT else self.layer


def _name(unit: int) -> str:
    return "" if unit == ROOT else f"layers.{unit}"
