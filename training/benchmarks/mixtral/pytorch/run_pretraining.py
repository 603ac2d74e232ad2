"""Runs a rank of Mixtral pretraining: `torchrun ... -m training.benchmarks.mixtral.pytorch.run_pretraining -- ...`."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.llama.pytorch import run_pretraining as llama
from training.benchmarks.mixtral.pytorch.config import Config
from training.benchmarks.mixtral.pytorch.model import Mixtral


class MixtralBenchmark(llama.LlamaBenchmark):
    """LLaMA's training with Mixtral's model: experts in the place of dense layers."""

    name = "mixtral"
    training_facts = frozenset({"router_aux_loss_coef"})

    def build_model(self, config: Any) -> Mixtral:
        return Mixtral(config)

    def published_facts(self, config: Any) -> Mapping[str, JsonValue]:
        return {
            **super().published_facts(config),
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "num_experts_per_tok": config.experts_per_token,
            "num_local_experts": config.num_experts,
            "router_aux_loss_coef": config.router_aux_loss_coef,
            "sliding_window": None,
        }

    def published_names(self, config: Any) -> Mapping[str, tuple[str, ...]]:
        """Names of parameters in Mixtral's files: w1 is the gate, w3 up, w2 down, each of one expert."""
        found: dict[str, tuple[str, ...]] = {}
        for number in range(config.num_layers):
            mine, theirs = (f"model.layers.{number}.{name}" for name in ("mlp", "block_sparse_moe"))
            experts = [f"{theirs}.experts.{expert}" for expert in range(config.num_experts)]
            found[f"{mine}.gate.weight"] = (f"{theirs}.gate.weight",)
            for name, parts in (("gate_up_proj", ("w1", "w3")), ("down_proj", ("w2",))):
                found[f"{mine}.experts.{name}"] = tuple(f"{each}.{part}.weight" for each in experts for part in parts)
        return found


if __name__ == "__main__":
    run_training(MixtralBenchmark(), Config)
