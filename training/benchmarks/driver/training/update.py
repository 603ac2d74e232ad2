"""Makes one update of a model: forward and backward passes of its micro-batches, clipping, learning rate, optimizer."""

from collections.abc import Callable, Iterator

import torch
from torch.optim import Optimizer

from training.benchmarks.driver.training.measuring.meter import Meter
from training.benchmarks.driver.training.measuring.profiling import Profiling
from training.benchmarks.driver.training.measuring.work import Work
from training.benchmarks.driver.training.model import optimizers
from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.parallel import ParallelModel
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.settings.schedule import AppliedRates
from training.benchmarks.driver.training.settings.settings import TrainingConfig


class Update:
    """The updates of a run of `total_steps` steps; `first_batch` is the first micro-batch of the last one."""

    def __init__(
        self,
        model: ParallelModel,
        optimizer: Optimizer,
        precision: Precision,
        config: TrainingConfig,
        total_steps: int,
        profiling: Profiling,
        work: Work,
    ) -> None:
        self._model = model
        self._optimizer = optimizer
        self._precision = precision
        self._config = config
        self._rates = AppliedRates(config, total_steps)
        self._profiling = profiling
        self._work = work
        bound = config.max_grad_norm
        pipeline = None if model.pipeline is None else model.pipeline.group
        self._clipper = None if bound is None else optimizers.GradientClipper(model.module, bound, pipeline)
        self._grad_norm: torch.Tensor | None = None
        self.first_batch: Batch = {}

    def run(
        self,
        batches: Iterator[Batch],
        step: int,
        meter: Meter,
        share_loss: Callable[[torch.Tensor], None] | None = None,
    ) -> torch.Tensor:
        """The update of `step` (from 1) from the next micro-batches, whose tensors have the shape (samples, ...);
        returns this rank's mean loss, 0-d, on the device, which `share_loss` gets as soon as it is known.
        """
        config, precision = self._config, self._precision
        first = self.first_batch = self._next(batches, meter)
        meter.begin_compute()
        # Not after the update: the C library would return the memory, and the forward pass would map it again.
        self._model.clear_gradients()
        if self._model.pipeline is not None:
            others = [self._next(batches, meter) for _ in range(config.gradient_accumulation_steps - 1)]
            loss = self._model.pipeline.train_on([first, *others], precision.autocast)
        elif config.gradient_accumulation_steps == 1:
            loss = self._backward(first)
        else:
            loss = self._accumulate(first, batches, meter)
        if share_loss is not None:
            share_loss(loss)
        with self._profiling.phase("optimizer"):
            if self._clipper is not None:
                precision.unscale(self._optimizer)
                self._grad_norm = self._clipper.clip()
            optimizers.set_learning_rate(self._optimizer, self._rates[step])
            precision.step(self._optimizer)
        meter.end_compute(is_typical=step not in self._profiling.steps)
        return loss

    def numerics(self) -> dict[str, float]:
        """The last gradients' norm before clipping, and fp16's loss scale, where there are. Waits for the device."""
        values = {}
        if self._grad_norm is not None:
            values["grad_norm"] = float(self._grad_norm)
        if self._precision.loss_scale is not None:
            values["loss_scale"] = self._precision.loss_scale
        return values

    def _backward(self, micro_batch: Batch) -> torch.Tensor:
        """Add the gradients of one micro-batch; returns its contribution to the step's mean loss."""
        with self._profiling.phase("forward"), self._precision.autocast():
            loss = self._model(micro_batch)[LOSS]
        if self._config.gradient_accumulation_steps > 1:
            loss = loss / self._config.gradient_accumulation_steps
        with self._profiling.phase("backward"):
            self._precision.backward(loss)
        return loss.detach()

    def _next(self, batches: Iterator[Batch], meter: Meter) -> Batch:
        with self._profiling.phase("data"), meter.loading():
            batch = next(batches)
        self._work.add(batch)
        return batch

    def _accumulate(self, first: Batch, batches: Iterator[Batch], meter: Meter) -> torch.Tensor:
        """The gradients of all micro-batches of a step; returns its mean loss."""
        last = self._config.gradient_accumulation_steps - 1
        with self._model.accumulating(is_last=False):
            total = self._backward(first)
        for micro in range(1, last + 1):
            with self._model.accumulating(is_last=micro == last):
                total = total + self._backward(self._next(batches, meter))
        return total
