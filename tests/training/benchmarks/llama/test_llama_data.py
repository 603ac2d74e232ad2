"""LLaMA's token files: what is read from good ones, and that broken ones are named."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.benchmark import DataSets
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.llama.pytorch import data


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


def test_without_an_evaluation_file_nothing_is_evaluated(data_dir: Path) -> None:
    (data_dir / "eval.npy").unlink()
    config = config_of("llama", data="files", eval_file=None)
    evaluation = benchmark_of("llama").open_files(config, data_dir).evaluation
    assert len(evaluation) == 0
    with pytest.raises(IndexError, match="this set has no samples"):
        _ = evaluation[[0]]
    for key in ("target_loss", "eval_interval_samples"):
        with pytest.raises(ValueError, match=f"{key} = 3.* needs an evaluation; eval_file is None"):
            config_of("llama", data="files", eval_file=None, **{key: 3})


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
def test_a_token_beyond_the_vocabulary_is_named_when_the_file_is_opened(data_dir: Path, token: int) -> None:
    tokens = np.zeros(64, dtype=np.int64)
    tokens[50] = token
    np.save(data_dir / "train.npy", tokens)
    with pytest.raises(DataError, match=rf"train\.npy: has the token {token} at place 50; expected 0 to 63"):
        _open(data_dir)


def test_a_token_that_was_not_looked_at_is_named_when_it_is_read(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "_LOOKED_AT", 16)  # every fourth
    tokens = np.zeros(64, dtype=np.uint16)
    tokens[50] = 65_535
    np.save(data_dir / "train.npy", tokens)
    train = _open(data_dir).train
    assert train[[0, 2]]["tokens"].sum() == 0
    with pytest.raises(DataError, match=r"train\.npy: has the token 65535 at place 50; expected 0 to 63"):
        _ = train[[0, 3]]


@pytest.mark.parametrize("kind", ["uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", ">u2", ">i4"])
def test_tokens_of_every_integer_type_are_read(data_dir: Path, kind: str) -> None:
    np.save(data_dir / "train.npy", np.arange(64).astype(kind))
    assert _open(data_dir).train[[1]]["tokens"].tolist() == [[*range(16, 32)]]


def test_a_truncated_an_empty_and_a_packed_file_are_named(data_dir: Path) -> None:
    path = data_dir / "train.npy"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(DataError, match=r"train\.npy: no readable \.npy array"):
        _open(data_dir)
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"train\.npy: no readable \.npy array"):
        _open(data_dir)
    with path.open("wb") as file:
        np.savez(file, tokens=np.arange(64))
    with pytest.raises(DataError, match=r"train\.npy: is an archive of arrays"):
        _open(data_dir)
