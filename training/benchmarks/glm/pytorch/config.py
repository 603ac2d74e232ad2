"""Settings of GLM training. Needs no torch: the controller validates case configs with it."""

from typing import Self

from pydantic import Field, model_validator

from training.benchmarks.driver.training.settings.settings import (
    TrainingConfig,
    pre_norm_flops,
    pre_norm_parameters,
    refuse_above,
)

ENTRY_MODULE = "training.benchmarks.glm.pytorch.run_pretraining"

# Tokens of the synthetic data: padding, the mask that an answer replaces, the start of the answer.
SPECIAL_TOKENS = 3


class Config(TrainingConfig):
    """GLM (Du et al. 2022), trained to choose the right answer (ReCoRD); the defaults are GLM-Large's sizes."""

    target_settings = (("target_accuracy", "eval_accuracy", True),)

    vocab_size: int = Field(30592, ge=8, description="number of distinct tokens")
    max_position_embeddings: int = Field(512, ge=2, description="positions, and positions in an answer")
    max_seq_length: int = Field(512, ge=8, description="tokens of a choice: question and answer")
    num_choices: int = Field(10, ge=2, description="answers of a training sample: more are left out, fewer padded")
    answer_length: int = Field(
        8, ge=1, description="tokens of an answer: synthetic data's; about those of files (FLOPs)"
    )
    hidden_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of embeddings and layer outputs")
    attention_dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of the attention weights")
    synthetic_tokens: int = Field(100, ge=2, description="number of distinct tokens in the synthetic data")
    train_files: str = Field(
        "ReCoRD/glm_train_eval_hdf5_sparse/train_hdf5/*_sparse.hdf5", description="training files in data_dir (pattern)"
    )
    eval_files: str = Field(
        "ReCoRD/glm_train_eval_hdf5_sparse/eval_hdf5/*_sparse.hdf5", description="evaluation files (pattern)"
    )
    target_accuracy: float | None = Field(None, gt=0, le=1, description="part of samples whose answer is right")

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        refuse_above(self, "max_seq_length", "max_position_embeddings")
        if self.answer_length > self.max_seq_length - 2:
            raise ValueError(f"answer_length = {self.answer_length}; allowed: up to max_seq_length - 2")
        if self.data == "synthetic":
            if self.synthetic_tokens + SPECIAL_TOKENS > self.vocab_size:
                raise ValueError(
                    f"synthetic_tokens = {self.synthetic_tokens}; allowed: up to vocab_size - {SPECIAL_TOKENS}"
                )
            if self.num_choices > self.synthetic_tokens:
                raise ValueError(f"num_choices = {self.num_choices}; allowed: up to synthetic_tokens")
        return self

    def tokens_per_sample(self) -> int:
        """Tokens that the model reads for a sample: every choice is read together with the whole question."""
        return self.num_choices * self.max_seq_length

    def parameters(self) -> int:
        """Number of the model's parameters; the output shares the embedding's matrix."""
        embeddings = (self.vocab_size + 2 * (self.max_position_embeddings + 1)) * self.hidden_size
        return embeddings + pre_norm_parameters(self.num_layers, self.hidden_size)

    def flops_per_sample(self) -> int:
        """Operations of a sample, forward and, twice that, backward; only answers' tokens use the vocabulary."""
        layers = pre_norm_flops(self, self.max_seq_length)
        answer = 2 * self.answer_length * self.hidden_size * self.vocab_size
        return 3 * self.num_choices * (layers + answer)
