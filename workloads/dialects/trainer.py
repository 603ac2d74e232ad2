"""The training process to be mocked: a base class with the steps of AICB's trainers, whose rows become a workload."""

from collections.abc import Iterable, Iterator

from workloads.dialects.model import MockedModel
from workloads.formats.workload import Workload
from workloads.job.errors import ParameterError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block
from workloads.rows.ops import EPOCH_END, LogItem

Rows = Iterable[LogItem | Block[LogItem]]


class WorkloadTrainer:
    """A framework: what one rank sends in the initialization, a forward and a backward pass, and an optimizer step.

    A subclass defines the steps that communicate; each returns rows or blocks of rows. Exported as `Trainer`.
    """

    def __init__(self, args: WorkloadArgs, model: MockedModel | None = None) -> None:
        """`model` is asked for its parameters, and for the rows of its passes where a subclass has none of its own."""
        self.args = args
        self.model = MockedModel() if model is None else model

    def init(self) -> Rows:
        """Rows before the first iteration."""
        return ()

    def forward(self) -> Rows:
        """Rows of the forward pass of one micro-batch: those of the model."""
        return (self.model.forward(),)

    def backward(self) -> Rows:
        """Rows of the backward pass of one micro-batch: those of the model."""
        return (self.model.backward(),)

    def step(self) -> Rows:
        """Rows of the optimizer's step."""
        return ()

    def with_pipeline_forward_backward(self) -> Rows:
        """Rows of all micro-batches of an iteration with pipeline parallelism.

        Raises:
            ParameterError: the subclass has no pipeline schedule.
        """
        raise ParameterError([f"{type(self).__name__} has no with_pipeline_forward_backward, which pp > 1 needs"])

    def workload(self) -> Workload:
        """The initialization, then epoch_num iterations of num_microbatches micro-batches and a step.

        Raises:
            ParameterError: there is pipeline parallelism and no schedule.
        """
        iteration = Block([*self._passes(), *self.step(), EPOCH_END], max(0, self.args.epoch_num))
        return Workload([*self.init(), EPOCH_END, iteration], self.args)

    def _passes(self) -> Iterator[LogItem | Block[LogItem]]:
        if self.args.pipeline_model_parallel > 1:
            yield from self.with_pipeline_forward_backward()
        else:
            yield Block([*self.forward(), *self.backward()], max(0, self.args.num_microbatches))
