"""CPM in plain torch: GPT-2's decoder with learned positions and tied output. Names are Megatron's."""

import torch
from torch import Tensor, nn

from training.benchmarks.cpm.pytorch.config import Config
from training.benchmarks.driver.training.model.layers import PreNormBlock, PreNormModel
from training.benchmarks.driver.training.model.model import LOSS, Batch, metric


class CpmDecoder(nn.Module):
    """The layers and the last norm."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.layers = nn.ModuleList(PreNormBlock(config) for _ in range(config.num_layers))
        self.final_layernorm = nn.LayerNorm(config.hidden_size)


class Cpm(PreNormModel):
    """The language model. Metrics: eval_loss, the mean cross entropy per token in nats, and eval_embedding_average.

    The latter is FlagPerf's target: the cosine between the mean embedding of a sample's predicted tokens and that of
    its true tokens (without padding), averaged over the samples.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.embedding_dropout = nn.Dropout(config.hidden_dropout)
        self.transformer = CpmDecoder(config)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`batch`: tokens (batch, seq + 1) int64, its last `seq` columns the labels; loss_mask (batch, seq) float32."""
        inputs, labels, mask = batch["tokens"][:, :-1], batch["tokens"][:, 1:], batch["loss_mask"].float()
        positions = torch.arange(inputs.shape[1], device=inputs.device)
        hidden = self.embedding_dropout(self.word_embeddings(inputs) + self.position_embeddings(positions))
        for block in self.blocks():
            hidden = self.run_block(block, hidden, None)
        logits = nn.functional.linear(self.transformer.final_layernorm(hidden), self.word_embeddings.weight)
        losses = nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="none")
        total, count = (losses * mask.flatten()).sum(), mask.sum()
        results = {LOSS: total / count}
        if not self.training:
            similarity = self._similarity(logits.argmax(-1), labels, mask)
            results["eval_loss"] = metric(total, count)
            results["eval_embedding_average"] = metric(similarity.sum(), len(similarity))
        return results

    def _similarity(self, predicted: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Cosine of the mean embeddings of each sample: (batch,) from tokens of shape (batch, seq)."""
        means = [
            (self.word_embeddings(tokens).float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            for tokens in (predicted, labels)
        ]
        return nn.functional.cosine_similarity(means[0], means[1], dim=-1)
