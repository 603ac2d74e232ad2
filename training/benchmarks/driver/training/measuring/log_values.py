"""Builds the values of a training's PerfLog events. Needs no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.benchmarks.driver.training.measuring.rates import Times, flops_without_attention, model_flops_utilization
from training.benchmarks.driver.training.measuring.steady import SteadyState
from training.benchmarks.driver.training.settings.schedule import learning_rate
from training.benchmarks.driver.training.settings.settings import TrainingConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingProgress:
    """State of a run after `step` steps; `steps_done` of them ran in these processes, in the times `times`."""

    step: int
    steps_done: int
    global_batch_size: int
    total_steps: int
    times: Times

    @property
    def samples(self) -> int:
        """Samples of all ranks in the times."""
        return self.steps_done * self.global_batch_size


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSize:
    """A model's number of parameters, and its `work`: a sample's number of tokens and of operations."""

    parameters: int
    work: tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceUse:
    """A run's devices: how many; of one the peak in 1e12 operations/s (None: unknown), the largest memory in bytes."""

    world_size: int
    peak_tflops: float | None
    peak_memory_bytes: int


def step_end(
    progress: TrainingProgress,
    before: TrainingProgress | None,
    config: TrainingConfig,
    loss: float,
    epoch: int,
    metrics: Mapping[str, float],
    tokens: float,
) -> dict[str, Any]:
    """The value of STEP_END. Rates are samples/s of all ranks without evaluations: seq/s and tokens/s since the
    training began, those of the interval since the step that was logged `before`.

    A sample has `tokens` tokens. `loss` and `metrics` are dimensionless or in the units of the model.
    """
    rate = progress.samples / progress.times.no_eval
    samples, seconds = (0, 0.0) if before is None else (before.samples, before.times.no_eval)
    of_interval = (progress.samples - samples) / (progress.times.no_eval - seconds)
    return {
        "step": progress.step,
        "global_steps": progress.step,
        "total_steps": progress.total_steps,
        "epoch": epoch,
        "loss": loss,
        "learning_rate": learning_rate(config, progress.step, progress.total_steps),
        "num_trained_samples": progress.step * progress.global_batch_size,
        "seq/s": rate,
        "tokens/s": rate * tokens,
        "seq/s_interval": of_interval,
        "tokens/s_interval": of_interval * tokens,
        "pure_compute_time": progress.times.pure_compute,
        "no_eval_time": progress.times.no_eval,
        **metrics,
    }


def finished(
    progress: TrainingProgress,
    config: TrainingConfig,
    use: DeviceUse,
    unit: str,
    metrics: Mapping[str, float],
    *,
    steady: SteadyState | None,
    size: ModelSize,
) -> dict[str, Any]:
    """The value of FINISHED except its times since the process began.

    Times are in seconds, rates in samples/s of all ranks; `metrics` are in the units of the model.
    """
    times, samples = progress.times, progress.samples
    targets = config.targets()
    return {
        "global_steps": progress.step,
        "num_trained_samples": progress.step * progress.global_batch_size,
        "raw_train_time": times.raw,
        "train_time": times.raw,  # BERT's name for it in FlagPerf
        "train_no_eval_time": times.no_eval,
        "pure_training_computing_time": times.pure_compute,
        "training_sequences_per_second": samples / times.raw,
        f"throughput({unit})_raw": samples / times.raw,
        f"throughput({unit})_no_eval": samples / times.no_eval,
        f"throughput({unit})_pure_compute": samples / times.pure_compute,
        **_steady(steady, progress.global_batch_size, unit),
        **_per_device(progress, config, use, steady, size),
        "peak_memory_bytes": use.peak_memory_bytes,
        "converged": all(target.met(metrics) for target in targets) if targets else None,
        "targets": [str(target) for target in targets],
        **{f"final_{name.removeprefix('eval_')}": value for name, value in metrics.items()},
    }


def _steady(steady: SteadyState | None, batch: int, unit: str) -> dict[str, Any]:
    """The warm-up and the steady state after it; None for what is not known."""
    found: dict[str, Any] = dict.fromkeys(
        (
            "warmup_steps", "warmup_time", "steady_steps", "step_time_p50", "step_time_p99",
            *(f"throughput({unit})_steady{end}" for end in ("", "_low", "_high")),
        )
    )  # fmt: skip
    if steady is None:
        return found
    found |= {
        "warmup_steps": steady.warmup_steps,
        "warmup_time": steady.warmup_seconds,
        "steady_steps": steady.steps,
        "step_time_p50": steady.p50,
        "step_time_p99": steady.p99,
        f"throughput({unit})_steady": batch / steady.mean,
    }
    if steady.half_width is not None and steady.half_width < steady.mean:
        found[f"throughput({unit})_steady_low"] = batch / (steady.mean + steady.half_width)
        found[f"throughput({unit})_steady_high"] = batch / (steady.mean - steady.half_width)
    return found


def _per_device(
    progress: TrainingProgress,
    config: TrainingConfig,
    use: DeviceUse,
    steady: SteadyState | None,
    size: ModelSize,
) -> dict[str, Any]:
    """Tokens/s and MFU of a device: of the steady state, or of the whole training if none was found."""
    if steady is None:
        samples, seconds = progress.samples, progress.times.no_eval
    else:
        samples, seconds = progress.global_batch_size, steady.mean
    of_sample, flops = size.work
    without = flops_without_attention(config, size.parameters, of_sample)
    mfu, mfu_6n = (
        model_flops_utilization(each, samples=samples, seconds=seconds, world_size=use.world_size, peak=use.peak_tflops)
        for each in (flops, without)
    )
    tokens = of_sample / use.world_size
    return {
        "tokens_per_second_per_device": progress.samples * tokens / progress.times.no_eval,
        "tokens_per_second_per_device_steady": None if steady is None else samples * tokens / seconds,
        "mfu": mfu,
        "mfu_6n": mfu_6n,
        "mfu_of": "whole training" if steady is None else "steady state",
        "peak_tflops": use.peak_tflops,
        "tokens_per_sample": of_sample,
        "flops_per_sample": flops,
        "flops_per_sample_6n": without,
        "parameters": size.parameters,
    }
