"""Runs a rank of BERT pretraining: `torchrun ... -m training.benchmarks.bert.pytorch.run_pretraining -- ...`."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from training.benchmarks.bert.pytorch import data
from training.benchmarks.bert.pytorch.config import Config
from training.benchmarks.bert.pytorch.model import Bert
from training.benchmarks.bert.pytorch.packed import COUNTED, is_packed, packed_sizes, padded_sizes
from training.benchmarks.driver.training.benchmark import TrainingBenchmark
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.training.rank_entry import run_training
from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION

_PREFIXES = ("module.", "bert_model_segment.", "heads_only_segment.")
_OF_VOCABULARY = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")


class BertBenchmark(TrainingBenchmark[Config]):
    name = "bert"
    data = data
    # With a padding mask torch cannot use its flash kernel; flash-attn skips the padding.
    attentions = (FLASH_ATTENTION, "sdpa", "eager")
    throughput_unit = "sps"
    counted = COUNTED

    def build_model(self, config: Config) -> Bert:
        return Bert(config)

    def work_of(self, config: Config, batches: Sequence[Batch]) -> tuple[int, int | Tensor, int | Tensor]:
        per_token, per_pair, per_prediction, per_sample = config.flops_of_parts()
        samples, tokens, predictions, squares = (packed_sizes if is_packed(batches[0]) else padded_sizes)(batches)
        of_parts = tokens * per_token + predictions * per_prediction + samples * per_sample
        return samples, tokens, squares * per_pair + of_parts

    def weights_of(self, config: Config, state: Any) -> Any:
        """MLPerf's or FlagPerf's checkpoint, or a state dict of Hugging Face's BertForPreTraining.

        They have BERT's 30522 tokens; further rows up to vocab_size are filled with zeros.
        """
        weights = {}
        for name, tensor in super().weights_of(config, state).items():
            for prefix in _PREFIXES:
                name = name.removeprefix(prefix)
            missing = config.vocab_size - len(tensor) if name in _OF_VOCABULARY else 0
            if missing > 0:
                padding = (0, 0) * (tensor.ndim - 1) + (0, missing)
                tensor = nn.functional.pad(tensor, padding)
            weights[name] = tensor
        return weights


if __name__ == "__main__":
    run_training(BertBenchmark(), Config)
