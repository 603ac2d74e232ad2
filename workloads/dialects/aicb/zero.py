"""AICB's DeepSpeed trainers: the code that ZeRO 1, 2 and 3 share, and stages 1 and 2.

Bucket sizes and thresholds are in elements, as in DeepSpeed's configuration; rows carry bytes.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable
from functools import cached_property
from itertools import pairwise
from typing import Generic, TypeVar

from workloads.dialects.aicb.llama import DeepspeedForCausalLM
from workloads.dialects.aicb.trainer import TrainingLoop
from workloads.dialects.model import MockedModel, MockedParam
from workloads.job.parameters import ELEMENT_BYTES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem, gemm

State = TypeVar("State", bound=Hashable)
Step = tuple[Block[LogItem], State]


class GemmRows:
    """The computation rows of a weight: its shapes, without times, if the workload has computation rows at all.

    follow_prefetch: with ZeRO-3, a prefetched weight computes where it is gathered (deviation `prefetch_gemms`).
    """

    follow_prefetch = True

    def __init__(self, args: WorkloadArgs) -> None:
        self.args = args
        self.tokens = args.micro_batch * args.seq_length
        # deviation `wgrad_stage`
        self.wgrad_stage = "" if args.stage == 3 else "backward.computation"

    def forward(self, parameter: MockedParam) -> list[LogItem]:
        """((b, s, in), (in, out)) of a matrix, nothing for a vector. Deviation `embedding_gemm`."""
        return [self._gemm("forward.computation", parameter)] if self._computes(parameter) else []

    def backward(self, parameter: MockedParam) -> list[LogItem]:
        """Gradient of the input (deviation `dgrad_shape`: the forward shapes) and of the weight."""
        if not self._computes(parameter):
            return []
        rows, columns = parameter.shape
        wgrad = gemm(self.wgrad_stage, (rows, self.tokens), (self.tokens, columns))
        return [self._gemm("backward.computation", parameter), wgrad]

    def optimizer(self) -> list[LogItem]:
        """Rows of the optimizer's own computation: AICB has none."""
        return []

    def _computes(self, parameter: MockedParam) -> bool:
        return self.args.computes and is_matrix(parameter)

    def _gemm(self, stage: str, parameter: MockedParam) -> LogItem:
        return gemm(stage, (self.args.micro_batch, self.args.seq_length, parameter.shape[0]), parameter.shape)


def is_matrix(parameter: MockedParam) -> bool:
    """Whether a parameter takes part in a GEMM: two dimensions, the last of them not 1."""
    return len(parameter.shape) == 2 and parameter.shape[1] != 1


class ZeroTrainer(TrainingLoop, Generic[State]):
    """Runs micro-batches as steps from one state to the next, and stores a cycle of states once."""

    def __init__(self, args: WorkloadArgs, model: MockedModel | None = None, gemms: GemmRows | None = None) -> None:
        super().__init__(args)
        self.gemms = GemmRows(args) if gemms is None else gemms
        self.parameters = (DeepspeedForCausalLM(args) if model is None else model).parameters()
        self.numels = [parameter.numel() for parameter in self.parameters]
        if not self.parameters:
            raise ValueError("the model has no parameters")

    @abstractmethod
    def start(self) -> State:
        """The state before the first micro-batch."""

    @abstractmethod
    def micro_batch(self, state: State) -> "Step[State]":
        """Rows of one forward and backward pass, and the state after it."""

    @abstractmethod
    def step(self, state: State) -> "Step[State]":
        """Rows of the optimizer step, and the state after it."""

    def iterations(self) -> Block[LogItem]:
        return _run(self.start(), max(0, self.args.epoch_num), self._iteration)[0]

    def _iteration(self, state: State) -> "Step[State]":
        pipelined = self.args.pipeline_model_parallel > 1  # deviation `zero_pipeline`
        batches, state = _run(state, 0 if pipelined else max(0, self.args.num_microbatches), self.micro_batch)
        steps, state = _run(state, 2 if pipelined else 1, self.step)
        return Block([batches, steps, *self.gemms.optimizer(), EPOCH_END]), state

    def barrier(self, size: int, stage: str) -> LogItem:
        """A barrier row; `size` is its bytes in AICB's CSV (deviation `barrier_bytes`)."""
        return LogItem(CommType.barrier, CommGroup.all, self.dp, size, stage)

    def overflow(self) -> LogItem:
        return self.dp_op(CommType.all_reduce, 1, "step.has_overflow")


def _run(state: State, count: int, advance: "Callable[[State], Step[State]]") -> "Step[State]":
    """`advance` applied `count` times. States repeat after a few steps; from then on the rows are a repeated block."""
    seen: dict[State, int] = {}
    blocks: list[Block[LogItem]] = []
    for done in range(count):
        if state in seen:
            cycle = blocks[seen[state] :]
            whole, rest = divmod(count - done, len(cycle))
            after = list(seen)[seen[state] + rest]
            return Block([*blocks, Block(cycle, whole), *cycle[:rest]]), after
        seen[state] = done
        block, state = advance(state)
        blocks.append(block)
    return Block(blocks), state


BucketState = tuple[int, ...]
"""Indices of the parameters whose gradients wait in the bucket."""
Share = tuple[int, int, int]
"""A rank and the range of the flat gradients that it owns, as begin and end in elements."""


class Zero12Trainer(ZeroTrainer[BucketState]):
    """ZeRO 1 and 2: parameters whole on every rank, gradients reduced in buckets in each micro-batch.

    Deviations `zero1_reduces_each_micro_batch`, `zero2_all_reduce` (without contiguous gradients), `barrier_bytes`.
    """

    def __init__(self, args: WorkloadArgs, model: MockedModel | None = None, gemms: GemmRows | None = None) -> None:
        super().__init__(args, model, gemms)
        self.offsets = [0]
        for numel in self.numels:
            self.offsets.append(self.offsets[-1] + numel)
        self.total = self.offsets[-1]

    def init(self) -> Block[LogItem]:
        rows = [self.dp_op(CommType.broadcast, parameter.msg_size(), "init") for parameter in self.parameters]
        return Block([*rows, self.barrier(self.parameters[-1].msg_size(), "init.__init__")])

    def start(self) -> BucketState:
        return ()

    def micro_batch(self, state: BucketState) -> Step[BucketState]:
        rows: list[LogItem | Block[LogItem]] = []
        for parameter in self.parameters:
            rows += self.gemms.forward(parameter)
        bucket = list(state)
        filled = sum(self.numels[index] for index in bucket)
        for index in reversed(range(len(self.parameters))):
            if filled + self.numels[index] > self.args.reduce_bucket_size:
                rows += self.flush(bucket, filled, "backward")
                bucket, filled = [], 0
            rows += self.gemms.backward(self.parameters[index])
            bucket.append(index)
            filled += self.numels[index]
        return Block(rows), tuple(bucket)

    def step(self, state: BucketState) -> Step[BucketState]:
        filled = sum(self.numels[index] for index in state)
        return Block([*self.flush(state, filled, "step"), self.overflow(), self.gather()]), ()

    def flush(self, bucket: "list[int] | BucketState", filled: int, phase: str) -> list[LogItem]:
        """The bucket's gradients: one all-reduce, or one reduce per owner and range if ZeRO-2 keeps them contiguous."""
        if not (self.args.stage == 2 and self.args.contiguous_gradients):
            return [self.dp_op(CommType.all_reduce, ELEMENT_BYTES * filled, f"{phase}.allreduce_bucket")]
        ranges: list[Share] = []
        for index in reversed(bucket):
            for owner, begin, end in self.shares[index]:
                if ranges and ranges[-1][0] == owner:
                    ranges[-1] = (owner, ranges[-1][1], end)
                else:
                    ranges.append((owner, begin, end))
        stage = f"{phase}.average_tensor"
        return [
            self.dp_op(CommType.reduce, ELEMENT_BYTES * (end - begin), stage, dst=owner) for owner, begin, end in ranges
        ]

    @cached_property
    def shares(self) -> "list[list[Share]]":
        """The owners of each parameter's elements. Deviation `zero2_ranges`: a parameter that begins with an owner's
        range has an empty share of the previous owner.
        """
        partition = -(-self.total // self.dp)
        shares: list[list[Share]] = []
        owner = 0
        for begin, end in pairwise(self.offsets):
            parts: list[Share] = []
            while min(self.total, (owner + 1) * partition) < end:
                boundary = (owner + 1) * partition
                parts.append((owner, begin, boundary))
                owner, begin = owner + 1, boundary
            shares.append([*parts, (owner, begin, end)])
        return shares

    def gather(self) -> Block[LogItem]:
        """The updated parameters in shards of about allgather_bucket_size, each padded to a multiple of dp."""
        shards = max(self.total // self.args.allgather_bucket_size, 1)
        shard = self.total // shards
        each, last = (
            self.dp_op(CommType.all_gather, ELEMENT_BYTES * -(-size // self.dp) * self.dp, "step.all_gather_dp_groups")
            for size in (shard, self.total - shard * (shards - 1))
        )
        return Block([Block([each], shards - 1), last])
