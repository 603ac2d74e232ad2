"""BERT's data as tensors."""

from collections.abc import Sequence
from pathlib import Path

import torch

from training.benchmarks.bert.samples import BertArrays, files_of, synthetic_arrays
from training.benchmarks.bert.settings import BertSettings
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.hdf5 import Array
from training.benchmarks.driver.training.loader import TensorSet
from training.benchmarks.driver.training.model import Batch
from training.benchmarks.driver.training.sharded_set import ShardedSet


class BertShards(BertArrays, ShardedSet):
    """See BertArrays."""

    def batch(self, rows: Sequence[tuple[dict[str, Array], int]]) -> Batch:
        """See ShardedSet."""
        return _tensors(self.arrays(rows))


def open_files(config: BertSettings, data_dir: Path) -> DataSets:
    """The training shards and the evaluation file of `data_dir`.

    Raises:
        DataError: a file is missing or broken.
    """
    train, evaluation = files_of(config, data_dir)
    opened = BertShards([evaluation], config)
    return DataSets(train=BertShards(train, config), evaluation=opened, files=(*train, evaluation))


def synthetic(config: BertSettings) -> DataSets:
    """See synthetic_arrays."""
    train, evaluation = (TensorSet(_tensors(arrays)) for arrays in synthetic_arrays(config))
    return DataSets(train=train, evaluation=evaluation)


def _tensors(arrays: dict[str, Array]) -> Batch:
    return {key: torch.from_numpy(array) for key, array in arrays.items()}
