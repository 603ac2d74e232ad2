"""Assigns samples to ranks and steps as a pure function of seed, epoch and step, so that a run can resume anywhere."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from training.benchmarks.driver.training.model import Batch
from training.benchmarks.driver.training.schedule import TrainingSchedule

Numbers = NDArray[np.int64]
"""Numbers of samples, shape (n,). An array reaches a loader's worker process as it is; a tensor would be shared."""
Indices = Numbers | Sequence[int]


class SampleSet(Dataset[Batch], ABC):
    """Samples by index: set[[3, 1, 2]] is the batch of these three."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples in the set."""

    @abstractmethod
    def __getitem__(self, indices: Indices) -> Batch:
        """The batch of these samples in this order: tensors of shape (len(indices), ...)."""

    def order(self, generator: torch.Generator) -> Tensor:
        """A shuffled order of all samples, int64, shape (len,). Sets in large files keep the samples of a file
        together.
        """
        return torch.randperm(len(self), generator=generator)


class TensorSet(SampleSet):
    """Samples in memory: named tensors of equal first dimension; integers of any width become int64."""

    def __init__(self, tensors: Batch) -> None:
        lengths = {len(tensor) for tensor in tensors.values()}
        if len(lengths) != 1:
            raise ValueError(f"the tensors have different first dimensions: {sorted(lengths)}")
        self._tensors = tensors
        self._length = lengths.pop()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, indices: Indices) -> Batch:
        chosen = torch.from_numpy(np.asarray(indices))
        return {name: _widened(tensor.index_select(0, chosen)) for name, tensor in self._tensors.items()}


def _widened(tensor: Tensor) -> Tensor:
    return tensor if tensor.is_floating_point() or tensor.dtype == torch.bool else tensor.long()


class MicroBatches(Sampler[Numbers]):
    """This rank's micro-batches of one epoch from `first_step` (0-based) on, in order.

    Step s of an epoch takes the samples s * global batch ... of the epoch's order. Micro-batch m of rank r takes the (m
    * dp_size + r)-th slice of these, so that the samples of a step do not depend on the number of ranks.
    """

    def __init__(
        self, samples: SampleSet, schedule: TrainingSchedule, *, micro_batch: int, dp_rank: int, dp_size: int, seed: int
    ) -> None:
        self._samples = samples
        self._schedule = schedule
        self._micro_batch = micro_batch
        self._dp_rank = dp_rank
        self._dp_size = dp_size
        self._seed = seed
        self._epoch = 0
        self._first_step = 0

    def start(self, epoch: int, first_step: int) -> None:
        """Select the epoch (from 0) and the step in it with which the next iteration begins."""
        self._epoch, self._first_step = epoch, first_step

    def __iter__(self) -> Iterator[Numbers]:
        generator = torch.Generator().manual_seed((self._seed << 20) + self._epoch)
        order: Numbers = self._samples.order(generator).numpy()
        accumulation = self._schedule.global_batch_size // (self._micro_batch * self._dp_size)
        for step in range(self._first_step, self._schedule.steps_per_epoch):
            for micro in range(accumulation):
                slice_number = micro * self._dp_size + self._dp_rank
                begin = step * self._schedule.global_batch_size + slice_number * self._micro_batch
                yield order[begin : begin + self._micro_batch]


class EvaluationBatches(Sampler[Numbers]):
    """This rank's share of the evaluation batches. All ranks get the same number, which sharded models need.

    A rank that runs out of batches repeats its first one; `counts(i)` is False where the i-th is such a repetition.
    """

    def __init__(self, length: int, *, batch_size: int, dp_rank: int, dp_size: int) -> None:
        self._length = length
        self._batch_size = batch_size
        self._dp_rank = dp_rank
        self._dp_size = dp_size
        self._batches = -(-length // batch_size)

    def __len__(self) -> int:
        return -(-self._batches // self._dp_size)

    def counts(self, position: int) -> bool:
        """Whether the batch at `position` of this rank's iteration belongs to the set and is no repetition."""
        return position * self._dp_size + self._dp_rank < self._batches

    def __iter__(self) -> Iterator[Numbers]:
        for position in range(len(self)):
            number = position * self._dp_size + self._dp_rank if self.counts(position) else 0
            yield np.arange(number * self._batch_size, min((number + 1) * self._batch_size, self._length))


def loader(samples: SampleSet, sampler: Iterable[Indices], *, workers: int, device: torch.device) -> Iterable[Batch]:
    """Batches on `device`, as dicts of tensors of shape (samples, ...): torch's DataLoader with `workers` processes.

    Memory is pinned for a CUDA device. The loader has a generator of its own: each pass draws a seed for the workers,
    which must not change the model's dropout.
    """
    if workers == 0 and device.type == "cpu":
        return _InPlace(samples, sampler)
    loaded = DataLoader(
        samples,
        sampler=sampler,
        batch_size=None,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        generator=torch.Generator(),
    )
    return loaded if device.type == "cpu" else _OnDevice(loaded, device)


class _InPlace(Iterable[Batch]):
    """Batches made in this process when they are asked for, where no DataLoader is needed."""

    def __init__(self, samples: SampleSet, sampler: Iterable[Indices]) -> None:
        self._samples = samples
        self._sampler = sampler

    def __iter__(self) -> Iterator[Batch]:
        return (self._samples[indices] for indices in self._sampler)


class _OnDevice(Iterable[Batch]):
    """Batches copied to a device; copies from pinned memory continue while the host works."""

    def __init__(self, batches: Iterable[Batch], device: torch.device) -> None:
        self._batches = batches
        self._device = device

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._batches:
            yield {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
