"""LLaMA's token files: what is read from good ones, and that broken ones are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.benchmarks.trainer.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.benchmark import DataError, DataSets


def _open(folder: Path) -> DataSets:
    return benchmark_of("llama").open_files(config_of("llama", data="files"), folder)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    np.save(tmp_path / "train.npy", (np.arange(100) % 64).astype(np.uint16))
    np.save(tmp_path / "eval.npy", np.arange(33) % 64)
    return tmp_path


def test_samples_are_consecutive_pieces(data_dir: Path) -> None:
    sets = _open(data_dir)
    assert (len(sets.train), len(sets.evaluation)) == (6, 2)
    tokens = sets.train[[5, 0]]["tokens"]
    assert tokens.tolist() == [[index % 64 for index in range(80, 96)], list(range(16))]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"train\.npy: no such file"),
        (b"no array", r"train\.npy: no readable \.npy array"),
        (np.zeros(15, dtype=np.int32), r"train\.npy: has 15 tokens; expected seq_length = 16 at least"),
        (
            np.zeros((4, 16), dtype=np.int32),
            r"train\.npy: holds int32 of shape \(4, 16\); expected integers of one dim",
        ),
        (np.zeros(64), r"train\.npy: holds float64"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(data_dir: Path, content: Any, message: str) -> None:
    path = data_dir / "train.npy"
    path.unlink()
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    with pytest.raises(DataError, match=message):
        _open(data_dir)


def test_pickles_are_not_opened(data_dir: Path) -> None:
    np.save(data_dir / "train.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="no readable"):
        _open(data_dir)


@pytest.mark.parametrize("token", [64, -1])
def test_a_token_beyond_the_vocabulary_is_named(data_dir: Path, token: int) -> None:
    np.save(data_dir / "train.npy", np.full(64, token))
    sets = _open(data_dir)
    with pytest.raises(DataError, match=rf"train\.npy: has the token {token}; expected 0 to 63"):
        _ = sets.train[[1]]
