"""GLM in plain torch: pre-norm layers, positions in two dimensions, a prefix that all may see. Names are Megatron's."""

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.model.layers import PreNormBlock, PreNormModel
from training.benchmarks.driver.training.model.model import LOSS, Batch, metric
from training.benchmarks.glm.pytorch.config import Config

_FLATTENED = ("text", "position", "context_length", "answer_positions", "answer_tokens")


class Transformer(nn.Module):
    """Position embeddings, layers and the last norm; a position table has one row more than there are positions."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        rows = config.max_position_embeddings + 1
        self.position_embeddings = nn.Embedding(rows, config.hidden_size)
        self.block_position_embeddings = nn.Embedding(rows, config.hidden_size)
        self.layers = nn.ModuleList(PreNormBlock(config) for _ in range(config.num_layers))
        self.final_layernorm = nn.LayerNorm(config.hidden_size)


class Glm(PreNormModel):
    """The model as a classifier: an answer's score is the log-probability of its tokens after the question.

    The loss is the cross entropy of the right choice (the first, in training) among all. Metrics: eval_accuracy, the
    fraction of samples whose best-scored choice is right, and eval_loss.
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.embedding_dropout = nn.Dropout(config.hidden_dropout)
        self.transformer = Transformer(config)

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """`batch` of b samples with c choices of s tokens, a of them answered:

        text (b, c, s); position (b, c, 2, s); context_length (b, c), tokens that all may see; answer_positions and
        answer_tokens (b, c, a), the positions and tokens of the answer; answer_mask (b, c, a) bool; choice_mask (b, c)
        bool, True for real choices; is_right (b, c) bool.
        """
        log_probabilities = self._log_probabilities(*(batch[name].flatten(0, 1) for name in _FLATTENED))
        per_token = log_probabilities.view_as(batch["answer_tokens"]) * batch["answer_mask"]
        scores = per_token.sum(-1).masked_fill(~batch["choice_mask"], -torch.inf)
        is_right = batch["is_right"]
        # The right choice is the first in training; of several right ones in evaluation the first counts for the loss.
        labels = is_right.int().argmax(-1)
        loss = nn.functional.cross_entropy(scores, labels)
        if self.training:
            return {LOSS: loss}
        chosen = is_right.gather(1, scores.argmax(-1, keepdim=True))
        samples = len(labels)
        return {
            LOSS: loss,
            "eval_loss": metric(loss * samples, samples),
            "eval_accuracy": metric(chosen.sum(), samples),
        }

    def _log_probabilities(
        self, text: Tensor, position: Tensor, context_length: Tensor, answer_positions: Tensor, answer_tokens: Tensor
    ) -> Tensor:
        """The answers' log-probabilities, (n, a) float32: text (n, s), position (n, 2, s), context_length (n,)."""
        places = self.transformer.position_embeddings(position[:, 0])
        places = places + self.transformer.block_position_embeddings(position[:, 1])
        hidden = self.embedding_dropout(self.word_embeddings(text) + places)
        columns = torch.arange(text.shape[1], device=text.device)
        mask = (columns[None, :] <= columns[:, None]) | (columns[None, None, :] < context_length[:, None, None])
        for block in self.blocks():
            hidden = self.run_block(block, hidden, mask[:, None])
        hidden = self.transformer.final_layernorm(hidden)
        answered = hidden.gather(1, answer_positions[:, :, None].expand(-1, -1, hidden.shape[-1]))
        logits = nn.functional.linear(answered, self.word_embeddings.weight).float()
        losses = nn.functional.cross_entropy(logits.flatten(0, 1), answer_tokens.flatten(), reduction="none")
        return -losses.view_as(answer_tokens)
