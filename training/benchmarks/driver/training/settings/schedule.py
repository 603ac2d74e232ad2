"""Computes the schedule of a run: number of steps, evaluations, and the learning rate of each step. Needs no torch."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from training.benchmarks.driver.training.settings.settings import TrainingConfig

_RATES_AHEAD = 64


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
            ScheduleError: one global batch is larger than the training set or max_samples, or no step follows the
                warm-up.
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
        if config.warmup_steps is not None and config.warmup_steps >= min(limits):
            raise ScheduleError(f"warmup_steps is {config.warmup_steps}, the run has {min(limits)} steps")
        if config.profile is not None and config.profiled_steps()[-1] > min(limits):
            raise ScheduleError(
                f"profile_steps is up to {config.profiled_steps()[-1]}, the run has {min(limits)} steps"
            )
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


def decay_steps(config: TrainingConfig, total_steps: int) -> int:
    """Steps over which the rate of a run of `total_steps` steps falls; in FlagPerf's schedules max_steps of them."""
    if config.lr_schedule in UPSTREAM and config.max_steps is not None:
        return config.lr_decay_steps or config.max_steps
    return config.lr_decay_steps or total_steps


def learning_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """Learning rate (dimensionless) of `step`, counted from 1.

    It rises linearly over the first warmup * lr_decay_steps steps. Then it falls, with the full rate in the first step
    of the decline, to min_lr_ratio * learning_rate, reached at step lr_decay_steps + 1 (linear: polynomial of degree 1;
    cosine: half a period). FlagPerf's schedules have formulas of their own, `UPSTREAM`.
    """
    steps = decay_steps(config, total_steps)
    upstream = UPSTREAM.get(config.lr_schedule)
    if upstream is not None:
        return upstream(config, step, steps)
    warmup_steps = config.warmup * steps
    if step <= warmup_steps:
        return config.learning_rate * step / warmup_steps
    if config.lr_schedule == "constant":
        return config.learning_rate
    done = min(max((step - 1 - warmup_steps) / (steps - warmup_steps), 0.0), 1.0)
    left = 1 - done if config.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate * (config.min_lr_ratio + (1 - config.min_lr_ratio) * left)


def applied_rate(config: TrainingConfig, step: int, total_steps: int) -> float:
    """The rate (dimensionless) that the update of `step`, counted from 1, takes.

    FlagPerf's CPM, GLM and BERT in Paddle set the rate of a step, which their logs show, after its update: each update
    takes the rate of the step before, the first one 0 if there is a warm-up.
    """
    return learning_rate(config, step - 1 if config.lr_schedule in _AFTER_THE_UPDATE else step, total_steps)


class AppliedRates:
    """The applied_rate of each step, some steps at a time: one by itself between two steps costs ten times as much."""

    def __init__(self, config: TrainingConfig, total_steps: int) -> None:
        self._config = config
        self._total_steps = total_steps
        self._ahead: dict[int, float] = {}

    def __getitem__(self, step: int) -> float:
        """The rate (dimensionless) that the update of `step`, counted from 1, takes."""
        if step not in self._ahead:
            steps = range(step, step + _RATES_AHEAD)
            self._ahead = {each: applied_rate(self._config, each, self._total_steps) for each in steps}
        return self._ahead[step]


def _bert(config: TrainingConfig, step: int, steps: int) -> float:
    """FlagPerf's "poly" of degree 1 to 0: after the warm-up it falls as if there had been none."""
    warmup_steps = int(round(config.warmup * steps, 6))  # 2000 of 10**7 are not 1999
    left = step / warmup_steps if step < warmup_steps else 1 - min(step / steps, 1.0)
    return config.learning_rate * left


def _cpm(config: TrainingConfig, step: int, steps: int) -> float:
    """FlagPerf's CPM: the decline to 0 begins after the warm-up and takes all `steps`, beyond the end of the run."""
    rising, after = _risen(config, step, steps)
    return config.learning_rate * (rising if after <= 0 else max(1 - after / steps, 0.0))


def _cpm_cosine(config: TrainingConfig, step: int, steps: int) -> float:
    """As `_cpm`, with half a period of a cosine over `steps`."""
    rising, after = _risen(config, step, steps)
    return config.learning_rate * (rising if after <= 0 else 0.5 * (math.cos(math.pi * after / steps) + 1))


def _glm(config: TrainingConfig, step: int, steps: int) -> float:
    """FlagPerf's GLM: linear from the warm-up's end to min_lr_ratio at `steps`."""
    rising, after = _risen(config, step, steps)
    fallen = (1 - config.min_lr_ratio) * min(after / (steps * (1 - config.warmup)), 1.0)
    return config.learning_rate * (rising if after <= 0 else 1 - fallen)


def _risen(config: TrainingConfig, step: int, steps: int) -> tuple[float, float]:
    """Which part of the warm-up is done after `step`, and the steps since its end (0 or less: it is not over)."""
    warmup_steps = config.warmup * steps
    return (step / warmup_steps if warmup_steps else 1.0), step - warmup_steps


# The formulas of FlagPerf's schedulers, training/benchmarks/<model>/<framework>/schedulers.
UPSTREAM: dict[str, Callable[[TrainingConfig, int, int], float]] = {
    "flagperf_bert": _bert,
    "flagperf_bert_paddle": _bert,
    "flagperf_cpm": _cpm,
    "flagperf_cpm_cosine": _cpm_cosine,
    "flagperf_glm": _glm,
}
_AFTER_THE_UPDATE = ("flagperf_bert_paddle", "flagperf_cpm", "flagperf_cpm_cosine", "flagperf_glm")
