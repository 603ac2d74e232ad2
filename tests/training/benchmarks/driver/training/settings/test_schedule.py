"""Steps, evaluations and learning rates of a run."""

from typing import Any

import pytest

from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.driver.training.settings.schedule import (
    AppliedRates,
    ScheduleError,
    TrainingSchedule,
    applied_rate,
    learning_rate,
)
from training.benchmarks.driver.training.settings.settings import TrainingConfig


def _config(**settings: Any) -> TrainingConfig:
    return config_of("llama", train_batch_size=4, gradient_accumulation_steps=2, **settings)


def test_a_step_is_the_micro_batches_of_all_ranks() -> None:
    schedule = TrainingSchedule.of(_config(max_steps=5), dp_size=3, train_samples=100)
    assert schedule.global_batch_size == 24
    assert schedule.steps_per_epoch == 4, "the last 4 samples make no step"
    assert schedule.total_steps == 5


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"max_steps": 7}, 7),
        ({"max_steps": None, "max_samples": 100}, 4),
        ({"max_steps": None, "max_epochs": 2}, 8),
        ({"max_steps": 7, "max_samples": 72, "max_epochs": 2}, 3),
    ],
)
def test_the_first_limit_ends_the_run(limits: dict[str, Any], steps: int) -> None:
    assert TrainingSchedule.of(_config(**limits), dp_size=3, train_samples=100).total_steps == steps


def test_data_or_a_limit_below_one_step_is_named() -> None:
    with pytest.raises(ScheduleError, match=r"one step takes 24 samples \(train_batch_size 4 x .* set has 23"):
        TrainingSchedule.of(_config(), dp_size=3, train_samples=23)
    with pytest.raises(ScheduleError, match="max_samples is 23"):
        TrainingSchedule.of(_config(max_samples=23), dp_size=3, train_samples=100)


def test_evaluations_come_at_intervals_and_at_the_end() -> None:
    config = _config(max_steps=11, eval_interval_samples=40, eval_start_samples=80)
    schedule = TrainingSchedule.of(config, dp_size=3, train_samples=100)
    assert (schedule.eval_interval, schedule.eval_start) == (2, 4)
    assert [step for step in range(1, 12) if schedule.evaluates_after(step)] == [4, 6, 8, 10, 11]
    only_last = TrainingSchedule.of(_config(max_steps=3), dp_size=3, train_samples=100)
    assert [step for step in range(1, 4) if only_last.evaluates_after(step)] == [3]


def test_the_rate_rises_and_falls() -> None:
    config = _config(learning_rate=1.0, warmup=0.25, lr_decay_steps=8, min_lr_ratio=0.1, lr_schedule="linear")
    rates = [learning_rate(config, step, 100) for step in range(1, 12)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.1, 0.1])


def test_without_decay_steps_the_rate_falls_over_the_whole_run() -> None:
    config = _config(learning_rate=1.0, warmup=0.0, min_lr_ratio=0.0)
    assert [learning_rate(config, step, 4) for step in (1, 2, 3, 4)] == pytest.approx([1.0, 0.75, 0.5, 0.25])


def test_cosine_and_constant() -> None:
    cosine = _config(learning_rate=2.0, warmup=0.0, min_lr_ratio=0.5, lr_schedule="cosine")
    assert learning_rate(cosine, 3, 4) == pytest.approx(1.5), "half way down"
    assert learning_rate(cosine, 5, 4) == pytest.approx(1.0)
    constant = _config(learning_rate=2.0, warmup=0.5, min_lr_ratio=0.0, lr_schedule="constant")
    assert [learning_rate(constant, step, 4) for step in (1, 2, 3, 9)] == [1.0, 2.0, 2.0, 2.0]


def test_flagperfs_schedules_fall_over_max_steps_however_long_the_run_is() -> None:
    config = _config(learning_rate=1.0, warmup=0.25, max_steps=8, lr_schedule="flagperf_cpm", min_lr_ratio=0.0)
    assert [learning_rate(config, step, 3) for step in (1, 2, 3, 8)] == [0.5, 1.0, 0.875, 0.25]
    assert learning_rate(config, 99, 3) == 0
    cosine = _config(learning_rate=1.0, warmup=0.25, max_steps=8, lr_schedule="flagperf_cpm_cosine", min_lr_ratio=0.0)
    assert [learning_rate(cosine, step, 3) for step in (1, 2, 6)] == pytest.approx([0.5, 1.0, 0.5])
    bert = _config(learning_rate=1.0, warmup=0.25, max_steps=8, lr_schedule="flagperf_bert", min_lr_ratio=0.0)
    assert [learning_rate(bert, step, 3) for step in (1, 2, 6, 9)] == [0.5, 0.75, 0.25, 0]
    longer = _config(
        learning_rate=1.0, warmup=0.0, max_steps=8, lr_decay_steps=16, lr_schedule="flagperf_bert", min_lr_ratio=0.0
    )
    assert learning_rate(longer, 4, 3) == 0.75
    exact = _config(
        learning_rate=1.0, warmup=59 / 30000, max_steps=30000, lr_schedule="flagperf_bert", min_lr_ratio=0.0
    )
    assert [learning_rate(exact, step, 9) for step in (58, 59)] == [58 / 59, 1 - 59 / 30000], "59/30000*30000 < 59"
    without = _config(learning_rate=1.0, warmup=0.0, max_steps=8, lr_schedule="flagperf_cpm", min_lr_ratio=0.0)
    assert applied_rate(without, 1, 8) == 1.0, "no warm-up: the first update takes the full rate"


@pytest.mark.parametrize("schedule", ["cosine", "flagperf_cpm"])
def test_rates_that_are_computed_ahead_are_those_of_their_steps(schedule: str) -> None:
    config = _config(learning_rate=1.0, warmup=0.1, min_lr_ratio=0.0, max_steps=300, lr_schedule=schedule)
    rates = AppliedRates(config, 300)
    steps = [*range(1, 200), 7, 150, 299, 300]  # as after a resume, too
    assert [rates[step] for step in steps] == [applied_rate(config, step, 300) for step in steps]
    assert len({rates[step] for step in range(31, 301)}) == 270, "each step has a rate of its own"


@pytest.mark.parametrize("schedule", ["constant", "flagperf_bert", "flagperf_cpm", "flagperf_cpm_cosine"])
def test_a_lowest_rate_that_a_schedule_does_not_know_is_refused(schedule: str) -> None:
    with pytest.raises(ValueError, match=f"min_lr_ratio has no effect with lr_schedule = '{schedule}'; allowed: 0"):
        _config(lr_schedule=schedule, min_lr_ratio=0.1)
