"""Samples of HDF5 files as tensors."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from training.benchmarks.driver.training.data.hdf5 import Array, Shards
from training.benchmarks.driver.training.data.loader import SampleSet
from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers
from training.benchmarks.driver.training.model.model import Batch


class ShardedSet(Shards, SampleSet):
    @abstractmethod
    def batch(self, rows: Sequence[tuple[dict[str, Array], int]]) -> Batch:
        """The batch of samples, each the content of its file and its index there; shape (len(rows), ...)."""

    def __getitem__(self, indices: Indices) -> Batch:
        return self.batch(self.rows(indices))

    def order(self, generator: torch.Generator) -> Tensor:
        def permutation(count: int) -> Numbers:
            drawn: Numbers = torch.randperm(count, generator=generator).numpy()
            return drawn

        return torch.from_numpy(self.shuffled(permutation))
