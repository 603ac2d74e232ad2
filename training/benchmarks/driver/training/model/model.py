"""Defines the interface of a model: an nn.Module that computes its own loss and metrics, block by block."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle

from training.benchmarks.driver.training.model.attention import Packing
from training.benchmarks.driver.training.model.context import ContextParallel
from training.benchmarks.driver.training.model.recomputation import recomputed
from training.benchmarks.driver.training.settings.settings import Recompute

Batch = dict[str, Tensor]
"""Named tensors with the samples along the first dimension."""

LOSS = "loss"
Result = TypeVar("Result")


class BenchmarkModel(nn.Module):
    """A model that is created without storage (on the meta device), divided for parallelism, and then filled.

    `forward(batch)` returns {"loss": 0-d} while training. In evaluation mode it also returns for each metric a tensor
    (sum, count) of this batch, float32, shape (2,): the metric is the sum of all sums over the sum of all counts.
    """

    init_std: float = 0.02

    def __init__(self) -> None:
        super().__init__()
        self.recompute: Recompute = "none"
        self.is_compiled = False
        # All data-parallel ranks, for what a loss needs of their micro-batches together; None: there is one.
        self.data_group: dist.ProcessGroup | None = None

    def blocks(self) -> Sequence[nn.Module]:
        """The repeated layers: the units of sharding, recomputation and compilation."""
        raise NotImplementedError

    def initialize(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Fill one whole parameter of any shape in place. The default is the rule of BERT and GPT-2: normal with
        standard deviation `init_std` for matrices, ones for the weights of norms, zeros for biases.
        """
        if parameter.ndim > 1:
            parameter.normal_(0.0, self.init_std, generator=generator)
        elif name.endswith("bias"):
            parameter.zero_()
        else:
            parameter.fill_(1.0)

    def make_constants(self, device: torch.device) -> None:
        """Compute tensors not learned or saved (angles) on `device`, as attributes: DDP would broadcast buffers."""

    def recompute_within(self) -> None:
        """Recompute inside of the blocks from now on, as `recompute` says, not around them."""
        for block in self.blocks():
            block.forward = recomputed(self.recompute, block.forward)
        self.recompute = "none"

    def tensor_parallel_plan(self, sequence_parallel: bool) -> dict[str, ParallelStyle]:
        """Styles by module name for torch's parallelize_module, for models whose layers can be divided."""
        raise NotImplementedError(f"{type(self).__name__} has no tensor parallelism")

    def divide_sequence(self, context: ContextParallel) -> None:
        """Compute from now on this rank's part of each sample's sequence alone, before `make_constants` is called."""
        raise NotImplementedError(f"{type(self).__name__} has no context parallelism")

    def figures(self) -> dict[str, float]:
        """Figures of the last training step for its log line, by name, all dimensionless. Waits for the device."""
        return {}

    def run_block(self, block: Callable[..., Result], *inputs: Tensor | Packing | None) -> Result:
        """block(*inputs); activations are recomputed in the backward pass if asked for. Shapes are the block's own."""
        return recomputed(self.recompute if self.training else "none", block)(*inputs)


def metric(total: Tensor, count: Tensor | int) -> Tensor:
    """The pair (sum, count) of one metric, shape (2,), float32."""
    counted = torch.as_tensor(count, dtype=torch.float32, device=total.device)
    return torch.stack([total.float(), counted])


def parameter_count(model: nn.Module) -> int:
    """Number of parameters in elements, shared ones once."""
    return sum(parameter.numel() for parameter in model.parameters())
