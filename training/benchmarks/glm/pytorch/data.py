"""Reads GLM's data: questions with answers to choose from, in sparse HDF5; or generates chains to be continued."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.hdf5 import Array, check_values, dense, opened, shape_of
from training.benchmarks.driver.training.data.loader import TensorSet
from training.benchmarks.driver.training.data.sharded_set import ShardedSet
from training.benchmarks.driver.training.data.synthetic import Chain, generators
from training.benchmarks.driver.training.model.model import Batch
from training.benchmarks.glm.pytorch.config import SPECIAL_TOKENS, Config

_MASK, _BEGIN = 1, 2
_OF_TEXT = ("text", "target", "logit_mask")
_OF_EVALUATION = ("answer_start_end", "answer_idx")
_ALL = (*_OF_TEXT, "position", "mask", "choice_start_end", *_OF_EVALUATION)


class GlmFiles(ShardedSet):
    """The questions of HDF5 files in the format of FlagPerf's GLM (parts may be h5sparse groups).

    text, target, logit_mask [choices, seq]: the tokens, the next tokens, and the positions of the answer; position [2 *
    choices, seq]: a row of positions, a row of positions in the answer; mask [1, choices]: context lengths;
    choice_start_end and answer_start_end [questions, 2]: ranges in the choices and in answer_idx [1, answers], the
    indices of right choices, counted within their question.

    A training set takes `num_choices` of each question, its right one first, and reads neither answer_start_end nor
    answer_idx; evaluation takes all choices.
    """

    def __init__(self, paths: Sequence[Path], config: Config, *, is_training: bool) -> None:
        self._config = config
        self._is_training = is_training
        self._keys = tuple(key for key in _ALL if not is_training or key not in _OF_EVALUATION)
        super().__init__(paths, [self._check(path) for path in paths])

    def _check(self, path: Path) -> int:
        """Number of questions of a file, from its headers."""
        with opened(path) as file:
            shapes = {key: shape_of(path, file, key) for key in self._keys}
        questions, choices = shapes["choice_start_end"][0], shapes["text"][0]
        length = self._config.max_seq_length
        expected = dict.fromkeys(_OF_TEXT, (choices, length)) | {"choice_start_end": (questions, 2)}
        expected |= {"position": (2 * choices, length), "mask": (1, choices)}
        if not self._is_training:
            expected["answer_start_end"] = (questions, 2)
        for key, shape in expected.items():
            if shapes[key] != shape:
                raise DataError(path, f"{key!r} has the shape {list(shapes[key])}; expected {list(shape)}")
        if not questions:
            raise DataError(path, "has no questions")
        return questions

    def load(self, path: Path) -> dict[str, Array]:
        with opened(path) as file:
            arrays = {key: dense(path, file, key) for key in self._keys}
        arrays |= {key: arrays[key].ravel() for key in ("mask", "answer_idx") if key in arrays}
        self._check_values(path, arrays)
        return arrays

    def _check_values(self, path: Path, arrays: dict[str, Array]) -> None:
        config = self._config
        for key in ("text", "target"):
            check_values(path, key, arrays[key], config.vocab_size, "vocab_size")
        check_values(
            path, "position", arrays["position"], config.max_position_embeddings + 1, "max_position_embeddings"
        )
        check_values(path, "mask", arrays["mask"], config.max_seq_length + 1, "max_seq_length")
        check_values(path, "choice_start_end", arrays["choice_start_end"], len(arrays["text"]) + 1)
        _check_ranges(path, "choice_start_end", arrays["choice_start_end"])
        unanswered = np.flatnonzero(~(arrays["logit_mask"] != 0).any(axis=1))
        if len(unanswered):
            raise DataError(path, f"'logit_mask' marks no token in row {unanswered[0]}; expected those of an answer")
        if not self._is_training:
            self._check_answers(path, arrays)

    def _check_answers(self, path: Path, arrays: dict[str, Array]) -> None:
        check_values(path, "answer_start_end", arrays["answer_start_end"], len(arrays["answer_idx"]) + 1)
        _check_ranges(path, "answer_start_end", arrays["answer_start_end"])
        choices = arrays["choice_start_end"].astype(np.int64)
        for question, (begin, end) in enumerate(arrays["answer_start_end"].astype(np.int64)):
            right, count = arrays["answer_idx"][begin:end], choices[question, 1] - choices[question, 0]
            if (right < 0).any() or (right >= count).any():
                found = ", ".join(map(str, right))
                raise DataError(path, f"'answer_idx' of question {question} has {found}; expected 0 to {count - 1}")

    def batch(self, rows: Sequence[tuple[dict[str, Array], int]]) -> Batch:
        return assemble([self._sample(shard, question) for shard, question in rows])

    def _sample(self, shard: dict[str, Array], question: int) -> dict[str, Array]:
        begin, end = shard["choice_start_end"][question]
        count = int(end - begin)
        is_right = np.zeros(count, dtype=bool)
        if self._is_training:
            is_right[0] = True
            chosen, is_there = _resized(count, self._config.num_choices)
        else:
            first, last = shard["answer_start_end"][question]
            is_right[shard["answer_idx"][first:last].astype(int)] = True
            chosen, is_there = np.arange(count), np.ones(count, dtype=bool)
        choices = slice(int(begin), int(end))
        position = shard["position"].reshape(-1, 2, shard["position"].shape[-1])
        sample = {key: shard[key][choices][chosen] for key in (*_OF_TEXT, "mask")}
        return sample | {
            "position": position[choices][chosen],
            "choice_mask": is_there,
            "is_right": is_right[chosen] & is_there,
        }


def _check_ranges(path: Path, key: str, ranges: Array) -> None:
    empty = np.flatnonzero(ranges[:, 0] >= ranges[:, 1])
    if len(empty):
        raise DataError(path, f"{key!r} has an empty range in row {empty[0]}")


def _resized(count: int, wanted: int) -> tuple[Array, Array]:
    """Indices of `wanted` out of `count` choices, padded with the first one, and a mask of the real ones."""
    numbers = np.arange(wanted)
    is_there = numbers < count
    return np.where(is_there, numbers, 0), is_there


def assemble(samples: Sequence[dict[str, Array]]) -> Batch:
    """The model's batch of samples, each with text, target, logit_mask (c, s), position (c, 2, s), mask, choice_mask
    and is_right (c,); samples with fewer choices are padded with their first one, masked.
    """
    most = max(len(sample["text"]) for sample in samples)
    rows: dict[str, Array] = {}
    for key in samples[0]:
        padded = []
        for sample in samples:
            numbers, is_there = _resized(len(sample[key]), most)
            array = sample[key][numbers]
            padded.append(array & is_there if array.dtype == bool else array)
        rows[key] = np.stack(padded)
    is_answer = rows["logit_mask"] != 0
    longest = max(int(is_answer.sum(-1).max()), 1)
    # A stable sort by "is no answer" puts the answer's positions first, in order.
    positions = np.argsort(~is_answer, axis=-1, kind="stable")[..., :longest]
    whole = {
        "text": rows["text"],
        "position": rows["position"],
        "context_length": rows["mask"],
        "answer_positions": positions,
        "answer_tokens": np.take_along_axis(rows["target"], positions, axis=-1),
    }
    flags = {
        "answer_mask": np.take_along_axis(is_answer, positions, axis=-1),
        "choice_mask": rows["choice_mask"],
        "is_right": rows["is_right"],
    }
    batch = {key: torch.from_numpy(array.astype(np.int64)) for key, array in whole.items()}
    return batch | {key: torch.from_numpy(array) for key, array in flags.items()}


def open_files(config: Config, data_dir: Path) -> DataSets:
    """The training and the evaluation files of `data_dir`.

    Raises:
        DataError: a file is missing or broken.
    """
    found, files = [], []
    for key, pattern in (("train_files", config.train_files), ("eval_files", config.eval_files)):
        paths = sorted(data_dir.glob(pattern))
        if not paths:
            raise DataError(data_dir / pattern, f"no such file; expected HDF5 ({key})")
        files.append(tuple(paths))
        found.append(GlmFiles(paths, config, is_training=key == "train_files"))
    return DataSets(train=found[0], evaluation=found[1], train_files=files[0], evaluation_files=files[1])


def synthetic(config: Config) -> DataSets:
    """Chains whose continuation is to be chosen; the wrong answers begin with other tokens."""
    chain = Chain(config.seed, first=SPECIAL_TOKENS, count=config.synthetic_tokens)
    train_generator, eval_generator = generators(config.seed)
    return DataSets(
        train=TensorSet(_questions(config, chain, train_generator, config.train_samples, is_training=True)),
        evaluation=TensorSet(_questions(config, chain, eval_generator, config.eval_samples, is_training=False)),
    )


def _questions(config: Config, chain: Chain, generator: np.random.Generator, count: int, *, is_training: bool) -> Batch:
    choices, length, answer = config.num_choices, config.max_seq_length, config.answer_length
    context = length - answer  # the chain, and the mask that the answer replaces
    question = chain.sequences(generator, chain.random(generator, (count,)), context - 1)
    # Choice k of a sample begins with the right token's successor's successor ...: all differ.
    steps = np.stack([generator.permutation(config.synthetic_tokens - 1)[: choices - 1] for _ in range(count)]) + 1
    ring = chain.sequences(generator, chain.successor(question[:, -1]), config.synthetic_tokens)
    begins = np.concatenate([ring[:, :1], np.take_along_axis(ring, steps, axis=1)], axis=1)
    right = np.zeros(count, dtype=np.int64) if is_training else generator.integers(0, choices, count)
    order = (np.arange(choices)[None, :] - right[:, None]) % choices
    begins = np.take_along_axis(begins, order, axis=1)
    answers = chain.sequences(generator, begins.ravel(), answer).reshape(count, choices, answer)
    text = np.full((count, choices, length), _MASK)
    text[:, :, : context - 1] = question[:, None, :]
    text[:, :, context] = _BEGIN
    text[:, :, context + 1 :] = answers[:, :, :-1]
    position = np.zeros((count, choices, 2, length), dtype=np.int64)
    position[:, :, 0, :context] = np.arange(context)
    position[:, :, 0, context:] = context - 1
    position[:, :, 1, context:] = np.arange(1, answer + 1)
    shape = (count, choices, answer)
    integers = {
        "text": text,
        "position": position,
        "context_length": np.full((count, choices), context),
        "answer_positions": np.broadcast_to(np.arange(context, length), shape),
        "answer_tokens": answers,
    }
    batch = {key: torch.from_numpy(array.astype(np.int32)) for key, array in integers.items()}
    return batch | {
        "answer_mask": torch.ones(shape, dtype=torch.bool),
        "choice_mask": torch.ones(count, choices, dtype=torch.bool),
        "is_right": torch.from_numpy(order == 0),
    }
