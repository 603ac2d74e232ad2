"""AICB's collective test: one collective over a sweep of sizes."""

from collections.abc import Iterator

from workloads.dialects.aicb.trainer import TrainingLoop
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem


def sweep(args: WorkloadArgs) -> Iterator[int]:
    """Sizes in bytes from begin_size on, doubled while they are at most end_size."""
    size = args.begin_size
    while 0 < size <= args.end_size:
        yield size
        size *= 2


class CollectiveTrainer(TrainingLoop):
    """iter_num warm-up rows of begin_size, then in each iteration iter_num rows of each size.

    With multi_all_reduce_enable the sweep runs in all pipeline groups at once.
    """

    def init(self) -> Block[LogItem]:
        warm_up = self.dp_op(CommType[self.args.test_comm], self.args.begin_size, "warmup")
        return Block([warm_up], max(0, self.args.iter_num))

    def iterations(self) -> Block[LogItem]:
        group, size = CommGroup.dp_group, self.dp
        if self.args.multi_all_reduce_enable:
            group, size = CommGroup.pp_group, self.args.pipeline_model_parallel
        rows = [
            Block(
                [LogItem(CommType[self.args.test_comm], group, size, msg_size, "test_step")], max(0, self.args.iter_num)
            )
            for msg_size in sweep(self.args)
        ]
        return Block([*rows, EPOCH_END], max(0, self.args.epoch_num))
