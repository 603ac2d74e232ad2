"""Reads CPM's data: documents as sentencepiece tokens, cut into samples; or generates a noisy chain."""

import importlib
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import torch

from training.benchmarks.cpm.pytorch.config import Config
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.loader import TensorSet
from training.benchmarks.driver.training.data.synthetic import Chain, generators
from training.benchmarks.driver.workload.usage import UnusableSettingsError

# In CPM's vocabulary spaces and newlines are these two characters.
_CHARACTERS = str.maketrans({" ": "\u2582", "\n": "\u2583"})
_END_OF_DOCUMENT = "<eod>"


def _library(name: str) -> Any:
    """Import a library that only text needs: a case with synthetic data runs without it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnusableSettingsError(f"data = 'files' of cpm needs the Python package {name}: {error}") from error


class Tokenizer:
    """Splits a document into words by jieba and tokens by sentencepiece, as CPM's vocabulary was made."""

    def __init__(self, path: Path, vocab_size: int) -> None:
        jieba, sentencepiece = _library("jieba"), _library("sentencepiece")
        if not path.is_file():
            raise DataError(path, "no such file; expected CPM's sentencepiece model")
        try:
            self._model = sentencepiece.SentencePieceProcessor(model_file=str(path))
        except (OSError, RuntimeError) as error:
            raise DataError(path, f"no sentencepiece model: {error}") from error
        if self._model.get_piece_size() > vocab_size:
            raise DataError(
                path, f"has {self._model.get_piece_size()} tokens; expected up to vocab_size = {vocab_size}"
            )
        self.end = self._model.piece_to_id(_END_OF_DOCUMENT)
        if self.end == self._model.unk_id():
            raise DataError(path, f"has no token {_END_OF_DOCUMENT}")
        jieba.setLogLevel("WARNING")
        self._cut = jieba.lcut

    def encode(self, document: str) -> list[int]:
        """The tokens of one document, followed by the end token."""
        words = (word.translate(_CHARACTERS) for word in self._cut(document))
        tokens: list[int] = self._model.encode(" ".join(words))
        return [*tokens, self.end]


def read_text(path: Path, tokenizer: Tokenizer, seq_length: int) -> TensorSet:
    """Each document, a line with its newline, in pieces of seq_length + 1 tokens, the last one padded.

    A line without text is no document; of all others, spaces and the newline are tokens, as in FlagPerf.

    Raises:
        DataError: the file is missing or broken.
    """
    pieces, lengths = array("i"), []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if not line.strip():
                    continue
                tokens = tokenizer.encode(line)
                for begin in range(0, len(tokens), seq_length + 1):
                    piece = tokens[begin : begin + seq_length + 1]
                    if len(piece) < 2:
                        continue  # no token is predicted in it
                    pieces.extend(piece + [tokenizer.end] * (seq_length + 1 - len(piece)))
                    lengths.append(len(piece))
    except FileNotFoundError as error:
        raise DataError(path, "no such file; expected text with one document a line") from error
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(path, f"no readable UTF-8 text: {error}") from error
    if not lengths:
        raise DataError(path, "has no document; expected one a line")
    samples = torch.from_numpy(np.frombuffer(pieces, dtype=np.int32).reshape(-1, seq_length + 1).copy())
    return TensorSet({"tokens": samples, "loss_mask": _mask(torch.tensor(lengths), seq_length)})


def _mask(lengths: torch.Tensor, seq_length: int) -> torch.Tensor:
    """1 for each of the lengths - 1 labels of a piece, 0 for padding: (pieces, seq_length)."""
    return (torch.arange(seq_length)[None, :] < lengths[:, None] - 1).float()


def open_files(config: Config, data_dir: Path) -> DataSets:
    """Read and tokenize the two text files of `data_dir`.

    Raises:
        DataError: a file is missing or broken.
    """
    for name in (config.train_file, config.eval_file):
        if not (data_dir / name).is_file():
            raise DataError(data_dir / name, "no such file; expected text with one document a line")
    tokenizer = Tokenizer(data_dir / config.vocab_file, config.vocab_size)
    return DataSets(
        train=read_text(data_dir / config.train_file, tokenizer, config.seq_length),
        evaluation=read_text(data_dir / config.eval_file, tokenizer, config.seq_length),
        train_files=(data_dir / config.train_file,),
        evaluation_files=(data_dir / config.eval_file,),
        other_files=(data_dir / config.vocab_file,),
    )


def synthetic(config: Config) -> DataSets:
    """Sequences in which a token is followed by its successor, except for some noise."""
    chain = Chain(config.seed, first=0, count=config.synthetic_tokens)
    sets = []
    for generator, count in zip(generators(config.seed), (config.train_samples, config.eval_samples), strict=True):
        start = chain.random(generator, (count,))
        tokens = chain.sequences(generator, start, config.seq_length + 1, noise=config.synthetic_noise)
        mask = torch.ones(count, config.seq_length)
        sets.append(TensorSet({"tokens": torch.from_numpy(tokens.astype(np.int32)), "loss_mask": mask}))
    return DataSets(train=sets[0], evaluation=sets[1])
