"""Runs a rank of GLM training: `torchrun ... -m training.benchmarks.glm.pytorch.run_pretraining -- ...`."""

from pathlib import Path

from training.benchmarks.driver.training.benchmark import DataSets, TrainingBenchmark
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.glm.pytorch import data
from training.benchmarks.glm.pytorch.config import Config
from training.benchmarks.glm.pytorch.model import Glm


class GlmBenchmark(TrainingBenchmark[Config]):
    """See TrainingBenchmark."""

    name = "glm"

    def build_model(self, config: Config) -> Glm:
        """See TrainingBenchmark."""
        return Glm(config)

    def synthetic_data(self, config: Config) -> DataSets:
        """See TrainingBenchmark."""
        return data.synthetic(config)

    def open_files(self, config: Config, data_dir: Path) -> DataSets:
        """See TrainingBenchmark."""
        return data.open_files(config, data_dir)


if __name__ == "__main__":
    run_training(GlmBenchmark(), Config)
