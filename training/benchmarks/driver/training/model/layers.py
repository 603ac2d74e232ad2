"""Layers that several models share. Names are Megatron's, whose checkpoints load unchanged."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.model.attention import attend
from training.benchmarks.driver.training.model.model import BenchmarkModel


class SelfAttention(nn.Module):
    """Multi-head self-attention, its three projections in one matrix; for `attention` see attention.attend."""

    def __init__(
        self, hidden_size: int, num_heads: int, *, attention: str, dropout: float, output_dropout: float
    ) -> None:
        super().__init__()
        self.attention = attention
        self.num_heads = num_heads
        self.dropout = dropout
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.output_dropout = nn.Dropout(output_dropout)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """`hidden` has shape (batch, seq, hidden_size), as the result; `mask` is boolean, (batch, 1, seq, seq), True
        where a query may look, or None for a causal mask.
        """
        batch, seq, size = hidden.shape
        heads = self.query_key_value(hidden).view(batch, seq, 3, self.num_heads, size // self.num_heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        dropout = self.dropout if self.training else 0.0
        attended = attend(self.attention, query, key, value, mask=mask, is_causal=mask is None, dropout=dropout)
        result: Tensor = self.output_dropout(self.dense(attended.transpose(1, 2).reshape(batch, seq, size)))
        return result


class FeedForward(nn.Module):
    """Two matrices with GELU (tanh approximation) between them."""

    def __init__(self, hidden_size: int, ffn_size: int, *, dropout: float) -> None:
        super().__init__()
        self.dense_h_to_4h = nn.Linear(hidden_size, ffn_size)
        self.dense_4h_to_h = nn.Linear(ffn_size, hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor) -> Tensor:
        """Takes and returns shape (..., hidden_size)."""
        inner = nn.functional.gelu(self.dense_h_to_4h(hidden), approximate="tanh")
        result: Tensor = self.dropout(self.dense_4h_to_h(inner))
        return result


class PreNormBlock(nn.Module):
    """A transformer layer that normalizes the input of attention and of feed-forward (GPT-2, GLM)."""

    def __init__(self, config: Any) -> None:
        """config: the settings of a model that have `attention_dropout` and `hidden_dropout`."""
        super().__init__()
        size, dropout = config.hidden_size, config.hidden_dropout
        self.input_layernorm = nn.LayerNorm(size)
        self.attention = SelfAttention(
            size, config.num_attention_heads, attention=config.attention, dropout=config.attention_dropout,
            output_dropout=dropout,
        )  # fmt: skip
        self.post_attention_layernorm = nn.LayerNorm(size)
        self.mlp = FeedForward(size, 4 * size, dropout=dropout)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """`hidden` has shape (batch, seq, hidden_size), as the result; `mask` as in SelfAttention."""
        hidden = hidden + self.attention(self.input_layernorm(hidden), mask)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class PreNormModel(BenchmarkModel):
    """A model whose `transformer` has PreNormBlocks as its `layers`, and whose weights begin as GPT-2's."""

    config: Any
    transformer: Any

    def blocks(self) -> Sequence[nn.Module]:
        return [*self.transformer.layers.children()]

    def initialize(self, name: str, parameter: Tensor, generator: torch.Generator) -> None:
        """Weights into the residual stream, of any shape, have a standard deviation of init_std / sqrt(2 * num_layers).

        Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2, 2019), section 2.3, with
        two residual layers per block as in Megatron-LM.
        """
        if name.endswith(("attention.dense.weight", "dense_4h_to_h.weight")):
            parameter.normal_(0.0, self.init_std / math.sqrt(2 * self.config.num_layers), generator=generator)
        else:
            super().initialize(name, parameter, generator)
