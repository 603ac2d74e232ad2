"""Mixtral: LLaMA's blocks with a mixture of experts in place of the feed-forward layer. Names are Hugging Face's."""

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.model.experts import (
    MixtureOfExperts,
    balance,
    has_grouped_products,
    mixtures,
)
from training.benchmarks.driver.training.model.model import LOSS, Batch
from training.benchmarks.driver.training.model.precision import DTYPES
from training.benchmarks.driver.training.model.recomputation import recomputed
from training.benchmarks.llama.pytorch.model import Llama, LlamaAttention
from training.benchmarks.mixtral.pytorch.config import Config

_ALIGNED = 8  # elements: CUDA multiplies groups whose rows are a multiple of 16 bytes
Routed = tuple[Tensor, Tensor, Tensor]


class MixtralBlock(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.self_attn = LlamaAttention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.norm_eps)
        self.mlp = MixtureOfExperts(
            config.num_experts, config.experts_per_token, config.hidden_size, config.ffn_hidden_size
        )

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> Routed:
        """Shapes as in LlamaAttention, and what MixtureOfExperts returns of its routing."""
        hidden, normed = self.attended(hidden, cos, sin)
        result, probabilities, counts = self.mlp(normed)
        return hidden + result, probabilities, counts

    def attended(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """The sum of `hidden` and its attention, and the norm of this sum, both of the shape of `hidden`."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), cos, sin)
        return hidden, self.post_attention_layernorm(hidden)


class Mixtral(Llama):
    """The language model. While training, its loss has the router's auxiliary loss in it."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.router_aux_loss_coef = config.router_aux_loss_coef
        self.model.layers = nn.ModuleDict({str(number): MixtralBlock(config) for number in range(config.num_layers)})
        self._dtype = DTYPES[config.precision]
        self._load: Tensor | None = None

    def make_constants(self, device: torch.device) -> None:
        super().make_constants(device)
        are_aligned = self.config.hidden_size % _ALIGNED == 0 == self.config.ffn_hidden_size % _ALIGNED
        is_grouped = are_aligned and has_grouped_products(device, self._dtype)
        for layer in mixtures(self):
            layer.experts.is_grouped = is_grouped

    def recompute_within(self) -> None:
        """Recompute inside of the blocks. Selective recomputation counts operators, of which FSDP2 has others the
        second time: what it does before and after the experts has to be outside.
        """
        if self.recompute != "selective":
            return super().recompute_within()
        for block in self.model.layers.children():
            assert isinstance(block, MixtralBlock)
            experts = block.mlp.experts
            block.attended = recomputed(self.recompute, block.attended)  # type: ignore[method-assign]
            experts.forward = recomputed(self.recompute, experts.forward)  # type: ignore[method-assign]
        self.recompute = "none"

    def figures(self) -> dict[str, float]:
        """`expert_load`, a ratio: the most loaded expert's tokens over the mean of its layer, in the mean of all
        layers, of all ranks' last micro-batch.
        """
        return {} if self._load is None else {"expert_load": float(self._load)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`batch`: tokens (batch, seq) int64; each token but the first is a label."""
        hidden = self.before_blocks(batch)
        probabilities, chosen = [], []
        for block in self.blocks():
            hidden, of_layer, counts = self.run_block(block, hidden, self.cos, self.sin)
            probabilities.append(of_layer)
            chosen.append(counts)
        result = self.after_blocks(hidden, batch)
        if self.training:
            counts = torch.stack(chosen).float()
            tokens = hidden.shape[0] * hidden.shape[1]
            auxiliary = balance(probabilities, counts, tokens, self.data_group)
            self._load = (counts.amax(1) / counts.mean(1)).mean()
            result[LOSS] = result[LOSS] + self.router_aux_loss_coef * auxiliary
        return result
