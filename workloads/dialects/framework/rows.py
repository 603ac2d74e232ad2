"""Turns the calls of a rank into the rows of a workload."""

from workloads.dialects.framework.fsdp2 import Fsdp2Rank
from workloads.dialects.framework.inference import InferenceRank
from workloads.dialects.framework.megatron import MegatronRank
from workloads.dialects.framework.zero import Zero12Rank
from workloads.dialects.framework.zero3 import Zero3Rank
from workloads.job.parameters import TRAINING, ZERO_STAGES, WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.calls import Call
from workloads.rows.conversion import folded, item_of
from workloads.rows.ops import EPOCH_END, LogItem


def workload_rows(args: WorkloadArgs, rank: int) -> Block[LogItem]:
    """The set-up and `epoch_num` iterations of a rank, each closed by an epoch end."""
    made = rank_of(args, rank)
    turns = made.iterations(args.epoch_num)
    rows: Block[LogItem] = Block([
        _epoch(made.setup()), *map(_epoch, turns.head), Block(map(_epoch, turns.cycle), turns.times),
        *map(_epoch, turns.tail),
    ])  # fmt: skip
    # The rules of FSDP2 and DeepSpeed go parameter by parameter, through windows that may end inside of layers.
    return rows if args.frame == "Megatron" else folded(rows)


def rank_of(args: WorkloadArgs, rank: int) -> MegatronRank | Fsdp2Rank | Zero12Rank | Zero3Rank:
    """The calls that a rank of a job makes: its `setup()` and its `iterations(count)`."""
    if args.frame == "DeepSpeed":
        return Zero3Rank(args, rank) if args.stage == ZERO_STAGES[-1] else Zero12Rank(args, rank)
    if args.frame == "FSDP2":
        return Fsdp2Rank(args, rank)
    return MegatronRank(args, rank) if args.phase == TRAINING else InferenceRank(args, rank)


def _epoch(calls: Block[Call]) -> Block[LogItem]:
    return Block([calls.map(item_of), EPOCH_END])
