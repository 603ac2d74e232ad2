"""AICB's training loop: initialise, then per iteration the micro-batches and the optimizer step."""

from abc import ABC, abstractmethod

from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import EPOCH_END, CommGroup, CommType, LogItem


class TrainingLoop(ABC):
    """The rows of one rank. A frame defines its four phases; `rows` joins them."""

    def __init__(self, args: WorkloadArgs) -> None:
        self.args = args
        self.dp = args.data_parallel_size

    @abstractmethod
    def init(self) -> Block[LogItem]:
        """Rows before the first iteration."""

    @abstractmethod
    def iterations(self) -> Block[LogItem]:
        """Rows of all iterations, each closed by an epoch end."""

    def rows(self) -> Block[LogItem]:
        return Block([self.init(), EPOCH_END, self.iterations()])

    def dp_op(
        self, comm_type: CommType, size: int, stage: str, *, src: int | None = None, dst: int | None = None
    ) -> LogItem:
        """A collective over the data-parallel group, `size` in bytes."""
        return LogItem(comm_type, CommGroup.dp_group, self.dp, size, stage, dst, src)
