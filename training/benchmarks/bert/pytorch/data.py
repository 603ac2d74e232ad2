"""BERT's data as tensors."""

from collections.abc import Sequence
from pathlib import Path

import torch

from training.benchmarks.bert.pytorch.packed import PackedSet
from training.benchmarks.bert.samples import BertArrays, files_of, synthetic_arrays
from training.benchmarks.bert.settings import BertSettings
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.hdf5 import Array
from training.benchmarks.driver.training.data.loader import SampleSet, TensorSet
from training.benchmarks.driver.training.data.sharded_set import ShardedSet
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.driver.training.settings.settings import FLASH_ATTENTION


class BertShards(BertArrays, ShardedSet):
    def batch(self, rows: Sequence[tuple[dict[str, Array], int]]) -> Batch:
        return _tensors(self.arrays(rows))


def open_files(config: BertSettings, data_dir: Path) -> DataSets:
    """The training shards and the evaluation file of `data_dir`.

    Raises:
        DataError: a file is missing or broken.
    """
    train, evaluation = files_of(config, data_dir)
    opened = _for_model(BertShards([evaluation], config), config)
    return DataSets(
        train=_for_model(BertShards(train, config), config),
        evaluation=opened,
        train_files=tuple(train),
        evaluation_files=(evaluation,),
    )


def synthetic(config: BertSettings) -> DataSets:
    """The sets of `synthetic_arrays` as tensors, without padding where the encoder leaves it out."""
    train, evaluation = (_for_model(TensorSet(_tensors(arrays)), config) for arrays in synthetic_arrays(config))
    return DataSets(train=train, evaluation=evaluation)


def _for_model(samples: SampleSet, config: BertSettings) -> SampleSet:
    """The samples, packed where the encoder leaves padding out: the model reads sizes that it need not wait for."""
    return PackedSet(samples) if config.unpad or config.attention == FLASH_ATTENTION else samples


def _tensors(arrays: dict[str, Array]) -> Batch:
    return {key: torch.from_numpy(array) for key, array in arrays.items()}
