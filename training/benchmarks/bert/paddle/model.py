"""BERT for pretraining in Paddle: post-norm encoder, both heads. Names are Hugging Face's, as in PyTorch's model."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as functional
from paddle import nn

from training.benchmarks.bert.settings import BertSettings
from training.benchmarks.driver.training.data.hdf5 import Array

_NORM_EPS = 1e-12
_IGNORED = 0  # label of an unused masked position
_INIT_STD = 0.02

Tensors = dict[str, Any]
"""Named tensors of Paddle, which has no types, with the samples along the first dimension."""


class PaddleEmbeddings(nn.Layer):
    """Sum of token, position and segment embeddings, normalized."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(2, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, epsilon=_NORM_EPS)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, tokens: Any, segments: Any) -> Any:
        """Takes tokens and segments of shape (batch, seq); returns (batch, seq, hidden_size)."""
        positions = self.position_embeddings.weight[: tokens.shape[1]]
        embedded = self.word_embeddings(tokens) + positions + self.token_type_embeddings(segments)
        return self.dropout(self.LayerNorm(embedded))


class _SelfAttention(nn.Layer):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)


class _AddAndNorm(nn.Layer):
    """A matrix, dropout, the residual and the norm after it."""

    def __init__(self, inner: int, size: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, size)
        self.LayerNorm = nn.LayerNorm(size, epsilon=_NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Any, residual: Any) -> Any:
        return self.LayerNorm(self.dropout(self.dense(hidden)) + residual)


class PaddleAttention(nn.Layer):
    """Multi-head self-attention, post-norm."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.num_heads = config.num_attention_heads
        self.attention_dropout = config.attention_dropout
        self.self = _SelfAttention(config.hidden_size)
        self.output = _AddAndNorm(config.hidden_size, config.hidden_size, config.hidden_dropout)

    def forward(self, hidden: Any, mask: Any) -> Any:
        """(batch, seq, hidden_size), as the result; `mask`: bool (batch, 1, 1, seq), False for padding."""
        batch, length, size = hidden.shape
        query, key, value = (
            projection(hidden).reshape([batch, length, self.num_heads, size // self.num_heads])
            for projection in (self.self.query, self.self.key, self.self.value)
        )
        attended = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=self.attention_dropout, training=self.training
        )
        return self.output(attended.reshape([batch, length, size]), hidden)


class PaddleLayer(nn.Layer):
    """One transformer layer."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.attention = PaddleAttention(config)
        self.intermediate = nn.LayerDict({"dense": nn.Linear(config.hidden_size, config.ffn_hidden_size)})
        self.output = _AddAndNorm(config.ffn_hidden_size, config.hidden_size, config.hidden_dropout)

    def forward(self, hidden: Any, mask: Any) -> Any:
        """Shapes as in PaddleAttention: (batch, seq, hidden_size)."""
        attended = self.attention(hidden, mask)
        return self.output(functional.gelu(self.intermediate["dense"](attended)), attended)


class _Encoder(nn.Layer):
    """The model without the heads."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.embeddings = PaddleEmbeddings(config)
        self.encoder = nn.LayerDict({"layer": nn.LayerList([PaddleLayer(config) for _ in range(config.num_layers)])})
        self.pooler = nn.LayerDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})


class _MaskedTokens(nn.Layer):
    """Masked tokens: a transformed hidden state against the embeddings."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.bias = self.create_parameter([config.vocab_size], is_bias=True)
        self.transform = nn.LayerDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, epsilon=_NORM_EPS),
            }
        )

    def forward(self, hidden: Any, embeddings: Any) -> Any:
        transformed = self.transform["LayerNorm"](functional.gelu(self.transform["dense"](hidden)))
        return paddle.matmul(transformed, embeddings, transpose_y=True) + self.bias


class _BothHeads(nn.Layer):
    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.predictions = _MaskedTokens(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class PaddleBert(nn.Layer):
    """Metrics: eval_loss (of both heads) and eval_mlm_accuracy, the fraction of masked tokens predicted correctly."""

    def __init__(self, config: BertSettings) -> None:
        super().__init__()
        self.bert = _Encoder(config)
        self.cls = _BothHeads(config)

    def forward(self, batch: Tensors) -> Tensors:
        """`batch`, all int64: input_ids, input_mask, segment_ids (batch, seq); masked_lm_positions and masked_lm_ids
        (batch, predictions), where a label of 0 is unused; next_sentence_labels (batch,).

        Returns the loss, 0-d, and without training for each metric its sum and count, float32, shape (2,).
        """
        hidden = self.bert.embeddings(batch["input_ids"], batch["segment_ids"])
        mask = (batch["input_mask"] != 0).unsqueeze([1, 2])
        for layer in self.bert.encoder["layer"]:
            hidden = layer(hidden, mask)
        positions = batch["masked_lm_positions"].unsqueeze(-1)
        chosen = paddle.take_along_axis(hidden, positions, axis=1)
        logits = self.cls.predictions(chosen, self.bert.embeddings.word_embeddings.weight)
        pooled = paddle.tanh(self.bert.pooler["dense"](hidden[:, 0]))
        labels = batch["masked_lm_ids"]
        mlm_loss = functional.cross_entropy(
            logits.flatten(0, 1).astype("float32"), labels.flatten(), ignore_index=_IGNORED, reduction="sum"
        )
        count = (labels != _IGNORED).sum()
        next_sentence = functional.cross_entropy(
            self.cls.seq_relationship(pooled).astype("float32"), batch["next_sentence_labels"]
        )
        # A batch without any mask has no masked-token loss.
        loss = mlm_loss / count.clip(min=1).astype("float32") + next_sentence
        if self.training:
            return {"loss": loss}
        found = ((logits.argmax(-1) == labels) & (labels != _IGNORED)).sum()
        samples = len(labels)
        return {
            "loss": loss,
            "eval_loss": paddle.stack([loss * samples, paddle.to_tensor(float(samples))]),
            "eval_mlm_accuracy": paddle.stack([found.astype("float32"), count.astype("float32")]),
        }


def fill(model: PaddleBert, seed: int, weights: Mapping[str, Array] | None) -> None:
    """Give every parameter its `weights`, which have PyTorch's shapes (by name), or else its initial values: normal
    with a standard deviation of 0.02 for matrices, ones for the weights of norms, zeros for biases.
    """
    generator = np.random.default_rng([seed, 3])
    for name, parameter in sorted(model.named_parameters()):
        if weights is not None:
            value = weights[name].T if is_transposed(name) else weights[name]
        elif len(parameter.shape) > 1:
            value = generator.standard_normal(parameter.shape, dtype=np.float32) * _INIT_STD
        else:
            value = np.full(parameter.shape, 0.0 if name.endswith("bias") else 1.0, dtype=np.float32)
        parameter.set_value(np.ascontiguousarray(value, dtype=np.float32))


def is_transposed(name: str) -> bool:
    """Whether this parameter is the matrix of a linear layer: Paddle's have the shape (inputs, outputs)."""
    return name.endswith(".weight") and "embeddings." not in name and "LayerNorm." not in name


def shapes(model: PaddleBert) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter as PyTorch has it, by name."""
    return {
        name: tuple(reversed(parameter.shape)) if is_transposed(name) else tuple(parameter.shape)
        for name, parameter in model.named_parameters()
    }
