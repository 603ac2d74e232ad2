"""Models whose layers can be divided into the stages of a pipeline, and one stage of such a model."""

import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.model.model import LOSS, Batch, BenchmarkModel
from training.benchmarks.driver.training.settings.settings import TrainingConfig


def hidden_dtype(config: TrainingConfig) -> torch.dtype:
    """The type of what a stage sends: FSDP2 leaves in bfloat16 what autocast leaves in float32, as embeddings are."""
    return torch.bfloat16 if config.strategy == "fsdp" and config.precision == "bf16" else torch.float32


class StagedModel(BenchmarkModel):
    """A model that is what comes before its blocks, its blocks one after the other, and what comes after them. Tensors
    of a batch have the shape (samples, ...), those between blocks that of hidden_shape.
    """

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Run all blocks on a batch; returns what `after_blocks` makes of the last one."""
        return self.after_blocks(self.through(self.blocks(), self.before_blocks(batch)), batch)

    def before_blocks(self, batch: Batch) -> Tensor:
        """The input of the first block."""
        raise NotImplementedError

    def through(self, blocks: Iterable[nn.Module], hidden: Tensor) -> Tensor:
        """The output of the last of these blocks, in the shape of the input."""
        raise NotImplementedError

    def after_blocks(self, hidden: Tensor, batch: Batch) -> dict[str, Tensor]:
        """The result of `forward` from the output of the last block."""
        raise NotImplementedError

    def ends(self) -> tuple[Sequence[nn.Module], Sequence[nn.Module]]:
        """The modules with parameters before the blocks, and those after them."""
        raise NotImplementedError

    def keep_part(self, blocks: Collection[int], *, is_first: bool, is_last: bool) -> None:
        """Drop all blocks but those of these numbers, from 0, the modules before the blocks unless `is_first`, those
        after them unless `is_last`. The names of parameters stay.
        """
        raise NotImplementedError

    def hidden_shape(self, samples: int, sequence_ranks: int) -> tuple[int, ...]:
        """The shape of what a block gets for so many samples on each of the ranks that share the sequence."""
        raise NotImplementedError


class Stage(nn.Module):
    """Some consecutive blocks of a model, in the first stage what comes before all of them, in the last stage what
    comes after. The modules are the model's own.
    """

    def __init__(self, model: StagedModel, blocks: Sequence[nn.Module], *, is_first: bool, is_last: bool) -> None:
        super().__init__()
        before, after = model.ends()
        self.layers = nn.ModuleList(blocks)
        self.outside = nn.ModuleList([*(before if is_first else ()), *(after if is_last else ())])
        self.is_first, self.is_last = is_first, is_last
        self.autocast: Callable[[], contextlib.AbstractContextManager[object]] = contextlib.nullcontext
        self.loss_factor = 1.0
        self._model = [model]  # in a list, so that it is no part of the stage

    def blocks(self) -> Sequence[nn.Module]:
        """The stage's layers."""
        return [*self.layers.children()]

    def forward(self, hidden: Tensor, **batch: Tensor) -> Tensor | dict[str, Tensor]:
        """Takes the output of the stage before, in the first stage anything; `batch` are the tensors of a micro-batch.
        Returns the blocks' output; in the last stage the loss, 0-d, times `loss_factor`, or evaluation's results.
        """
        [model] = self._model
        with self.autocast():
            found = model.before_blocks(batch) if self.is_first else hidden
            found = model.through(self.layers, found)
            if not self.is_last:
                return found
            results = model.after_blocks(found, batch)
        return results if not model.training else results[LOSS] * self.loss_factor
