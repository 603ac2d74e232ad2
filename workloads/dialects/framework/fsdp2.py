"""States what one rank of a training with FSDP2 sends: torch's fully_shard over parts of a decoder, its units.

Units are each layer, and the whole for what is in none; or, as torchtitan has them, the embedding, each layer, and the
norm with the head. A unit's parameters are gathered just before they are needed, in the backward pass one unit early,
and gradients are reduced to the owners of their shards in the backward pass of the last micro-batch, as the traced loop
asks with set_requires_gradient_sync; a loop that does not ask reduces them in each, FSDP2's default. Each parameter is
divided by its first dimension, rounded up, so that some ranks hold padding. With tensor parallelism, torchtitan's,
shards are of a rank's part of each tensor, and sequences and logits are split.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from workloads.dialects.framework.decoder import DecoderPart, Weight, ends, layer
from workloads.dialects.framework.decoder_kernels import DecoderKernels
from workloads.dialects.framework.periodic import Periodic
from workloads.job.parameters import TORCHTITAN, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES, Call
from workloads.rows.ops import CommType
from workloads.rows.ranks import Ranks

GATHER, SCATTER, SUM = CommType.all_gather_into_tensor, CommType.reduce_scatter_tensor, CommType.all_reduce
SPLIT_BY_COLUMN = ("o_proj.weight", "down_proj.weight")
"""Weights of which a tensor-parallel rank holds a part of the second dimension."""
FIRST, LAST = ("k_proj", "up_proj"), ("o_proj", "down_proj")
"""Before and after which products tensor-parallel ranks exchange activations."""
UNSPLIT = ("norm.weight", "o_proj.bias", "down_proj.bias")
"""Parameters of which it holds all."""


@dataclass(frozen=True, slots=True)
class Unit:
    """The modules of one call of fully_shard. elements: of the buffer that it is gathered in.

    is_kept: it stays gathered until its backward pass; norms: elements of the weights whose gradients tensor ranks add;
    part: the layer that it is, if it is one.
    """

    name: str
    elements: int
    is_kept: bool
    norms: tuple[int, ...] = ()
    part: DecoderPart | None = None


class Fsdp2Rank:
    """One rank; `setup` and `iterations` are its calls. With `replicate` r the shards have r copies each."""

    def __init__(self, args: WorkloadArgs, rank: int) -> None:
        self.args, self.tp = args, args.tensor_model_parallel_size
        self.count = args.world_size // (args.replicate * self.tp)
        across, within = rank // self.tp, rank % self.tp
        first = across // self.count * self.count
        self.tensor = Ranks(across * self.tp, 1, self.tp)
        self.shard = Ranks(first * self.tp + within, self.tp if self.count > 1 else 1, self.count)
        copies = self.count * self.tp if args.replicate > 1 else 1
        self.copies = Ranks(across % self.count * self.tp + within, copies, args.replicate)
        self.gradient = FLOAT32 if args.grad_reduce_in_fp32 else BFLOAT16
        self.activation = args.micro_batch * args.seq_length * args.hidden_size * SIZES[BFLOAT16]
        after = args.reshard_after_forward
        words, norm, head = ends(args)
        layers = [layer(args, number) for number in range(args.num_layers)]
        if args.fsdp_units == TORCHTITAN:
            table = self._unit(words.name, [words], after is False)
            parts = [self._unit(part.name, [part], after is False, part) for part in layers]
            self.units = [table, *parts, self._unit("norm", [norm, head], after is not True)]
            self.root: Unit | None = None
        else:
            self.units = [self._unit(part.name, [part], after is False, part) for part in layers]
            self.root = self._unit("", [words, norm, head], after is not True)
        every = [weight for part in (words, *layers, norm, head) for weight in part.every_weight()]
        self.parameters = len(dict.fromkeys(every))
        self.own = sum(self._shard(weight, across % self.count) for weight in dict.fromkeys(every))
        self.made = DecoderKernels(args)
        self.ends = self.made.ends()
        whole = BFLOAT16, self.activation, ""
        self.gather = [Call(GATHER, "tp", self.tensor, *whole)] if self.tp > 1 else []
        self.scatter = [Call(SCATTER, "tp", self.tensor, *whole)] if self.tp > 1 else []

    def setup(self) -> Block[Call]:
        """Nothing: parameters begin as shards."""
        return Block()

    def iterations(self, count: int) -> Periodic:
        """All are alike."""
        return Periodic(cycle=(self._iteration(),), times=count)

    def _iteration(self) -> Block[Call]:
        count = self.args.num_microbatches
        plain = Block[Call]([*self._forward(0), *self._backward(0, last=False)], max(0, count - 1), (0, 1))
        last = [*self._forward(count - 1), *self._backward(count - 1, last=True)] if count else []
        return Block([plain, *last, *self._step()])

    def _unit(self, name: str, parts: Iterable[DecoderPart], is_kept: bool, part: DecoderPart | None = None) -> Unit:
        weights = dict.fromkeys(weight for part in parts for weight in part.every_weight())
        norms = [each.numel for each in weights if self.tp > 1 and "norm" in each.name.split(".")[-2]]
        return Unit(name, sum(map(self._padded, weights)), is_kept, tuple(norms), part)

    def _padded(self, weight: Weight) -> int:
        """Elements of the gathered parameter, of the part that a tensor rank has."""
        first, row = self._rows(weight)
        return -(-first // self.count) * self.count * row

    def _shard(self, weight: Weight, place: int) -> int:
        """Elements of a parameter that the rank at this place among the shards updates."""
        first, row = self._rows(weight)
        each = -(-first // self.count)
        return max(0, min(first - place * each, each)) * row

    def _rows(self, weight: Weight) -> tuple[int, int]:
        """Rows of the part that a tensor rank has, and their elements."""
        first, *others = weight.shape
        if weight.name.endswith(SPLIT_BY_COLUMN):
            others = [others[0] // self.tp]
        elif not weight.name.endswith(UNSPLIT):
            first //= self.tp
        return first, prod(others)

    def _forward(self, micro_batch: int) -> list[Call]:
        calls: list[Call] = []
        if self.root is not None:
            calls.append(self._gather(self.root, "forward", micro_batch))
            calls += _placed(self.ends["embed_tokens"].forward, "forward", micro_batch)
        for unit in self.units:
            calls.append(self._gather(unit, "forward", micro_batch))
            calls += self._run(unit, "forward", micro_batch)
        return calls + ([] if self.root is None else _placed(self._head("forward"), "forward", micro_batch))

    def _backward(self, micro_batch: int, *, last: bool) -> list[Call]:
        """When a unit begins, it is gathered already, and the one before it is gathered."""
        order = [*([] if self.root is None else [self.root]), *reversed(self.units)]
        calls = [] if self.root else _placed(self.made.loss("backward"), "backward", micro_batch)
        calls += [] if order[0].is_kept else [self._gather(order[0], "backward", micro_batch)]
        for place, unit in enumerate(order):
            ahead = order[place + 1 : place + 2]
            calls += [self._gather(each, "backward", micro_batch) for each in ahead if not each.is_kept]
            calls += self._run(unit, "backward", micro_batch)
            if last:
                # Gradients of several micro-batches are kept as they are reduced.
                dtype = self.gradient if micro_batch else BFLOAT16
                calls += [
                    self._tensor(SUM, dtype, elements * SIZES[dtype], "backward", unit, micro_batch)
                    for elements in unit.norms
                ]
            if last and unit is not self.root:
                calls += self._reduction(unit, micro_batch)
        if self.root is not None:
            calls += _placed(self.ends["embed_tokens"].backward, "backward", micro_batch)
            calls += self._reduction(self.root, micro_batch) if last else []
        return calls

    def _gather(self, unit: Unit, phase: str, micro_batch: int) -> Call:
        size = unit.elements * SIZES[BFLOAT16]
        return Call(GATHER, "dp_shard", self.shard, BFLOAT16, size, phase, unit.name, micro_batch=micro_batch)

    def _run(self, unit: Unit, phase: str, micro_batch: int) -> list[Call]:
        """A unit's computation in a pass, and what tensor-parallel ranks send of its activations and the loss."""
        if unit is self.root or unit is (None if self.root else self.units[-1]):
            calls = self._head(phase)
        elif unit.part is None:
            # The embedding: its output is summed and split.
            kernels = self.ends["embed_tokens"]
            calls = [*kernels.forward, *self.scatter] if phase == "forward" else [*self.gather, *kernels.backward]
        elif phase == "forward":
            calls = [*self._layer(unit.part, last=""), *self.made.end(unit.part)]
        else:
            calls = self._layer_back(unit.part)
        return _placed(calls, phase, micro_batch, unit.name)

    def _head(self, phase: str) -> list[Call]:
        """The last norm, the head and the loss."""
        norm, head, loss = self.ends["norm"], self.ends["lm_head"], self.made.loss(phase)
        if phase == "backward":
            # Where no unit is the whole, the loss is in none.
            return [*(loss if self.root else []), *head.backward, *self.scatter, *norm.backward]
        tokens = self.args.micro_batch * self.args.seq_length * SIZES[FLOAT32]
        most, *sums = [Call(SUM, "tp", self.tensor, FLOAT32, tokens, phase)] * 3 if self.tp > 1 else [None]
        reduced = [[] if most is None else [most], sums]
        return [*norm.forward, *self.gather, *head.forward, *reduced[0], *loss, *reduced[1]]

    def _layer(self, part: DecoderPart, last: str) -> list[Call]:
        """A layer forward; last: the module before whose product it ends, "" for none."""
        calls: list[Call] = []
        for word, kernels in self.made.layer(part).items():
            calls += [*kernels.before, *(self.gather if word in FIRST else [])]
            if word == last:
                break
            calls += [*kernels.forward, *(self.scatter if word in LAST else [])]
        return calls

    def _layer_back(self, part: DecoderPart) -> list[Call]:
        """The gradient of its output is gathered before anything is computed again, up to the activation."""
        again = self.args.activation_recompute == "full"
        calls = [*self.gather, *self._layer(part, last="down_proj")] if again else []
        for word, kernels in reversed(self.made.layer(part).items()):
            gathered = self.gather if word in LAST and not (again and word == "down_proj") else []
            calls += [*gathered, *kernels.backward, *kernels.after, *(self.scatter if word in FIRST else [])]
        return calls

    def _tensor(self, kind: CommType, dtype: str, size: int, phase: str, unit: Unit, micro_batch: int) -> Call:
        return Call(kind, "tp", self.tensor, dtype, size, phase, unit.name, micro_batch=micro_batch)

    def _reduction(self, unit: Unit, micro_batch: int) -> list[Call]:
        """To the owners of the shards, then over the copies of a shard."""
        size = unit.elements * SIZES[self.gradient]
        over = [(SCATTER, "dp_shard", self.shard, size)]
        if len(self.copies) > 1:
            over.append((SUM, "dp_replicate", self.copies, size // self.count))
        return [
            Call(kind, group, ranks, self.gradient, each, "backward", unit.name, micro_batch=micro_batch)
            for kind, group, ranks, each in over
        ]

    def _step(self) -> list[Call]:
        """The norm of all gradients, of each parameter a number, clipping, and Adam."""
        size = self.parameters * SIZES[FLOAT32]
        over = [("dp_shard", self.shard), *([("tp", self.tensor)] if self.tp > 1 else [])]
        sums = [Call(SUM, group, ranks, FLOAT32, size, "step") for group, ranks in over]
        clips = [*self._update("grad_norm"), *sums, *self._update("grad_scale")] if self.args.clip_grad else []
        return [*clips, *self._update("adam")]

    def _update(self, op: str) -> list[Call]:
        return self.made.kernels.made(op, (self.own,), "step", "", dtype=FLOAT32)


def _placed(calls: Iterable[Call], phase: str, micro_batch: int, module: str = "") -> list[Call]:
    """Calls in a pass; module: of those that name none."""
    return [replace(call, phase=phase, module=call.module or module, micro_batch=micro_batch) for call in calls]
