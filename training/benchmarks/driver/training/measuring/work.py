"""Counts the real tokens and operations of the batches of a run whose samples differ in length."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.training.settings.settings import TrainingConfig

_COUNTED_AT = 16  # batches that are kept before they are counted


class Work:
    """Tokens and operations per sample of the batches so far; those of the settings where all samples are alike.

    Batches are counted some at a time, and together: between two steps each call of torch costs ten times what it costs
    after another one. Of a batch only what is counted is kept.
    """

    def __init__(self, benchmark: TrainingBenchmark[Any], config: TrainingConfig, device: torch.device) -> None:
        self._benchmark = benchmark
        self._config = config
        self._device = device
        self._samples = 0
        self._kept: list[Batch] = []
        # Tokens and operations: what is known here, and what only the device knows, 0-d float64, if anything.
        self._here = [0, 0]
        self._there: list[Tensor | None] = [None, None]

    def add(self, batch: Batch) -> None:
        """Count a batch of tensors of shape (samples, ...), without waiting for the device."""
        names = self._benchmark.counted
        if not names:
            return
        self._kept.append({name: batch[name] for name in names if name in batch})
        if len(self._kept) >= _COUNTED_AT:
            self._count_kept()

    def _count_kept(self) -> None:
        if not self._kept:
            return
        samples, *found = self._benchmark.work_of(self._config, self._kept)
        self._kept.clear()
        self._samples += samples
        for kind, count in enumerate(found):
            if isinstance(count, int):
                self._here[kind] += count
            else:
                before = self._there[kind]
                self._there[kind] = count.double() if before is None else before + count

    def per_sample(self, *, over_ranks: bool = False) -> tuple[float, float]:
        """Tokens and floating-point operations of a sample, forward and backward; with `over_ranks`, for which all
        ranks call this, the means over all ranks. Waits for the device where only that knows them.
        """
        self._count_kept()
        sums = [float(self._samples)]
        for here, there in zip(self._here, self._there, strict=True):
            sums.append(here + (0.0 if there is None else there.item()))
        if over_ranks:
            of_all = torch.tensor(sums, dtype=torch.float64, device=self._device)
            dist.all_reduce(of_all)
            sums = of_all.tolist()
        counted, tokens, operations = sums
        if not counted:
            return float(self._config.tokens_per_sample()), float(self._config.flops_per_sample())
        return tokens / counted, operations / counted
