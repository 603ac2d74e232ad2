"""Runs a rank of LLaMA pretraining: `torchrun ... -m training.benchmarks.llama.pytorch.run_pretraining -- ...`."""

from pathlib import Path

from training.benchmarks.driver.training.benchmark import DataSets, TrainingBenchmark
from training.benchmarks.driver.training.settings import FLASH_ATTENTION
from training.benchmarks.driver.training.trainer import run_training
from training.benchmarks.llama.pytorch import data
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama


class LlamaBenchmark(TrainingBenchmark[Config]):
    """See TrainingBenchmark."""

    name = "llama"
    # Torch has a flash kernel of its own for causal masks.
    attentions = ("sdpa", FLASH_ATTENTION, "eager")

    def build_model(self, config: Config) -> Llama:
        """See TrainingBenchmark."""
        return Llama(config)

    def synthetic_data(self, config: Config) -> DataSets:
        """See TrainingBenchmark."""
        return data.synthetic(config)

    def open_files(self, config: Config, data_dir: Path) -> DataSets:
        """See TrainingBenchmark."""
        return data.open_files(config, data_dir)


if __name__ == "__main__":
    run_training(LlamaBenchmark(), Config)
