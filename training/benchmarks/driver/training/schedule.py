"""Computes the schedule of a run: number of steps, evaluations, and the learning rate of each step. Needs no torch."""

import math
from dataclasses import dataclass
from typing import Self

from training.benchmarks.driver.training.settings import TrainingConfig


class ScheduleError(ValueError):
    """Settings and size of the data allow no step; the message states both."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSchedule:
    """Steps of a run. `global_batch_size` is in samples over all ranks; `eval_interval` is in steps, None: at the end.

    An incomplete last global batch of an epoch is dropped, so that every step has the same size.
    """

    global_batch_size: int
    steps_per_epoch: int
    total_steps: int
    eval_interval: int | None
    eval_start: int

    @classmethod
    def of(cls, config: TrainingConfig, *, dp_size: int, train_samples: int) -> Self:
        """The schedule on `dp_size` data-parallel ranks with a training set of `train_samples`.

        Raises:
            ScheduleError: one global batch is larger than the training set or max_samples.
        """
        batch = config.train_batch_size * config.gradient_accumulation_steps * dp_size
        what = (
            f"one step takes {batch} samples (train_batch_size {config.train_batch_size} x"
            f" gradient_accumulation_steps {config.gradient_accumulation_steps} x {dp_size} ranks)"
        )
        steps_per_epoch = train_samples // batch
        if not steps_per_epoch:
            raise ScheduleError(f"{what}, the training set has {train_samples}")
        limits = []
        if config.max_steps is not None:
            limits.append(config.max_steps)
        if config.max_samples is not None:
            if config.max_samples < batch:
                raise ScheduleError(f"{what}, max_samples is {config.max_samples}")
            limits.append(config.max_samples // batch)
        if config.max_epochs is not None:
            limits.append(config.max_epochs * steps_per_epoch)
        interval = config.eval_interval_samples
        return cls(
            global_batch_size=batch,
            steps_per_epoch=steps_per_epoch,
            total_steps=min(limits),
            eval_interval=None if interval is None else math.ceil(interval / batch),
            eval_start=math.ceil(config.eval_start_samples / batch),
        )

    def evaluates_after(self, step: int) -> bool:
        """Whether the model is evaluated after `step` (from 1); it always is after the last one."""
        if step == self.total_steps:
            return True
        return self.eval_interval is not None and step >= self.eval_start and step % self.eval_interval == 0


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """Learning rate (dimensionless) of `step`, counted from 1.

    It rises linearly over the first warmup * lr_decay_steps steps. Then it falls, with the full rate in the first step
    of the decline, to min_lr_ratio * learning_rate, reached at step lr_decay_steps + 1 (linear: polynomial of degree 1;
    cosine: half a period).
    """
    decay_steps = config.lr_decay_steps or total_steps
    warmup_steps = config.warmup * decay_steps
    if step <= warmup_steps:
        return config.learning_rate * step / warmup_steps
    if config.lr_schedule == "constant":
        return config.learning_rate
    done = min(max((step - 1 - warmup_steps) / (decay_steps - warmup_steps), 0.0), 1.0)
    left = 1 - done if config.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * (config.min_lr_ratio + (1 - config.min_lr_ratio) * left)
