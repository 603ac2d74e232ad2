"""Says where the tokens and labels of a padded batch stand, on the CPU, where their number is known without waiting."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from training.benchmarks.driver.training.data.loader import SampleSet
from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers
from training.benchmarks.driver.training.model.attention import Packing, packing
from training.benchmarks.driver.training.model.model import Batch

IGNORED = 0  # label of an unused masked position
_PLACES, _BOUNDARIES, _ROWS, _LABELS = "token_places", "token_boundaries", "label_rows", "labels"
# What the work of a batch is counted by: of one that is packed the first three.
COUNTED = (_PLACES, _BOUNDARIES, _LABELS, "input_mask", "masked_lm_ids")


def packed(batch: Batch) -> Batch:
    """`batch` and, of shapes that depend on its content, where its t tokens and n labels are: token_places (t,) int64,
    token_boundaries (batch + 1,) int32, label_rows and labels (n,) int64. Where the batch is on a device, waits for it.
    """
    is_there = batch["input_mask"] != 0
    found = packing(is_there)
    # The k-th token of the batch stands in row k - 1.
    rows = (is_there.flatten().cumsum(0) - 1).view_as(is_there)
    is_label = batch["masked_lm_ids"] != IGNORED
    return batch | {
        _PLACES: found.places,
        _BOUNDARIES: found.boundaries,
        _ROWS: rows.gather(1, batch["masked_lm_positions"])[is_label],
        _LABELS: batch["masked_lm_ids"][is_label],
    }


def read_packed(batch: Batch) -> tuple[Packing, Tensor, Tensor]:
    """A batch's packing, done here if need be, and of its labels the rows among tokens and the values, (n,)."""
    if not is_packed(batch):
        batch = packed(batch)
    is_there = batch["input_mask"] != 0
    packing_of_batch = Packing(batch[_PLACES], batch[_BOUNDARIES], is_there.shape[1], is_there[:, None, None, :])
    return packing_of_batch, batch[_ROWS], batch[_LABELS]


def is_packed(batch: Batch) -> bool:
    """Whether the batch, tensors of shape (samples, ...), says where its tokens are."""
    return _PLACES in batch


def _is_here(tensors: Sequence[Tensor]) -> bool:
    """Whether the CPU reads the tensors without waiting for a device."""
    return tensors[0].is_cpu


def packed_sizes(batches: Sequence[Batch]) -> tuple[int, int, int, int | Tensor]:
    """Of packed batches the number of samples, of tokens and of labels, which their shapes tell, and the sum of the
    squared lengths of the samples: 0-d float64 where the batches lie on a device, so that nothing waits for it.
    """
    boundaries = [batch[_BOUNDARIES] for batch in batches]
    samples = sum(len(of_batch) - 1 for of_batch in boundaries)
    tokens, labels = (sum(len(batch[name]) for batch in batches) for name in (_PLACES, _LABELS))
    if _is_here(boundaries):  # between two steps a call of torch costs more than these few numbers
        squares = sum((end - begin) ** 2 for places in boundaries for begin, end in pairwise(places.tolist()))
        return samples, tokens, labels, squares
    lengths = torch.cat([of_batch.diff() for of_batch in boundaries]).double()
    return samples, tokens, labels, torch.dot(lengths, lengths)


def padded_sizes(batches: Sequence[Batch]) -> tuple[int, int | Tensor, int | Tensor, int | Tensor]:
    """packed_sizes of batches not packed: on a device all but the samples is 0-d float64 or int64."""
    masks, ids = ([batch[name] for batch in batches] for name in ("input_mask", "masked_lm_ids"))
    if _is_here(masks):  # a call of numpy costs a third of one of torch
        of_samples = np.concatenate([mask.numpy() for mask in masks]).sum(1)
        labels = np.count_nonzero(np.concatenate([of_batch.numpy() for of_batch in ids]))
        return len(of_samples), int(of_samples.sum()), int(labels), int(of_samples @ of_samples)
    lengths = torch.cat(masks).sum(1).double()
    return len(lengths), lengths.sum(), (torch.cat(ids) != IGNORED).sum(), torch.dot(lengths, lengths)


class PackedSet(SampleSet):
    """The samples of another set in the same order, their batches packed by whoever loads them."""

    def __init__(self, samples: SampleSet) -> None:
        self._samples = samples

    @property
    def unpacked(self) -> SampleSet:
        """The other set."""
        return self._samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, indices: Indices) -> Batch:
        return packed(self._samples[indices])

    def order(self, generator: torch.Generator) -> Tensor:
        return self._samples.order(generator)

    def epoch_order(self, seed: int) -> Numbers:
        return self._samples.epoch_order(seed)
