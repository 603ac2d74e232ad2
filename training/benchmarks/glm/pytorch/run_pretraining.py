"""Runs a rank of GLM training: `torchrun ... -m training.benchmarks.glm.pytorch.run_pretraining -- ...`."""

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.glm.pytorch import data
from training.benchmarks.glm.pytorch.config import Config
from training.benchmarks.glm.pytorch.model import Glm


class GlmBenchmark(TrainingBenchmark[Config]):
    name = "glm"
    data = data

    def build_model(self, config: Config) -> Glm:
        return Glm(config)


if __name__ == "__main__":
    run_training(GlmBenchmark(), Config)
