"""Reads LLaMA's data: one long array of tokens, cut into samples of seq_length; or generates a noisy chain."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.loader import NoSamples, SampleSet, TensorSet
from training.benchmarks.driver.training.data.micro_batches import Indices
from training.benchmarks.driver.training.data.synthetic import Chain, generators
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.llama.pytorch.config import Config

# Number of tokens of a file, evenly spread, whose values are checked before a device is taken.
_LOOKED_AT = 1 << 20


class TokenFile(SampleSet):
    """Samples of `seq_length` tokens, one after the other, from a .npy file that is mapped, not read.

    Some of its tokens are checked when it is opened, all of a sample when it is read.
    """

    def __init__(self, path: Path, seq_length: int, vocab_size: int) -> None:
        self._tokens = _open(path)
        self._path = path
        self._seq_length = seq_length
        self._vocab_size = vocab_size
        if len(self._tokens) < seq_length:
            raise DataError(path, f"has {len(self._tokens)} tokens; expected seq_length = {seq_length} at least")
        step = -(-len(self._tokens) // _LOOKED_AT)
        self._check(self._tokens[::step], 0, step)

    def __len__(self) -> int:
        return len(self._tokens) // self._seq_length

    def __getitem__(self, indices: Indices) -> Batch:
        rows = [self._tokens[i * self._seq_length : (i + 1) * self._seq_length] for i in indices]
        for number, row in zip(indices, rows, strict=True):
            self._check(row, number * self._seq_length, 1)
        return {"tokens": torch.from_numpy(np.stack(rows).astype(np.int64))}

    def _check(self, tokens: NDArray[np.integer[Any]], first: int, step: int) -> None:
        """Check `tokens`, shape (n,), which holds each `step`-th token of the file from place `first` on."""
        if int(tokens.max()) < self._vocab_size and int(tokens.min()) >= 0:
            return
        place = int(np.flatnonzero((tokens < 0) | (tokens >= self._vocab_size))[0])
        raise DataError(
            self._path,
            f"has the token {tokens[place]} at place {first + place * step};"
            f" expected 0 to {self._vocab_size - 1} (vocab_size)",
        )


def _open(path: Path) -> NDArray[np.integer[Any]]:
    try:
        tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError as error:
        raise DataError(path, "no such file; expected a .npy array of tokens") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(path, f"no readable .npy array of tokens: {error}") from error
    if not isinstance(tokens, np.ndarray):
        raise DataError(path, "is an archive of arrays (.npz); expected one .npy array of tokens")
    if tokens.ndim != 1 or not np.issubdtype(tokens.dtype, np.integer):
        raise DataError(path, f"holds {tokens.dtype} of shape {tokens.shape}; expected integers of one dimension")
    return np.asarray(tokens)


def open_files(config: Config, data_dir: Path) -> DataSets:
    """The token files of `data_dir`: those of the training and, if there is one, of the evaluation.

    Raises:
        DataError: a file is missing or broken.
    """
    train, evaluation = (
        NoSamples() if name is None else TokenFile(data_dir / name, config.seq_length, config.vocab_size)
        for name in (config.train_file, config.eval_file)
    )
    return DataSets(
        train=train,
        evaluation=evaluation,
        train_files=(data_dir / config.train_file,),
        evaluation_files=() if config.eval_file is None else (data_dir / config.eval_file,),
    )


def synthetic(config: Config) -> DataSets:
    """Sequences in which a token is followed by its successor, except for some noise."""
    chain = Chain(config.seed, first=0, count=config.synthetic_tokens)
    sets = []
    for generator, count in zip(generators(config.seed), (config.train_samples, config.eval_samples), strict=True):
        start = chain.random(generator, (count,))
        tokens = chain.sequences(generator, start, config.seq_length, noise=config.synthetic_noise)
        sets.append(TensorSet({"tokens": torch.from_numpy(tokens.astype(np.int32))}))
    return DataSets(train=sets[0], evaluation=sets[1])
