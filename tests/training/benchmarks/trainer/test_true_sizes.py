"""The shipped true-size cases: published batch sizes, steps and rates, and that a step fits into a device's memory."""

from pathlib import Path
from typing import Any

import pytest

from tests.training.benchmarks.driver.launching import ROOT
from tests.training.benchmarks.trainer.memory import RESERVED, activation_bytes, step_bytes
from tests.training.benchmarks.trainer.tiny import MODELS, benchmark_of, config_of
from training.benchmarks.driver.config import load_case_config
from training.benchmarks.driver.training.schedule import Schedule, learning_rate
from training.benchmarks.driver.training.settings import TrainingConfig

# Bytes that the devices show: 40 GB (the smallest A100), 80 GB, 141 GB.
MEMORY = {"A100": 42.4e9, "H100": 85.0e9, "H200": 150.0e9}
RANKS = {"1x1": 1, "1x8": 8, "2x8": 16}
CASES = [(model, device, shape) for model in MODELS for device in MEMORY for shape in RANKS]
# FlagPerf's samples a step on each device: BERT 24 in 4 micro-batches.
PUBLISHED = {
    "bert": {"1x1": 96, "1x8": 96, "2x8": 96},
    "glm": {"1x1": 16, "1x8": 8, "2x8": 8},
    "cpm": {"1x1": 32, "1x8": 32, "2x8": 192},
}


def _config(model: str, device: str, shape: str) -> TrainingConfig:
    path = ROOT / "vendors" / "nvidia" / f"{model}-pytorch" / "config" / f"config_{device}x{shape}.py"
    config: TrainingConfig = load_case_config(MODELS[model][1], Path(path), {})
    return config


@pytest.mark.parametrize(("model", "device", "shape"), CASES)
def test_a_step_fits_into_the_devices_memory(model: str, device: str, shape: str) -> None:
    needed = step_bytes(benchmark_of(model), _config(model, device, shape), RANKS[shape])
    assert needed * (1 + RESERVED) < MEMORY[device], f"{needed / 1e9:.1f} GB"


@pytest.mark.parametrize("model", PUBLISHED)
@pytest.mark.parametrize("shape", RANKS)
def test_a_step_takes_the_published_samples_on_every_device(model: str, shape: str) -> None:
    for device in MEMORY:
        config = _config(model, device, shape)
        assert config.train_batch_size * config.gradient_accumulation_steps == PUBLISHED[model][shape], device


@pytest.mark.parametrize(
    ("model", "samples", "steps", "peak_at", "lowest"),
    [
        ("bert", 10_000_000, 5859, 1, 0.0),  # 4,500,000 samples / 768
        ("glm", 100_000, 86_766, 434, 0.1),  # 5,553,080 / 64; the rate falls over 4338 steps
        ("cpm", 100_000, 4000, 800, 0.0),
    ],
)
def test_the_schedule_of_eight_devices_is_the_published_one(
    model: str, samples: int, steps: int, peak_at: int, lowest: float
) -> None:
    config = _config(model, "A100", "1x8")
    schedule = Schedule.of(config, dp_size=8, train_samples=samples)
    assert schedule.total_steps == steps
    rates = [learning_rate(config, step, steps) / config.learning_rate for step in range(1, steps + 1)]
    assert rates[peak_at - 1] == pytest.approx(1.0, abs=2e-3) == max(rates)
    assert rates[-1] == pytest.approx(lowest, abs=1e-3)
    decayed = config.lr_decay_steps or steps
    assert rates[(peak_at + decayed) // 2] == pytest.approx((1 + lowest) / 2, abs=2e-3), "it falls linearly"


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_layer_keeps_as_much_as_the_second(model: str, precision: str) -> None:
    config: Any = config_of(model, precision=precision)
    one, two, five = (activation_bytes(benchmark_of(model), config, layers) for layers in (1, 2, 5))
    assert two > one > 0
    assert five == one + 4 * (two - one)
