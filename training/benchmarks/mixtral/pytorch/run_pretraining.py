"""Runs a rank of Mixtral pretraining: `torchrun ... -m training.benchmarks.mixtral.pytorch.run_pretraining -- ...`."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.llama.pytorch import run_pretraining as llama
from training.benchmarks.mixtral.pytorch.config import Config
from training.benchmarks.mixtral.pytorch.model import Mixtral


class MixtralBenchmark(llama.LlamaBenchmark):
    """See TrainingBenchmark."""

    name = "mixtral"

    def build_model(self, config: Any) -> Mixtral:
        """See TrainingBenchmark."""
        return Mixtral(config)

    def published_facts(self, config: Any) -> Mapping[str, JsonValue]:
        """See TrainingBenchmark."""
        return {
            **super().published_facts(config),
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_experts_per_tok": config.experts_per_token,
            "num_local_experts": config.num_experts,
            "router_aux_loss_coef": config.router_aux_loss_coef,
            "sliding_window": None,
        }


if __name__ == "__main__":
    run_training(MixtralBenchmark(), Config)
