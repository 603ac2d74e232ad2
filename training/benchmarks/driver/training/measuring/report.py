"""Builds the values of a run's PerfLog events, and the identity that its checkpoints belong to."""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.training.benchmark import PreparedTraining
from training.benchmarks.driver.training.measuring import log_values
from training.benchmarks.driver.training.measuring.log_values import DeviceUse, TrainingProgress
from training.benchmarks.driver.training.measuring.meter import peak_memory_bytes, peak_tflops
from training.benchmarks.driver.training.measuring.steady import SteadyState
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule, decay_steps
from training.benchmarks.driver.training.settings.settings import TrainingConfig
from training.benchmarks.driver.workload.run_context import WorkloadContext
from vendors.extern import FOLDER

# Settings that may differ between a run and the one that resumes from its checkpoint.
_FREE = {
    "activation_checkpointing", "attention", "backend", "checkpoint_dir", "checkpoint_interval_steps",
    "compare_interval_steps", "compile_backend", "data", "device_memory_bytes", "eval_batch_size",
    "eval_interval_samples", "eval_samples", "eval_start_samples", "identify_data", "init_checkpoint", "layers",
    "layout", "log_freq", "max_epochs", "max_samples", "max_steps", "nominal_parameters", "num_workers",
    "optimizer_impl", "peak_tflops", "profile", "profile_ranks", "profile_steps", "resume", "save_weights",
    "timeout_s", "warmup_steps",
}  # fmt: skip


def identity(
    benchmark: str, config: TrainingConfig, schedule: TrainingSchedule, world_size: int, prepared: PreparedTraining
) -> dict[str, Any]:
    """Values that a checkpoint's run and the run that resumes from it share, of the benchmark of this name."""
    settings = {
        key: value
        for key, value in config.model_dump(mode="json").items()
        if key not in _FREE and not key.startswith("target_")
    }
    optimizer = prepared.kernels.optimizer.used
    return settings | {
        "global_batch_size": schedule.global_batch_size,
        "lr_decay_steps": decay_steps(config, schedule.total_steps),
        "model": benchmark,
        # Torch's implementations share one form of state, apex and a vendor's own have others.
        "optimizer_state": optimizer if optimizer in ("apex", FOLDER) else "torch",
        "train_samples": len(prepared.data.train),
        "world_size": world_size,
    }


def finished(
    progress: TrainingProgress,
    run: WorkloadContext[TrainingConfig],
    unit: str,
    metrics: Mapping[str, float],
    *,
    steady: SteadyState | None,
    parameters: int,
    work: tuple[float, float],
) -> dict[str, Any]:
    """The value of FINISHED but its times; all ranks call it. Rates: samples/s; `metrics`: in their own units."""
    use = DeviceUse(
        world_size=run.group.placement.world_size,
        peak_tflops=peak_tflops(run.config, run.group.device),
        peak_memory_bytes=_largest(peak_memory_bytes(run.group.device), run.group.device),
    )
    size = log_values.ModelSize(parameters=parameters, work=work)
    return log_values.finished(progress, run.config, use, unit, metrics, steady=steady, size=size)


def _largest(value: int, device: torch.device) -> int:
    """The largest value of all ranks."""
    tensor = torch.tensor(value, dtype=torch.int64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return int(tensor)
