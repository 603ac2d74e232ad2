"""Reads BERT's data: HDF5 shards of masked sentence pairs; or generates pairs of chains."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from training.benchmarks.bert.pytorch.config import SPECIAL_TOKENS, Config
from training.benchmarks.driver.training.benchmark import DataError, DataSets
from training.benchmarks.driver.training.hdf5 import Array, ShardedSet, check_values, dense, opened, shape_of
from training.benchmarks.driver.training.loader import TensorSet
from training.benchmarks.driver.training.model import Batch
from training.benchmarks.driver.training.synthetic import Chain, generators

_CLS, _SEP, _MASK = 1, 2, 3
_OF_TOKENS = ("input_ids", "input_mask", "segment_ids")
_OF_MASKS = ("masked_lm_positions", "masked_lm_ids")
_LABEL = "next_sentence_labels"


class BertShards(ShardedSet):
    """The samples of HDF5 files in the format of NVIDIA's and MLPerf's BERT.

    input_ids, input_mask, segment_ids [N, seq]; masked_lm_positions, masked_lm_ids [N, predictions], terminated by a
    position of 0; next_sentence_labels [N].
    """

    def __init__(self, paths: Sequence[Path], config: Config) -> None:
        self._config = config
        super().__init__(paths, [self._check(path) for path in paths])

    def _check(self, path: Path) -> int:
        """Number of samples of a file, from its headers."""
        config = self._config
        with opened(path) as file:
            labels = shape_of(path, file, _LABEL)
            if len(labels) != 1:
                raise DataError(path, f"{_LABEL!r} has the shape {list(labels)}; expected one dimension")
            (count,) = labels
            widths = dict.fromkeys(_OF_TOKENS, config.max_seq_length)
            widths |= dict.fromkeys(_OF_MASKS, config.max_predictions_per_seq)
            for key, width in widths.items():
                found = shape_of(path, file, key)
                if found != (count, width):
                    setting = "max_seq_length" if key in _OF_TOKENS else "max_predictions_per_seq"
                    raise DataError(
                        path, f"{key!r} has the shape {list(found)}; expected {[count, width]} ({setting} = {width})"
                    )
        if not count:
            raise DataError(path, "has no samples")
        return count

    def load(self, path: Path) -> dict[str, Array]:
        """See ShardedSet."""
        with opened(path) as file:
            arrays = {key: dense(path, file, key) for key in (*_OF_TOKENS, *_OF_MASKS, _LABEL)}
        config = self._config
        check_values(path, "segment_ids", arrays["segment_ids"], 2)
        check_values(path, _LABEL, arrays[_LABEL], 2)
        for key in ("input_ids", "masked_lm_ids"):
            check_values(path, key, arrays[key], config.vocab_size, "vocab_size")
        check_values(
            path, "masked_lm_positions", arrays["masked_lm_positions"], config.max_seq_length, "max_seq_length"
        )
        # The first position of 0 ends the list: what follows is no label.
        is_open = np.cumprod(arrays["masked_lm_positions"] != 0, axis=1)
        arrays["masked_lm_ids"] = arrays["masked_lm_ids"] * is_open
        if not arrays["masked_lm_ids"].any():
            raise DataError(path, "'masked_lm_positions' and 'masked_lm_ids' mask no token; expected samples with some")
        return arrays

    def batch(self, rows: Sequence[tuple[dict[str, Array], int]]) -> Batch:
        """See ShardedSet."""
        return {
            key: torch.from_numpy(np.stack([shard[key][row] for shard, row in rows]).astype(np.int64))
            for key in (*_OF_TOKENS, *_OF_MASKS, _LABEL)
        }


def open_files(config: Config, data_dir: Path) -> DataSets:
    """The training shards and the evaluation file of `data_dir`.

    Raises:
        DataError: a file is missing or broken.
    """
    paths = sorted(data_dir.glob(config.train_files))
    if not paths:
        raise DataError(data_dir / config.train_files, "no such file; expected HDF5 shards (train_files)")
    evaluation = BertShards([data_dir / config.eval_file], config)
    return DataSets(train=BertShards(paths, config), evaluation=evaluation)


def synthetic(config: Config) -> DataSets:
    """Pairs of chain pieces: the second continues the first or is unrelated (the label); some tokens are masked."""
    chain = Chain(config.seed, first=SPECIAL_TOKENS, count=config.synthetic_tokens)
    train, evaluation = (
        TensorSet(_pairs(config, chain, generator, count))
        for generator, count in zip(generators(config.seed), (config.train_samples, config.eval_samples), strict=True)
    )
    return DataSets(train=train, evaluation=evaluation)


def _pairs(config: Config, chain: Chain, generator: np.random.Generator, count: int) -> Batch:
    length = config.max_seq_length
    first_length = (length - 3) // 2
    second_length = length - 3 - first_length
    first = chain.sequences(generator, chain.random(generator, (count,)), first_length)
    is_random = generator.integers(0, 2, count)
    start = np.where(is_random, chain.random(generator, (count,)), chain.successor(first[:, -1]))
    second = chain.sequences(generator, start, second_length)
    tokens = np.full((count, length), _SEP)
    tokens[:, 0] = _CLS
    tokens[:, 1 : 1 + first_length] = first
    tokens[:, 2 + first_length : -1] = second
    maskable = np.concatenate([np.arange(1, 1 + first_length), np.arange(2 + first_length, length - 1)])
    chosen = generator.random((count, len(maskable))).argsort(axis=1)[:, : config.max_predictions_per_seq]
    positions = np.sort(maskable[chosen], axis=1)
    labels = np.take_along_axis(tokens, positions, axis=1)
    np.put_along_axis(tokens, positions, _MASK, axis=1)
    segments = np.zeros_like(tokens)
    segments[:, 2 + first_length :] = 1
    arrays = {
        "input_ids": tokens,
        "input_mask": np.ones_like(tokens),
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        _LABEL: is_random,
    }
    return {key: torch.from_numpy(array.astype(np.int32)) for key, array in arrays.items()}
