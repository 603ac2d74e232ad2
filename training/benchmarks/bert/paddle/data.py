"""BERT's data for Paddle: sets of arrays, and the weights to start from. Needs neither Paddle nor torch."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.benchmarks.bert.samples import BertArrays, files_of, synthetic_arrays
from training.benchmarks.bert.settings import BertSettings
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.hdf5 import Array
from training.benchmarks.driver.training.data.inputs import check_numbers, check_shapes, data_folder
from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers

_WEIGHTS = ("float64", "float32", "float16")
_OF_VOCABULARY = ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias")


class ArraySet:
    """Samples in memory or in files, by index: set[[3, 1, 2]] is the batch of these three."""

    def __init__(self, content: dict[str, Array] | BertArrays) -> None:
        self._content = content

    def __len__(self) -> int:
        return len(self._content if isinstance(self._content, BertArrays) else next(iter(self._content.values())))

    def __getitem__(self, indices: Indices) -> dict[str, Array]:
        if isinstance(self._content, BertArrays):
            return self._content.arrays(self._content.rows(indices))
        return {name: array[np.asarray(indices)].astype(np.int64) for name, array in self._content.items()}

    def epoch_order(self, seed: int) -> Numbers:
        """The numbers of all samples, shape (len,), in the order of that seed."""
        generator = np.random.default_rng(seed)
        return (
            self._content.shuffled(generator.permutation)
            if isinstance(self._content, BertArrays)
            else (generator.permutation(len(self)))
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedData:
    """The sets with their files, the initial weights (if any) with PyTorch's names and shapes, and theirs."""

    train: ArraySet
    evaluation: ArraySet
    weights: dict[str, Array] | None
    train_files: tuple[Path, ...] = ()
    evaluation_files: tuple[Path, ...] = ()
    other_files: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that were read."""
        return (*self.train_files, *self.evaluation_files, *self.other_files)


def prepared(config: BertSettings, data_dir: Path | None, shapes: dict[str, tuple[int, ...]]) -> PreparedData:
    """Open data and weights, whose parameters have these `shapes`, before any device is taken.

    Raises:
        UnusableSettingsError: settings or files cannot be used (DataError for a file).
    """
    of_train: tuple[Path, ...] = ()
    of_evaluation: tuple[Path, ...] = ()
    others: tuple[Path, ...] = ()
    folder = data_folder(config, data_dir)
    if folder is None:
        train, evaluation = (ArraySet(arrays) for arrays in synthetic_arrays(config))
    else:
        found = files_of(config, folder)
        train, evaluation = ArraySet(BertArrays(found.train, config)), ArraySet(BertArrays([found.evaluation], config))
        of_train, of_evaluation = tuple(found.train), (found.evaluation,)
    weights = None
    if config.init_checkpoint is not None:
        path = (data_dir or Path()) / config.init_checkpoint
        weights, others = _weights(path, config.vocab_size, shapes), (path,)
    return PreparedData(
        train=train,
        evaluation=evaluation,
        weights=weights,
        train_files=of_train,
        evaluation_files=of_evaluation,
        other_files=others,
    )


def _weights(path: Path, vocab_size: int, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """The file's arrays, after a check of names and shapes; of fewer tokens than `vocab_size` the others are zeros."""
    if not path.is_file():
        raise DataError(path, "no such file (init_checkpoint)")
    library = importlib.import_module("safetensors.numpy")
    try:
        found: dict[str, Array] = library.load_file(path)
    except Exception as error:  # the library's own error, which has no public base
        raise DataError(path, f"no file of safetensors (init_checkpoint): {error}") from error
    for name in set(_OF_VOCABULARY) & found.keys():
        missing = vocab_size - len(found[name])
        if missing > 0:
            found[name] = np.pad(found[name], [(0, missing), *[(0, 0)] * (found[name].ndim - 1)])
    check_shapes(path, {name: array.shape for name, array in found.items()}, shapes)
    check_numbers(path, {name: found[name].dtype.name for name in shapes}, _WEIGHTS)
    return {name: found[name] for name in shapes}


def work_of(config: BertSettings, batches: Sequence[dict[str, Array]]) -> tuple[int, int, int]:
    """Number of samples, tokens without padding, and floating-point operations of batches of shape (samples, ...)."""
    per_token, per_pair, per_prediction, per_sample = config.flops_of_parts()
    samples = tokens = flops = 0
    for batch in batches:
        lengths = batch["input_mask"].sum(axis=1)
        predictions = int((batch["masked_lm_ids"] != 0).sum())
        samples += len(lengths)
        tokens += int(lengths.sum())
        flops += int(lengths.sum()) * per_token + int((lengths**2).sum()) * per_pair
        flops += predictions * per_prediction + len(lengths) * per_sample
    return samples, tokens, flops
