"""Divides the sequence of each sample over ranks, which for the attention exchange tokens for heads: all-to-all.

Torch's own context_parallel, a ring, knows CUDA's kernels alone. Here each rank has any kernel, on whole sequences.

Source: Jacobs et al., "DeepSpeed Ulysses: System Optimizations for Enabling Training of Extreme Long Sequence
Transformer Models" (2023), section 3.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single_autograd

from training.benchmarks.driver.training.model.attention import attend

UNLABELLED = -100
"""Label of a token that has none: cross_entropy's own number."""


class ContextParallel:
    """One of `ranks` ranks' part of each sequence, in order. Without a `group` nothing is sent: sizes alone."""

    def __init__(self, ranks: int, rank: int = 0, group: dist.ProcessGroup | None = None) -> None:
        self.ranks, self.rank = ranks, rank
        self._group = group
        self._exchanged: Callable[[Tensor], Tensor] = Tensor.clone if group is None else self._sent

    def part(self, sequence: Tensor, dimension: int = 1) -> Tensor:
        """This rank's part of `sequence`, any shape whose `dimension` is the sequence."""
        return sequence.chunk(self.ranks, dimension)[self.rank]

    def attend(
        self, implementation: str, query: Tensor, key: Tensor, value: Tensor, *, is_causal: bool = False
    ) -> Tensor:
        """attention.attend over the whole sequences, of this rank's heads: shapes (batch, heads, seq / ranks,
        head_size), as the result. Key-value heads that are fewer than the ranks are copied to those that share them.
        """
        copies = max(1, self.ranks // key.shape[1])
        if copies > 1:
            key, value = key.repeat_interleave(copies, dim=1), value.repeat_interleave(copies, dim=1)
        heads = [each.reshape(len(each), self.ranks, -1, *each.shape[2:]).movedim(1, 0) for each in (query, key, value)]
        counts = [each.shape[2] for each in heads]
        # (ranks, batch, heads, seq / ranks, head_size): to each rank its heads, of each rank its tokens.
        received = self._exchanged(torch.cat(heads, dim=2).contiguous())
        whole = torch.split(received.movedim(0, 2).flatten(2, 3), counts, dim=1)
        attended = attend(implementation, *whole, is_causal=is_causal)
        parts = attended.reshape(*attended.shape[:2], self.ranks, -1, attended.shape[3]).movedim(2, 0).contiguous()
        return self._exchanged(parts).movedim(0, 1).flatten(1, 2)

    def loss(self, logits: Tensor, tokens: Tensor, *, is_training: bool) -> Tensor:
        """The mean cross entropy of the next token, 0-d, from `logits` (batch, seq / ranks, vocabulary) and the whole
        `tokens` (batch, seq): in training this rank's share, such that the mean of all ranks is that of all tokens.
        """
        labels = self.part(nn.functional.pad(tokens[:, 1:], (0, 1), value=UNLABELLED))
        summed = nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), labels.flatten(), ignore_index=UNLABELLED, reduction="sum"
        )
        loss: Tensor = summed * (self.ranks / tokens[:, 1:].numel())
        if not is_training and self._group is not None:
            dist.all_reduce(loss, group=self._group)
            loss = loss / self.ranks
        return loss

    def _sent(self, parts: Tensor) -> Tensor:
        """The i-th of `parts` goes to rank i, from which that of the same place comes; shapes (ranks, ...)."""
        assert self._group is not None
        return all_to_all_single_autograd(parts, None, None, self._group)
