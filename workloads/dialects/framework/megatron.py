"""Assembles what one rank of Megatron-core sends: set-up, passes, gradients and optimizer step of each iteration."""

from itertools import chain

from workloads.dialects.framework import quantised
from workloads.dialects.framework.buffers import BucketGroup, bucket_groups, bucket_limit
from workloads.dialects.framework.context import of_one_rank
from workloads.dialects.framework.layers import Parameter
from workloads.dialects.framework.model import POSITIONS, Chunk, chunks
from workloads.dialects.framework.periodic import Periodic
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.schedule import Interleaved, one_forward_one_backward, without_pipeline
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import BFLOAT16, FLOAT32, SIZES, Call, Event, Ready, Use, passed
from workloads.rows.ops import CommType


class MegatronRank:
    """One rank. `setup` and `iterations` are its calls; the first iteration differs where communication overlaps."""

    def __init__(self, args: WorkloadArgs, rank: int, context: int = 0) -> None:
        """context: in decode the tokens of a sequence that attention sees."""
        self.args = args = of_one_rank(args)
        self.place = RankPlacement(args, rank)
        self.chunks = chunks(args, self.place, context)
        self.groups = [self._groups(number, chunk) for number, chunk in enumerate(self.chunks)]
        self.schedule = Interleaved(args, self.place)
        self.gradient = FLOAT32 if args.grad_reduce_in_fp32 else BFLOAT16
        self.first = True

    def setup(self) -> Block[Call]:
        """Tied word vectors are made equal on the first and the last stage."""
        return Block([self._tied("init", BFLOAT16)] if self._holds_tied() else [])

    def iterations(self, count: int) -> Periodic:
        """With overlap the first learns in which order gradients come and gathers nothing."""
        differs = self.args.overlap_grad_reduce or self.args.overlap_param_gather
        head = (self._iteration(first=True),) if differs and count else ()
        more = count - len(head)
        return Periodic(head, (self._iteration(first=not differs),) if more else (), more)

    def _iteration(self, *, first: bool) -> Block[Call]:
        self.first = first
        return Block([self._passes(), *self._gradients(), *self._step()])

    def _groups(self, number: int, chunk: Chunk) -> list[BucketGroup]:
        place, args = self.place, self.args
        dense = [parameter for parameter in chunk.parameters if not parameter.expert]
        experts = [parameter for parameter in chunk.parameters if parameter.expert]
        limit = bucket_limit(args, place.dp, stage=place.stage, chunk=number)
        found = bucket_groups(dense, args, "dp_cp", place.data, limit=limit, together=number > 0)
        return found + bucket_groups(experts, args, "expert_dp", place.expert_data, limit=limit, together=number > 0)

    def _passes(self) -> Block[Call]:
        if self.place.pp == 1:
            return without_pipeline(self.args.num_microbatches, self._forward, self._last_reduces)
        if self.args.virtual_pipeline > 1:
            return self.schedule.rows(self._forward, self._interleaved_backward)
        return one_forward_one_backward(self.args, self.place, self._forward, self._last_reduces)

    def _forward(self, micro_batch: int, chunk: int) -> Block[Call]:
        """A forward pass; an iteration's first gathers and quantises parameters just before they are read."""
        each, kernels = self.chunks[chunk], self.chunks[chunk].tensor.kernels
        gathers = not self.first and self.args.use_distributed_optimizer and self.args.overlap_param_gather
        if micro_batch or not (gathers or kernels.float8):
            return each.forward_calls.shifted((0, micro_batch))
        calls = _gathered(each.forward, self.groups[chunk]) if gathers else passed(each.forward)
        return Block(passed(quantised.with_weights(kernels, calls)))

    def _last_reduces(self, micro_batch: int, chunk: int) -> Block[Call]:
        """A backward pass. On the first stage that of the last micro-batch reduces each bucket once it is complete."""
        each = self.chunks[chunk]
        last = micro_batch == self.args.num_microbatches - 1
        if not self.args.overlap_grad_reduce or self.first or not last or self.place.stage:
            return each.backward_calls.shifted((0, micro_batch))
        return Block(passed(_reduced(each.backward, self.groups[chunk]), micro_batch))

    def _interleaved_backward(self, number: int, chunk: int) -> Block[Call]:
        """The backward pass of virtual micro-batch `number`. Stage p reduces a chunk p passes after its last
        micro-batch, all stages at the same time.
        """
        schedule = self.schedule
        done = self.chunks[chunk].backward_calls.shifted((0, schedule.entry(number)[0]))
        late = number - self.place.stage
        if not self.args.overlap_grad_reduce or late < 0:
            return done
        if schedule.entry(late)[0] != self.args.num_microbatches - 1:
            return done
        return Block([done, *self._reductions(schedule.chunk(late, forward=False), "backward")])

    def _reductions(self, chunk: int, phase: str) -> list[Call]:
        return [group.reduction(phase) for group in self.groups[chunk]]

    def _gradients(self) -> list[Call]:
        """The calls after the last backward pass: the reductions that have not been sent, norms, tied word vectors."""
        calls: list[Call] = []
        args, place = self.args, self.place
        overlapped = args.overlap_grad_reduce and (place.pp > 1 and (place.stage > 0 or len(self.chunks) > 1))
        if overlapped:
            calls += self._late_reductions()
        elif not args.overlap_grad_reduce or self.first:
            for chunk in range(len(self.chunks)):
                calls += self._reductions(chunk, "gradients")
        shared = self._shared_elements()
        if shared:
            size = shared * SIZES[self.gradient]
            calls.append(Call(CommType.all_reduce, "tp", place.tensor, self.gradient, size, "gradients"))
        if self._holds_tied():
            calls.append(self._tied("gradients", self.gradient))
        return [*calls, *self._expert_bias()]

    def _expert_bias(self) -> list[Call]:
        """How many tokens each expert of the stage's layers got in this iteration; their biases follow it."""
        names = (each.name for chunk in self.chunks for each in chunk.parameters)
        routers = sum(name.endswith(".router.weight") for name in names)
        if not self.args.moe_expert_bias or not routers:
            return []
        size = routers * self.args.num_experts * SIZES[FLOAT32]
        return [Call(CommType.all_reduce, "tp_dp_cp", self.place.stage_ranks, FLOAT32, size, "gradients")]

    def _late_reductions(self) -> list[Call]:
        """Reductions that start after the last backward pass, when the stages before this one start theirs."""
        if len(self.chunks) == 1:
            return self._reductions(0, "backward")
        schedule = self.schedule
        started = {
            schedule.chunk(number, forward=False)
            for number in range(max(0, schedule.total - schedule.period), schedule.total - self.place.stage)
            if schedule.entry(number)[0] == self.args.num_microbatches - 1
        }
        late = [chunk for chunk in range(len(self.chunks)) if chunk not in started]
        return [call for chunk in late for call in self._reductions(chunk, "backward")]

    def _shared_elements(self) -> int:
        """Elements of the gradients that each tensor rank has only a part of."""
        if self.place.tp == 1:
            return 0
        split = self.args.enable_sequence_parallel
        found = (each for chunk in self.chunks for each in chunk.parameters)
        return sum(each.numel for each in found if each.always or (split and each.reduced))

    def _holds_tied(self) -> bool:
        return not self.args.untie_embeddings and self.place.pp > 1 and (self.place.first or self.place.last)

    def _tied(self, phase: str, dtype: str) -> Call:
        size = self.chunks[0].words * SIZES[dtype]
        return Call(CommType.all_reduce, "embedding", self.place.embedding, dtype, size, phase)

    def _step(self) -> list[Call]:
        """The norm of all gradients, clipping, Adam, and the new parameters unless the next forward pass gathers them.

        Experts have an optimizer of their own, and each of the two gathers the parameters of both.
        """
        sharded, stepped = self.args.use_distributed_optimizer, self._stepped()
        counts = [sum(count for _, count in its) for its in stepped]
        calls = [] if self.args.grad_reduce_in_fp32 else self._update("cast", sum(counts))
        calls += [*self._norms(stepped), *self._update("grad_scale", sum(counts))]
        gathers = []
        if sharded and not self.args.overlap_param_gather:
            gathers = [each.gather("step") for groups in self.groups for each in groups]
        for count in counts:
            calls += [*self._update("adam", count), *self._update("cast", count), *gathers]
        return calls

    def _norms(self, stepped: list[list[tuple[Parameter, int]]]) -> list[Call]:
        """The norm of the gradients of all optimizers together, or of each."""
        place, sharded = self.place, self.args.use_distributed_optimizer
        over = [("world", place.world)] if sharded else [("mp", place.model), ("tp_ep_pp", place.expert_model)]
        calls: list[Call] = []
        for (name, ranks), its in zip(over, [list(chain(*stepped))] if sharded else stepped, strict=False):
            calls += self._update("grad_norm", sum(count for each, count in its if self._is_normed(each)))
            calls.append(Call(CommType.all_reduce, name, ranks, FLOAT32, SIZES[FLOAT32], "step"))
        return calls

    def _stepped(self) -> list[list[tuple[Parameter, int]]]:
        """The parameters of each optimizer, and how many elements of them this rank updates."""
        found = [step for groups in self.groups for group in groups for step in group.stepped(self.place.rank)]
        experts = [step for step in found if step[0].expert]
        has_experts = any(each.expert for chunk in self.chunks for each in chunk.parameters)
        return [[step for step in found if not step[0].expert], *([experts] if has_experts else [])]

    def _update(self, op: str, count: int) -> list[Call]:
        """A part of the optimizer's step over so many elements."""
        return self.chunks[0].tensor.kernels.made(op, (count,), "step", "", dtype=FLOAT32)

    def _is_normed(self, parameter: Parameter) -> bool:
        """Whether this rank adds a parameter to the norm: of copies the first tensor rank, of tied vectors stage 0."""
        alike = parameter.reduced or parameter.always or parameter.name.endswith(f"{POSITIONS}.weight")
        is_copy = parameter.alone and not self.place.first
        return not is_copy and not (alike and self.place.rank % self.place.tp)


def _gathered(events: list[Event], groups: list[BucketGroup]) -> list[Call]:
    """A forward pass with its gathers: the first module that reads a bucket waits for it and starts the one before."""
    place = {name: number for number, group in enumerate(groups) for name in group.names}
    started: set[int] = set()
    waited: set[int] = set()
    calls: list[Call] = []
    for event in events:
        if isinstance(event, Call):
            calls.append(event)
        elif isinstance(event, Use):
            for number in sorted({place[name] for name in event.parameters if name in place} - waited, reverse=True):
                starts = [each for each in (number, number - 1) if each >= 0 and each not in started]
                calls += [groups[each].gather("forward") for each in starts]
                started.update(starts)
                waited.add(number)
    return calls


def _reduced(events: list[Event], groups: list[BucketGroup]) -> list[Call]:
    """A backward pass with its reductions: a bucket is sent when the last of its gradients is complete."""
    place = {name: number for number, group in enumerate(groups) for name in group.names}
    missing = [set(group.names) for group in groups]
    calls: list[Call] = []
    for event in events:
        if isinstance(event, Call):
            calls.append(event)
        elif isinstance(event, Ready):
            for name in event.parameters:
                names = missing[place[name]] if name in place else set()
                if names == {name}:
                    calls.append(groups[place[name]].reduction("backward"))
                names.discard(name)
    return calls
