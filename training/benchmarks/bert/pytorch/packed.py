"""Says where the tokens and labels of a padded batch stand, on the CPU, where their number is known without waiting."""

from collections.abc import Sequence

import torch
from torch import Tensor

from training.benchmarks.driver.training.attention import Packing, packing
from training.benchmarks.driver.training.loader import SampleSet
from training.benchmarks.driver.training.micro_batches import Indices, Numbers
from training.benchmarks.driver.training.model import Batch

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
    """The packing of a batch, and of its labels the rows among the tokens and the values, shape (n,); a batch that is
    not packed yet is packed here.
    """
    if not is_packed(batch):
        batch = packed(batch)
    is_there = batch["input_mask"] != 0
    packing_of_batch = Packing(batch[_PLACES], batch[_BOUNDARIES], is_there.shape[1], is_there[:, None, None, :])
    return packing_of_batch, batch[_ROWS], batch[_LABELS]


def is_packed(batch: Batch) -> bool:
    """Whether the batch, tensors of shape (samples, ...), says where its tokens are."""
    return _PLACES in batch


def packed_sizes(batches: Sequence[Batch]) -> tuple[int, int, Tensor]:
    """Number of tokens and of labels of packed batches, which their shapes tell, and the length of each sample, shape
    (samples of all,), float64.
    """
    tokens, labels = (sum(len(batch[name]) for batch in batches) for name in (_PLACES, _LABELS))
    return tokens, labels, torch.cat([batch[_BOUNDARIES].diff() for batch in batches]).double()


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
        """See SampleSet."""
        return self._samples.order(generator)

    def epoch_order(self, seed: int) -> Numbers:
        """See OrderedSamples."""
        return self._samples.epoch_order(seed)
