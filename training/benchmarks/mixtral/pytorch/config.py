"""Settings of Mixtral pretraining. Needs no torch: the controller validates case configs with it."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field, model_validator

from training.benchmarks.llama.pytorch.config import Config as LlamaConfig

ENTRY_MODULE = "training.benchmarks.mixtral.pytorch.run_pretraining"


class Config(LlamaConfig):
    """Mixtral (Jiang et al. 2024); the defaults are the sizes of Mixtral 8x7B v0.1, which has no sliding window."""

    num_key_value_heads: int = Field(8, ge=1, description="heads of keys and values; fewer: grouped-query attention")
    ffn_hidden_size: int = Field(14336, ge=1, description="inner width of an expert")
    rope_theta: float = Field(1_000_000.0, gt=0, description="base of the rotary embedding's wavelengths")
    num_experts: int = Field(8, ge=1, description="feed-forward layers that the router of a layer chooses among")
    experts_per_token: int = Field(2, ge=1, description="experts that a token is sent to")
    router_aux_loss_coef: float = Field(
        0.02, ge=0, description="weight of the loss that is least where all experts get equally many tokens"
    )
    expert_parallel_size: int = Field(
        1, ge=1, description="data-parallel ranks that divide the experts of each layer between them"
    )

    @model_validator(mode="after")
    def _experts_fit(self) -> Self:
        mistakes = []
        if self.experts_per_token > self.num_experts:
            mistakes.append(
                f"experts_per_token = {self.experts_per_token}; allowed: up to num_experts = {self.num_experts}"
            )
        if self.num_experts % self.expert_parallel_size:
            mistakes.append(
                f"num_experts = {self.num_experts} is no multiple of expert_parallel_size = {self.expert_parallel_size}"
            )
        if self.expert_parallel_size > 1 and self.strategy != "fsdp":
            mistakes.append(
                f"expert_parallel_size = {self.expert_parallel_size} needs strategy = 'fsdp', which is"
                f" {self.strategy!r}"
            )
        if self.tensor_parallel_size > 1:
            mistakes.append(
                f"tensor_parallel_size = {self.tensor_parallel_size}: experts are not divided so; allowed: 1"
            )
        if self.pipeline_parallel_size > 1:
            mistakes.append(
                f"pipeline_parallel_size = {self.pipeline_parallel_size}: the router's loss is of all layers together;"
                " allowed: 1"
            )
        if self.fp8 is not None:
            mistakes.append(f"fp8 = {self.fp8!r}: torchao has no products of uneven groups of rows; allowed: None")
        if self.compile_backend not in (None, "auto"):
            mistakes.append(f"compile_backend = {self.compile_backend!r}: {_VARYING}; allowed: None, 'auto'")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def described_model(self) -> Mapping[str, int]:
        experts = {"experts": self.num_experts, "topk": self.experts_per_token, "moe_ffn": self.ffn_hidden_size}
        return {**super().described_model(), **experts}

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        found = super().refusal(nnodes=nnodes, nproc=nproc)
        mistakes = [] if found is None else [found]
        copies, rest = divmod(nnodes * nproc, self.expert_parallel_size)
        if rest:
            mistakes.append(
                f"expert_parallel_size = {self.expert_parallel_size} does not divide the {nnodes * nproc} ranks"
            )
        # FSDP2 divides an expert's matrices by rows among the ranks that have it.
        elif self.expert_parallel_size > 1 and (self.hidden_size % copies or 2 * self.ffn_hidden_size % copies):
            mistakes.append(
                f"expert_parallel_size = {self.expert_parallel_size} leaves {copies} ranks for each expert, which"
                f" do not divide both hidden_size = {self.hidden_size} and"
                f" 2 ffn_hidden_size = {2 * self.ffn_hidden_size}"
            )
        return "; ".join(mistakes) or None

    def expert_parallelism(self) -> int:
        return self.expert_parallel_size

    def varying_shapes(self) -> str | None:
        return _VARYING

    def flops_per_sample(self) -> int:
        """Operations of a sample, forward and backward; of the experts those alone that a token is sent to."""
        one_expert = super().flops_per_sample()
        others = (self.experts_per_token - 1) * self._expert_parameters() + self.hidden_size * self.num_experts
        return one_expert + 6 * self.seq_length * self.num_layers * others

    def parameters(self) -> int:
        others = (self.num_experts - 1) * self._expert_parameters() + self.hidden_size * self.num_experts
        return super().parameters() + self.num_layers * others

    def active_parameters(self, parameters: int) -> int:
        idle = self.num_layers * (self.num_experts - self.experts_per_token) * self._expert_parameters()
        return super().active_parameters(parameters) - idle

    def _expert_parameters(self) -> int:
        return 3 * self.hidden_size * self.ffn_hidden_size


_VARYING = "an expert has another number of tokens in each step"
