"""Reads BERT's data as arrays: HDF5 shards of masked sentence pairs; or generates pairs of chains. Needs no torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.benchmarks.bert.settings import SPECIAL_TOKENS, BertSettings
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.hdf5 import Array, Shards, check_values, dense, opened, shape_of
from training.benchmarks.driver.training.data.synthetic import Chain, generators

_CLS, _SEP, _MASK = 1, 2, 3
_OF_TOKENS = ("input_ids", "input_mask", "segment_ids")
_OF_MASKS = ("masked_lm_positions", "masked_lm_ids")
_LABEL = "next_sentence_labels"
_MASKED_SHARE = 0.15  # Devlin et al. 2019, section 3.1
# Lengths of the samples of BERT's Wikipedia at 512 tokens: the share of full ones, and each 5 % of the others.
_PUBLISHED_LENGTH, _FULL_SHARE, _SHORTEST = 512, 0.2343, 5
_QUANTILES = (5, 33, 43, 51, 59, 68, 78, 89, 102, 118, 135, 155, 177, 202, 231, 264, 301, 343, 392, 448, 511)


class BertArrays(Shards):
    """The samples of HDF5 files in the format of NVIDIA's and MLPerf's BERT.

    input_ids, input_mask, segment_ids [N, seq]; masked_lm_positions, masked_lm_ids [N, predictions], terminated by a
    position of 0; next_sentence_labels [N].
    """

    def __init__(self, paths: Sequence[Path], config: BertSettings) -> None:
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

    def arrays(self, rows: Sequence[tuple[dict[str, Array], int]]) -> dict[str, Array]:
        """The batch of samples, each the content of its file and its index there: int64, shape (len(rows), ...)."""
        return {
            key: np.stack([shard[key][row] for shard, row in rows]).astype(np.int64)
            for key in (*_OF_TOKENS, *_OF_MASKS, _LABEL)
        }


class BertFiles(NamedTuple):
    """The files of the training and of the evaluation set."""

    train: tuple[Path, ...]
    evaluation: Path


def files_of(config: BertSettings, data_dir: Path) -> BertFiles:
    """The training shards and the evaluation file of `data_dir`.

    Raises:
        DataError: there are no shards.
    """
    paths = sorted(data_dir.glob(config.train_files))
    if not paths:
        raise DataError(data_dir / config.train_files, "no such file; expected HDF5 shards (train_files)")
    return BertFiles(tuple(paths), data_dir / config.eval_file)


def synthetic_arrays(config: BertSettings) -> tuple[dict[str, Array], dict[str, Array]]:
    """Training and evaluation samples, int32, shape (samples, ...): pairs of chain pieces. The second continues the
    first or is unrelated (the label); some tokens are masked.
    """
    chain = Chain(config.seed, first=SPECIAL_TOKENS, count=config.synthetic_tokens)
    of_train, of_evaluation = generators(config.seed)
    return (
        _pairs(config, chain, of_train, config.train_samples),
        _pairs(config, chain, of_evaluation, config.eval_samples),
    )


def _pairs(config: BertSettings, chain: Chain, generator: np.random.Generator, count: int) -> dict[str, Array]:
    most = config.max_seq_length
    if config.synthetic_lengths == "full":
        return _padded([(np.arange(count), _pairs_of(most, config, chain, generator, count))], config, count)
    lengths = wikipedia_lengths(generator, count, most)
    groups = []
    for length in np.unique(lengths):
        numbers = np.flatnonzero(lengths == length)
        groups.append((numbers, _pairs_of(int(length), config, chain, generator, len(numbers))))
    return _padded(groups, config, count)


def wikipedia_lengths(generator: np.random.Generator, count: int, most: int) -> Array:
    """Numbers of tokens of `count` samples as in BERT's Wikipedia, shape (count,), scaled from 512 to `most`.

    Source: Krell et al., "Efficient Sequence Packing without Cross-contamination" (2021), the published histogram of
    16,279,552 samples: 23.4 % are full, the others have these quantiles; the mean is 255.8 tokens.
    """
    quantiles = np.linspace(0, 1, len(_QUANTILES))
    shorter = np.interp(generator.random(count), quantiles, _QUANTILES)
    lengths = np.where(generator.random(count) < _FULL_SHARE, _PUBLISHED_LENGTH, shorter) * most / _PUBLISHED_LENGTH
    return np.clip(np.rint(lengths), _SHORTEST, most).astype(np.int64)


def _padded(groups: Sequence[tuple[Array, dict[str, Array]]], config: BertSettings, count: int) -> dict[str, Array]:
    """The samples of groups of equal length, each with its numbers of samples, at their places, padded with 0."""
    widths = dict.fromkeys(_OF_TOKENS, config.max_seq_length) | dict.fromkeys(_OF_MASKS, config.max_predictions_per_seq)
    whole: dict[str, Array] = {key: np.zeros((count, width), dtype=np.int32) for key, width in widths.items()}
    whole[_LABEL] = np.zeros(count, dtype=np.int32)
    for numbers, arrays in groups:
        for key, array in arrays.items():
            if array.ndim == 1:
                whole[key][numbers] = array
            else:
                whole[key][numbers, : array.shape[1]] = array
    return whole


def _pairs_of(
    length: int, config: BertSettings, chain: Chain, generator: np.random.Generator, count: int
) -> dict[str, Array]:
    """`count` pairs of `length` tokens each; of full samples as many tokens are masked as may be, else 15 %."""
    is_full = length == config.max_seq_length
    predictions = config.max_predictions_per_seq if is_full else max(round(_MASKED_SHARE * length), 1)
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
    chosen = generator.random((count, len(maskable))).argsort(axis=1)[
        :, : min(predictions, config.max_predictions_per_seq)
    ]
    positions = np.sort(maskable[chosen], axis=1)
    labels = np.take_along_axis(tokens, positions, axis=1)
    np.put_along_axis(tokens, positions, _MASK, axis=1)
    segments = np.zeros_like(tokens)
    segments[:, 2 + first_length :] = 1
    return {
        "input_ids": tokens,
        "input_mask": np.ones_like(tokens),
        "segment_ids": segments,
        "masked_lm_positions": positions,
        "masked_lm_ids": labels,
        _LABEL: is_random,
    }
