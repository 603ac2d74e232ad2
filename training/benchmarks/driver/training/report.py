"""Builds the values of a run's PerfLog events, and the identity that its checkpoints belong to."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.training.benchmark import PreparedTraining
from training.benchmarks.driver.training.meter import (
    Times,
    model_flops_utilization,
    peak_memory_bytes,
    peak_tflops,
)
from training.benchmarks.driver.training.schedule import TrainingSchedule, learning_rate
from training.benchmarks.driver.training.settings import TrainingConfig
from training.benchmarks.driver.workload.run_context import WorkloadContext

# Settings that may differ between a run and the one that resumes from its checkpoint.
_FREE = {
    "activation_checkpointing", "attention", "backend", "checkpoint_dir", "checkpoint_interval_steps",
    "compile_backend", "data", "eval_batch_size", "eval_interval_samples", "eval_samples", "eval_start_samples",
    "init_checkpoint", "log_freq", "max_epochs", "max_samples", "max_steps", "num_workers", "optimizer_impl",
    "peak_tflops", "resume", "timeout_s",
}  # fmt: skip


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


def identity(
    config: TrainingConfig, schedule: TrainingSchedule, world_size: int, prepared: PreparedTraining
) -> dict[str, Any]:
    """Values that must be equal in a checkpoint's run and in the run that resumes from it."""
    settings = {
        key: value
        for key, value in config.model_dump(mode="json").items()
        if key not in _FREE and not key.startswith("target_")
    }
    return settings | {
        "global_batch_size": schedule.global_batch_size,
        "lr_decay_steps": config.lr_decay_steps or schedule.total_steps,
        # Torch's implementations share one form of state, apex has another.
        "optimizer_state": "apex" if prepared.kernels.optimizer.used == "apex" else "torch",
        "train_samples": len(prepared.data.train),
        "world_size": world_size,
    }


def step_end(
    progress: TrainingProgress, config: TrainingConfig, loss: float, epoch: int, metrics: Mapping[str, float]
) -> dict[str, Any]:
    """The value of STEP_END. Rates are samples/s of all ranks since the training began, without evaluations.

    `loss` and `metrics` are dimensionless or in the units of the model.
    """
    rate = progress.samples / progress.times.no_eval
    return {
        "step": progress.step,
        "global_steps": progress.step,
        "total_steps": progress.total_steps,
        "epoch": epoch,
        "loss": loss,
        "learning_rate": learning_rate(config, progress.step, progress.total_steps),
        "num_trained_samples": progress.step * progress.global_batch_size,
        "seq/s": rate,
        "tokens/s": rate * config.tokens_per_sample(),
        "pure_compute_time": progress.times.pure_compute,
        "no_eval_time": progress.times.no_eval,
        **metrics,
    }


def finished(
    progress: TrainingProgress, run: WorkloadContext[TrainingConfig], unit: str, metrics: Mapping[str, float]
) -> dict[str, Any]:
    """The value of FINISHED except its times since the process began; all ranks call it.

    Times are in seconds, rates in samples/s of all ranks; `metrics` are in the units of the model.
    """
    config, device, world_size = run.config, run.group.device, run.group.placement.world_size
    times, samples = progress.times, progress.samples
    targets = config.targets()
    peak = peak_tflops(config, device)
    tokens = samples * config.tokens_per_sample()
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
        "tokens_per_second_per_device": tokens / times.no_eval / world_size,
        "mfu": model_flops_utilization(
            config, samples=samples, seconds=times.no_eval, world_size=world_size, peak=peak
        ),
        "peak_tflops": peak,
        "flops_per_sample": config.flops_per_sample(),
        "peak_memory_bytes": _largest(peak_memory_bytes(device), device),
        "converged": all(target.met(metrics) for target in targets) if targets else None,
        "targets": [str(target) for target in targets],
        **{f"final_{name.removeprefix('eval_')}": value for name, value in metrics.items()},
    }


def _largest(value: int, device: torch.device) -> int:
    """The largest value of all ranks."""
    tensor = torch.tensor(value, dtype=torch.int64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)
