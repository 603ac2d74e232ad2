"""Metrics over the whole evaluation set, each sample counted once, the same on all ranks."""

import torch
import torch.distributed as dist
from torch import Tensor

from protocol import pulse
from training.benchmarks.driver.training.data.loader import SampleSet, loader
from training.benchmarks.driver.training.data.micro_batches import EvaluationBatches
from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.parallel import Layout, ParallelModel
from training.benchmarks.driver.training.model.precision import Precision
from training.benchmarks.driver.training.settings.settings import TrainingConfig


class Evaluator:
    """Runs the model over this rank's share of the evaluation set and sums over the ranks. `first_batch` is the first
    that the model got in the last evaluation.
    """

    def __init__(self, samples: SampleSet, layout: Layout, config: TrainingConfig, device: torch.device) -> None:
        self._sampler = EvaluationBatches(
            len(samples), batch_size=config.eval_batch_size, dp_rank=layout.dp_rank, dp_size=layout.dp_size
        )
        self._loader = loader(samples, self._sampler, workers=config.num_workers, device=device)
        self.first_batch: Batch = {}

    @torch.no_grad()
    def evaluate(self, model: ParallelModel, precision: Precision) -> dict[str, float]:
        """Every metric of the model, by name. Leaves the model in training mode."""
        model.module.eval()
        sums: dict[str, Tensor] = {}
        for position, batch in enumerate(self._loader):
            if position == 0:
                self.first_batch = batch
            with precision.autocast():
                results = model(batch)
            counted = float(self._sampler.counts(position))
            for name, pair in results.items():
                if name != LOSS:
                    sums[name] = sums.get(name, torch.zeros_like(pair)) + counted * pair
            pulse.step()
        model.module.train()
        totals = torch.stack(list(sums.values())).double()
        dist.all_reduce(totals)
        return {name: float(total / count) for name, (total, count) in zip(sums, totals.tolist(), strict=True)}
