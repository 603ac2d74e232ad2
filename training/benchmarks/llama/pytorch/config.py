"""Settings of LLaMA pretraining. Needs no torch: the controller validates case configs with it."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from training.benchmarks.driver.training.settings.pipeline_settings import PipelineSettings
from training.benchmarks.driver.training.settings.settings import refuse_above, transformer_flops

ENTRY_MODULE = "training.benchmarks.llama.pytorch.run_pretraining"
FP8_MULTIPLE = 16
"""Of each size of a product, and of the tokens of a sample: the units take FP8 in vectors of 16 bytes."""


class Config(PipelineSettings):
    """LLaMA (Touvron et al. 2023); the defaults are LLaMA-2 7B's sizes."""

    target_settings = (("target_loss", "eval_loss", False),)

    num_layers: int = Field(32, ge=1, description="transformer layers")
    hidden_size: int = Field(4096, ge=1, description="width of the residual stream")
    num_attention_heads: int = Field(32, ge=1, description="heads of the queries")
    num_key_value_heads: int = Field(32, ge=1, description="heads of keys and values; fewer: grouped-query attention")
    ffn_hidden_size: int = Field(11008, ge=1, description="inner width of the feed-forward layers")
    vocab_size: int = Field(32000, ge=4, description="number of distinct tokens")
    seq_length: int = Field(4096, ge=2, description="tokens of a sample")
    norm_eps: float = Field(1e-5, gt=0, description="added to the mean square in RMSNorm")
    rope_theta: float = Field(10000.0, gt=0, description="base of the rotary embedding's wavelengths")
    init_std: float = Field(0.02, gt=0, description="standard deviation of the first weights of matrices")
    tensor_parallel_size: int = Field(1, ge=1, description="ranks that share each layer")
    sequence_parallel: bool = Field(False, description="whether these ranks share the sequence between layers, too")
    context_parallel_size: int = Field(1, ge=1, description="ranks that divide the sequence of each sample")
    fp8: Literal["tensorwise", "rowwise"] | None = Field(
        None, description="torchao's recipe for 8-bit products of the layers (not of the output); None: in `precision`"
    )
    synthetic_tokens: int = Field(100, ge=2, description="number of distinct tokens in the synthetic data")
    synthetic_noise: float = Field(0.03, ge=0, le=1, description="part of the synthetic data's tokens that are random")
    train_file: str = Field("train.npy", description="training tokens in data_dir: one array of integers")
    eval_file: str | None = Field("eval.npy", description="evaluation tokens in data_dir; None: nothing is evaluated")
    target_loss: float | None = Field(None, gt=0, description="evaluation loss to reach; None: speed is measured alone")

    beta2: float = Field(0.95, ge=0, lt=1, description="decay of the second moment")
    optimizer: Literal["adamw", "adam", "lamb"] = Field("adamw", description="adam: weight decay is part of the loss")

    @model_validator(mode="after")
    def _heads_fit(self) -> Self:
        heads, kv_heads, tp_size = self.num_attention_heads, self.num_key_value_heads, self.tensor_parallel_size
        if self.hidden_size % (2 * heads):
            raise ValueError(
                f"hidden_size = {self.hidden_size} is no even number for each of num_attention_heads = {heads}"
            )
        if heads % kv_heads:
            raise ValueError(f"num_attention_heads = {heads} is no multiple of num_key_value_heads = {kv_heads}")
        divided = {
            "num_key_value_heads": kv_heads,
            "ffn_hidden_size": self.ffn_hidden_size,
            "vocab_size": self.vocab_size,
        }
        if self.sequence_parallel:
            divided["seq_length"] = self.seq_length
        for key, value in divided.items():
            if value % tp_size:
                raise ValueError(f"{key} = {value} is no multiple of tensor_parallel_size = {tp_size}")
        if self.sequence_parallel and tp_size == 1:
            raise ValueError("sequence_parallel has no effect with tensor_parallel_size = 1")
        return self

    @model_validator(mode="after")
    def _sequence_can_be_divided(self) -> Self:
        ranks, tp_size = self.context_parallel_size, self.tensor_parallel_size
        if ranks == 1:
            return self
        problems = []
        shared = ranks * tp_size
        of = f"context_parallel_size = {ranks}" + (f" x tensor_parallel_size = {tp_size}" if tp_size > 1 else "")
        if self.seq_length % (shared if self.sequence_parallel else ranks):
            named = of if self.sequence_parallel else f"context_parallel_size = {ranks}"
            problems.append(f"seq_length = {self.seq_length} is no multiple of {named}")
        if self.num_attention_heads % shared:
            problems.append(f"num_attention_heads = {self.num_attention_heads} is no multiple of {of}")
        elif self.num_key_value_heads % shared and shared % self.num_key_value_heads:
            problems.append(f"num_key_value_heads = {self.num_key_value_heads} is no multiple and no part of {of}")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _fp8_fits(self) -> Self:
        if self.fp8 is None:
            return self
        if self.precision != "bf16":
            raise ValueError(f"fp8 = {self.fp8!r} needs precision 'bf16', which is {self.precision!r}")
        if self.tensor_parallel_size > 1:
            raise ValueError(f"fp8 = {self.fp8!r} needs tensor_parallel_size = 1, which is {self.tensor_parallel_size}")
        kv_size = self.hidden_size // self.num_attention_heads * self.num_key_value_heads
        sizes = {
            "hidden_size": self.hidden_size,
            "hidden_size / num_attention_heads * num_key_value_heads": kv_size,
            "ffn_hidden_size": self.ffn_hidden_size,
        }
        ranks = self.context_parallel_size
        sizes["seq_length" + " / context_parallel_size" * (ranks > 1)] = self.seq_length // ranks
        for key, value in sizes.items():
            if value % FP8_MULTIPLE:
                raise ValueError(f"{key} = {value} is no multiple of {FP8_MULTIPLE}, which fp8 = {self.fp8!r} needs")
        return self

    @model_validator(mode="after")
    def _synthetic_fits(self) -> Self:
        if self.data == "synthetic":
            refuse_above(self, "synthetic_tokens", "vocab_size")
        return self

    @model_validator(mode="after")
    def _what_is_evaluated_has_data(self) -> Self:
        if self.eval_file is None and self.data == "files":
            for key in ("target_loss", "eval_interval_samples"):
                if getattr(self, key) is not None:
                    raise ValueError(f"{key} = {getattr(self, key)} needs an evaluation; eval_file is None")
        return self

    def tokens_per_sample(self) -> int:
        return self.seq_length

    def flops_per_sample(self) -> int:
        """Operations of a sample, forward and backward, which takes twice those of the forward pass."""
        layers = transformer_flops(
            seq_length=self.seq_length,
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            kv_size=self.hidden_size // self.num_attention_heads * self.num_key_value_heads,
            ffn_size=self.ffn_hidden_size,
            ffn_matrices=3,
        )
        return 3 * (layers + 2 * self.seq_length * self.hidden_size * self.vocab_size)

    def parameters(self) -> int:
        size, kv_size = self.hidden_size, self.hidden_size // self.num_attention_heads * self.num_key_value_heads
        layer = 2 * size * (size + kv_size) + 3 * size * self.ffn_hidden_size + 2 * size
        return 2 * self.vocab_size * size + self.num_layers * layer + size

    def described_model(self) -> Mapping[str, int]:
        return {
            "hidden": self.hidden_size, "ffn": self.ffn_hidden_size, "layers": self.num_layers,
            "heads": self.num_attention_heads, "kv_heads": self.num_key_value_heads, "vocab": self.vocab_size,
            "seq": self.seq_length, "swiglu": 1, "tied_embeddings": 0,
        }  # fmt: skip

    def tensor_parallelism(self) -> tuple[int, bool]:
        return self.tensor_parallel_size, self.sequence_parallel

    def context_parallelism(self) -> int:
        return self.context_parallel_size

    def fp8_recipe(self) -> str | None:
        return self.fp8

    def uses_package(self, name: str) -> bool:
        return name != "torchao" or self.fp8 is not None
