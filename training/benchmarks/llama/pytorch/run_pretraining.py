"""Runs a rank of LLaMA pretraining: `torchrun ... -m training.benchmarks.llama.pytorch.run_pretraining -- ...`."""

from collections.abc import Mapping

from pydantic import JsonValue

from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION
from training.benchmarks.llama.pytorch import data
from training.benchmarks.llama.pytorch.config import Config
from training.benchmarks.llama.pytorch.model import Llama


class LlamaBenchmark(TrainingBenchmark[Config]):
    name = "llama"
    data = data
    # Torch has a flash kernel of its own for causal masks.
    attentions = ("sdpa", FLASH_ATTENTION, "eager")

    def build_model(self, config: Config) -> Llama:
        return Llama(config)

    def published_facts(self, config: Config) -> Mapping[str, JsonValue]:
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "hidden_size": config.hidden_size,
            "intermediate_size": config.ffn_hidden_size,
            "num_attention_heads": config.num_attention_heads,
            "num_hidden_layers": config.num_layers,
            "num_key_value_heads": config.num_key_value_heads,
            "rms_norm_eps": config.norm_eps,
            "rope_theta": config.rope_theta,
            "rope_scaling": None,
            "tie_word_embeddings": False,
            "vocab_size": config.vocab_size,
        }


if __name__ == "__main__":
    run_training(LlamaBenchmark(), Config)
