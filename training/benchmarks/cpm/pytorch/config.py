"""Settings of CPM pretraining. Needs no torch: the controller validates case configs with it."""

from typing import Self

from pydantic import Field, model_validator

from training.benchmarks.driver.training.settings.settings import (
    TrainingConfig,
    pre_norm_flops,
    pre_norm_parameters,
    refuse_above,
)

ENTRY_MODULE = "training.benchmarks.cpm.pytorch.run_pretraining"


class Config(TrainingConfig):
    """CPM (Zhang et al. 2020), a GPT-2 on Chinese text; the defaults are CPM-1-medium's sizes."""

    target_settings = (
        ("target_embedding_average", "eval_embedding_average", True), ("target_loss", "eval_loss", False),
    )  # fmt: skip

    vocab_size: int = Field(30000, ge=8, description="number of distinct tokens")
    max_position_embeddings: int = Field(1024, ge=2, description="positions that have an embedding")
    seq_length: int = Field(200, ge=2, description="tokens of a sample that the model reads")
    hidden_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of embeddings and layer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of the attention weights")
    synthetic_tokens: int = Field(100, ge=2, description="number of distinct tokens in the synthetic data")
    synthetic_noise: float = Field(0.03, ge=0, le=1, description="part of the synthetic data's tokens that are random")
    train_file: str = Field("train.txt", description="training text in data_dir: one document a line, UTF-8")
    eval_file: str = Field("valid.txt", description="evaluation text in data_dir")
    vocab_file: str = Field("chinese_vocab.model", description="sentencepiece model in data_dir")
    target_embedding_average: float | None = Field(
        None, gt=-1, le=1, description="similarity to reach (an untrained model has 0.8 already: set target_loss, too)"
    )
    target_loss: float | None = Field(None, gt=0, description="evaluation loss to reach")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        refuse_above(self, "seq_length", "max_position_embeddings")
        if self.data == "synthetic":
            refuse_above(self, "synthetic_tokens", "vocab_size")
        return self

    @model_validator(mode="after")
    def _target_is_strong(self) -> Self:
        if self.target_embedding_average is not None and self.target_loss is None:
            raise ValueError("target_embedding_average alone tells little; set target_loss beside it")
        return self

    def tokens_per_sample(self) -> int:
        return self.seq_length

    def parameters(self) -> int:
        """Number of the model's parameters; the output shares the embedding's matrix."""
        embeddings = (self.vocab_size + self.max_position_embeddings) * self.hidden_size
        return embeddings + pre_norm_parameters(self.num_layers, self.hidden_size)

    def flops_per_sample(self) -> int:
        """Operations of a sample, forward and backward, which takes twice those of the forward pass."""
        layers = pre_norm_flops(self, self.seq_length)
        return 3 * (layers + 2 * self.seq_length * self.hidden_size * self.vocab_size)

    def uses_package(self, name: str) -> bool:
        """Whether ranks import the package; jieba cuts words where text is read."""
        return name != "jieba" or self.data == "files"
