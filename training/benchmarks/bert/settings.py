"""Settings of BERT pretraining in any framework. Needs no torch: the controller validates case configs with them."""

from typing import Literal, Self

from pydantic import Field, model_validator

from training.benchmarks.driver.training.settings.settings import (
    FLASH_ATTENTION,
    TrainingConfig,
    refuse_above,
    transformer_flops,
)

# Tokens of the synthetic data: padding, [CLS], [SEP], [MASK].
SPECIAL_TOKENS = 4


class BertSettings(TrainingConfig):
    """BERT (Devlin et al. 2019) with masked tokens and next sentences; the defaults are BERT-Large's sizes."""

    target_settings = (("target_mlm_accuracy", "eval_mlm_accuracy", True),)

    ffn_hidden_size: int = Field(4096, ge=1, description="inner width of the feed-forward layers")
    vocab_size: int = Field(30528, ge=8, description="number of distinct tokens (BERT's 30522, padded to 8)")
    max_position_embeddings: int = Field(512, ge=2, description="positions that have an embedding")
    max_seq_length: int = Field(512, ge=16, description="tokens of a sample")
    max_predictions_per_seq: int = Field(76, ge=1, description="masked tokens of a sample at most")
    hidden_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of embeddings and layer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of the attention weights")
    synthetic_tokens: int = Field(100, ge=2, description="number of distinct tokens in the synthetic data")
    unpad: bool = Field(False, description="whether the encoder leaves padding out (flash-attn always does)")
    synthetic_lengths: Literal["full", "wikipedia"] = Field(
        "full", description="tokens of synthetic samples: max_seq_length, or distributed as in BERT's Wikipedia"
    )
    train_files: str = Field("2048_shards_uncompressed/part*.hdf5", description="training shards in data_dir (pattern)")
    eval_file: str = Field("eval_set_uncompressed/part_eval_10k.hdf5", description="evaluation samples in data_dir")
    target_mlm_accuracy: float | None = Field(None, gt=0, le=1, description="fraction of masked tokens to predict")

    optimizer: Literal["adamw", "adam", "lamb"] = Field("lamb", description="adam: weight decay is part of the loss")
    eps: float = Field(1e-6, gt=0, description="added to the root of the second moment")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        refuse_above(self, "max_seq_length", "max_position_embeddings")
        if self.max_predictions_per_seq > self.max_seq_length - 3:
            raise ValueError(
                f"max_predictions_per_seq = {self.max_predictions_per_seq}; allowed: up to max_seq_length - 3"
            )
        if self.data == "synthetic" and self.synthetic_tokens + SPECIAL_TOKENS > self.vocab_size:
            raise ValueError(
                f"synthetic_tokens = {self.synthetic_tokens}; allowed: up to vocab_size - {SPECIAL_TOKENS}"
            )
        return self

    def varying_shapes(self) -> str | None:
        is_packed = self.unpad or self.attention == FLASH_ATTENTION
        return "without padding every micro-batch has another number of tokens" if is_packed else None

    def tokens_per_sample(self) -> int:
        return self.max_seq_length

    def parameters(self) -> int:
        """Number of the model's parameters; the head of masked tokens shares the embedding's matrix."""
        size, inner = self.hidden_size, self.ffn_hidden_size
        layer = 4 * size * (size + 1) + (size + 1) * inner + (inner + 1) * size + 4 * size
        embeddings = (self.vocab_size + self.max_position_embeddings + 2) * size + 2 * size
        heads = 2 * size * (size + 1) + 2 * size + self.vocab_size + 2 * (size + 1)
        return embeddings + self.num_layers * layer + heads

    def flops_per_sample(self) -> int:
        """Operations, forward and backward, of max_seq_length tokens, max_predictions_per_seq of them masked."""
        per_token, per_pair, per_prediction, per_sample = self.flops_of_parts()
        length = self.max_seq_length
        return length * per_token + length**2 * per_pair + self.max_predictions_per_seq * per_prediction + per_sample

    def flops_of_parts(self) -> tuple[int, int, int, int]:
        """Operations of a token, of a pair of tokens (attention), of a masked token and of a sample, forward and
        backward, which takes twice those of the forward pass; only masked tokens use the vocabulary.
        """
        size = self.hidden_size
        one, two = (
            transformer_flops(
                seq_length=length,
                num_layers=self.num_layers,
                hidden_size=size,
                kv_size=size,
                ffn_size=self.ffn_hidden_size,
                ffn_matrices=2,
            )
            for length in (1, 2)
        )
        # They are a * length + b * length**2.
        per_pair = (two - 2 * one) // 2
        predicted, next_sentence = 2 * (size * size + size * self.vocab_size), 2 * (size * size + 2 * size)
        return 3 * (one - per_pair), 3 * per_pair, 3 * predicted, 3 * next_sentence
