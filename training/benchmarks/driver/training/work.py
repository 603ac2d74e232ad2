"""Counts the real tokens and operations of the batches of a run whose samples differ in length."""

from typing import Any

import torch
import torch.distributed as dist

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.model import Batch
from training.benchmarks.driver.training.settings import TrainingConfig

_COUNTED_AT = 16  # batches that are kept before they are counted


class Work:
    """Tokens and operations per sample of the batches so far; those of the settings where all samples are alike.

    Batches are counted some at a time, and together: between two steps each call of torch costs ten times what it costs
    after another one. Of a batch only what is counted is kept.
    """

    def __init__(self, benchmark: TrainingBenchmark[Any], config: TrainingConfig, device: torch.device) -> None:
        self._benchmark = benchmark
        self._config = config
        self._samples = self._tokens = 0
        self._kept: list[Batch] = []
        # What only the device knows: tokens and operations.
        self._on_device = [torch.zeros((), dtype=torch.float64, device=device) for _ in range(2)]

    def add(self, batch: Batch) -> None:
        """Count a batch of tensors of shape (samples, ...), without waiting for the device."""
        names = self._benchmark.counted
        if not names:
            return
        self._samples += len(next(iter(batch.values())))
        self._kept.append({name: batch[name] for name in names if name in batch})
        if len(self._kept) >= _COUNTED_AT:
            self._count_kept()

    def _count_kept(self) -> None:
        if not self._kept:
            return
        tokens, operations = self._benchmark.work_of(self._config, self._kept)
        self._kept.clear()
        if isinstance(tokens, int):
            self._tokens += tokens
        else:
            self._on_device[0] += tokens
        self._on_device[1] += operations

    def per_sample(self, *, over_ranks: bool = False) -> tuple[float, float]:
        """Tokens and floating-point operations of a sample, forward and backward; with `over_ranks`, for which all
        ranks call this, the means over all ranks. Waits for the device.
        """
        self._count_kept()
        tokens, operations = self._on_device
        sums = torch.stack([torch.full_like(tokens, self._samples), tokens + self._tokens, operations])
        if over_ranks:
            dist.all_reduce(sums)
        counted, all_tokens, flops = sums.tolist()
        if not counted:
            return float(self._config.tokens_per_sample()), float(self._config.flops_per_sample())
        return all_tokens / counted, flops / counted
