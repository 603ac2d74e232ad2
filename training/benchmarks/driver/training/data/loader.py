"""Sets of samples as tensors, and the loader that brings their batches to the device."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.workload.accelerator import is_accelerator


class SampleSet(Dataset[Batch], ABC):
    """Samples by index: set[[3, 1, 2]] is the batch of these three."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples in the set."""

    @abstractmethod
    def __getitem__(self, indices: Indices) -> Batch:
        """The batch of these samples in this order: tensors of shape (len(indices), ...)."""

    def order(self, generator: torch.Generator) -> Tensor:
        """A shuffled order of all samples, int64, shape (len,). Large files' samples stay together."""
        return torch.randperm(len(self), generator=generator)

    def epoch_order(self, seed: int) -> Numbers:
        """The numbers of all samples, shape (len,), in the order that the seed of an epoch determines."""
        order: Numbers = self.order(torch.Generator().manual_seed(seed)).numpy()
        return order


class NoSamples(SampleSet):
    """The evaluation set of a run in which nothing is evaluated."""

    def __len__(self) -> int:
        return 0

    def __getitem__(self, indices: Indices) -> Batch:
        raise IndexError("this set has no samples")


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


def loader(samples: SampleSet, sampler: Iterable[Indices], *, workers: int, device: torch.device) -> Iterable[Batch]:
    """Batches on `device`, as dicts of tensors of shape (samples, ...): torch's DataLoader with `workers` processes.

    Memory is pinned for an accelerator. The workers stay from one pass to the next: no evaluation waits for their start
    or for files that they have read. The loader has a generator of its own: each pass draws a seed for the workers,
    which must not change the model's dropout.
    """
    if workers == 0 and device.type == "cpu":
        return _InPlace(samples, sampler)
    loaded = DataLoader(
        samples,
        sampler=sampler,
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=is_accelerator(device),
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
