"""BERT for pretraining in plain torch: post-norm encoder, both heads. Names are Hugging Face's."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from training.benchmarks.bert.pytorch.config import Config
from training.benchmarks.bert.pytorch.packed import IGNORED, read_packed
from training.benchmarks.driver.training.model.attention import Packing, attend, attend_packed
from training.benchmarks.driver.training.model.model import LOSS, Batch, BenchmarkModel, metric
from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION

_NORM_EPS = 1e-12


class PostNorm(nn.LayerNorm):
    """A norm whose result is a residual, too: under autocast torch's is float32, Transformer Engine's would have 16
    bits.
    """


class Embeddings(nn.Module):
    """Sum of token, position and segment embeddings, normalized."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(2, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=_NORM_EPS)
        self.dropout = nn.Dropout(config.hidden_dropout)

    def forward(self, tokens: Tensor, segments: Tensor, packed: Packing | None) -> Tensor:
        """Tokens and segments (batch, seq) to (batch, seq, hidden_size), packed: (tokens, hidden_size)."""
        if packed is None:
            positions = self.position_embeddings.weight[: tokens.shape[1]]
        else:
            positions = self.position_embeddings(packed.places % packed.longest)
            tokens, segments = (each.flatten()[packed.places] for each in (tokens, segments))
        embedded = self.word_embeddings(tokens) + positions + self.token_type_embeddings(segments)
        result: Tensor = self.dropout(self.LayerNorm(embedded))
        return result


class _Projections(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.query = nn.Linear(size, size)
        self.key = nn.Linear(size, size)
        self.value = nn.Linear(size, size)


class _AddAndNorm(nn.Module):
    """A matrix, dropout, the residual and the norm after it."""

    def __init__(self, inner: int, size: int, dropout: float) -> None:
        super().__init__()
        self.dense = nn.Linear(inner, size)
        self.LayerNorm = PostNorm(size, eps=_NORM_EPS)
        self.dropout = nn.Dropout(dropout)

    def forward(self, hidden: Tensor, residual: Tensor) -> Tensor:
        result: Tensor = self.LayerNorm(self.dropout(self.dense(hidden)) + residual)
        return result


class BertAttention(nn.Module):
    """Multi-head self-attention, post-norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.implementation = config.attention
        self.num_heads = config.num_attention_heads
        self.dropout = config.attention_dropout
        self.self = _Projections(config.hidden_size)
        self.output = _AddAndNorm(config.hidden_size, config.hidden_size, config.hidden_dropout)

    def forward(self, hidden: Tensor, mask: Tensor | Packing) -> Tensor:
        """`hidden` has shape (batch, seq, hidden_size), as the result; `mask` is boolean, (batch, 1, 1, seq), True for
        tokens that are no padding. With a Packing instead `hidden` has shape (tokens, hidden_size).
        """
        query, key, value = (
            projection(hidden).unflatten(-1, (self.num_heads, -1))
            for projection in (self.self.query, self.self.key, self.self.value)
        )
        dropout = self.dropout if self.training else 0.0
        if isinstance(mask, Packing):
            attended = attend_packed(self.implementation, query, key, value, mask, dropout=dropout)
        else:
            by_head = (heads.transpose(1, 2) for heads in (query, key, value))
            attended = attend(self.implementation, *by_head, mask=mask, dropout=dropout).transpose(1, 2)
        result: Tensor = self.output(attended.flatten(-2), hidden)
        return result


class BertLayer(nn.Module):
    """One transformer layer."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = BertAttention(config)
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.ffn_hidden_size)})
        self.output = _AddAndNorm(config.ffn_hidden_size, config.hidden_size, config.hidden_dropout)

    def forward(self, hidden: Tensor, mask: Tensor | Packing) -> Tensor:
        """Shapes as in BertAttention: (batch, seq, hidden_size) or (tokens, hidden_size)."""
        attended = self.attention(hidden, mask)
        result: Tensor = self.output(nn.functional.gelu(self.intermediate["dense"](attended)), attended)
        return result


class Encoder(nn.Module):
    """The model without the heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(BertLayer(config) for _ in range(config.num_layers))})
        self.pooler = nn.ModuleDict({"dense": nn.Linear(config.hidden_size, config.hidden_size)})


class _Predictions(nn.Module):
    """Masked tokens: a transformed hidden state against the embeddings."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.transform = nn.ModuleDict(
            {
                "dense": nn.Linear(config.hidden_size, config.hidden_size),
                "LayerNorm": nn.LayerNorm(config.hidden_size, eps=_NORM_EPS),
            }
        )

    def forward(self, hidden: Tensor, embeddings: Tensor) -> Tensor:
        transformed = self.transform["LayerNorm"](nn.functional.gelu(self.transform["dense"](hidden)))
        return nn.functional.linear(transformed, embeddings, self.bias)


class Heads(nn.Module):
    """Both heads of the pretraining."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.predictions = _Predictions(config)
        self.seq_relationship = nn.Linear(config.hidden_size, 2)


class Bert(BenchmarkModel):
    """Metrics: eval_loss (of both heads) and eval_mlm_accuracy, the fraction of masked tokens predicted correctly."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.bert = Encoder(config)
        self.cls = Heads(config)

    def blocks(self) -> Sequence[nn.Module]:
        return [*self.bert.encoder["layer"].children()]

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`batch`, all int64: input_ids, input_mask, segment_ids (batch, seq); masked_lm_positions and masked_lm_ids
        (batch, predictions), where a label of 0 is unused; next_sentence_labels (batch,). Without padding also what
        `packed` adds to it: only then nothing here waits for the device.
        """
        is_there, positions = batch["input_mask"] != 0, batch["masked_lm_positions"]
        labels, samples = batch["masked_lm_ids"], len(is_there)
        packed: Packing | None = None
        if self.config.unpad or self.config.attention == FLASH_ATTENTION:
            packed, label_rows, labels = read_packed(batch)
        hidden = self.bert.embeddings(batch["input_ids"], batch["segment_ids"], packed)
        for block in self.blocks():
            hidden = self.run_block(block, hidden, is_there[:, None, None, :] if packed is None else packed)
        if packed is None:
            masked = hidden.gather(1, positions[:, :, None].expand(-1, -1, hidden.shape[-1]))
            first = hidden[:, 0]
        else:
            masked = hidden[label_rows]
            first = hidden[packed.boundaries[:-1]]
        logits = self.cls.predictions(masked, self.bert.embeddings.word_embeddings.weight)
        pooled = torch.tanh(self.bert.pooler["dense"](first))
        mlm_loss = nn.functional.cross_entropy(
            logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        count = (labels != IGNORED).sum()
        next_sentence = nn.functional.cross_entropy(
            self.cls.seq_relationship(pooled).float(), batch["next_sentence_labels"]
        )
        # A batch without any mask has no masked-token loss.
        loss = mlm_loss / count.clamp(min=1) + next_sentence
        if self.training:
            return {LOSS: loss}
        found = ((logits.argmax(-1) == labels) & (labels != IGNORED)).sum()
        return {LOSS: loss, "eval_loss": metric(loss * samples, samples), "eval_mlm_accuracy": metric(found, count)}
