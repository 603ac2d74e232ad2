"""Runs a rank of CPM pretraining: `torchrun ... -m training.benchmarks.cpm.pytorch.run_pretraining -- ...`."""

from collections.abc import Mapping
from typing import ClassVar

from training.benchmarks.cpm.pytorch import data
from training.benchmarks.cpm.pytorch.config import Config
from training.benchmarks.cpm.pytorch.model import Cpm
from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION


class CpmBenchmark(TrainingBenchmark[Config]):
    name = "cpm"
    data = data
    step_names: ClassVar[Mapping[str, str]] = {"embedding_average": "eval_embedding_average"}
    final_names: ClassVar[Mapping[str, str]] = {"final_mlm_accuracy": "eval_embedding_average"}
    # FlagPerf, training/benchmarks/cpm/pytorch/dataloaders/dataloader.py.
    published_md5: ClassVar[Mapping[str, str]] = {
        "train.txt": "65bdbb2b3a8d3b61dbe63ea1a67eec62",
        "valid.txt": "b7d8356e0d921b512f9b6860138f2174",
    }
    # Torch has a flash kernel of its own for causal masks.
    attentions = ("sdpa", FLASH_ATTENTION, "eager")

    def build_model(self, config: Config) -> Cpm:
        return Cpm(config)


if __name__ == "__main__":
    run_training(CpmBenchmark(), Config)
