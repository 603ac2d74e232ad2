"""BERT's HDF5 files: what is read from good ones, and that broken ones are named."""

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from tests.training.benchmarks.trainer.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.benchmark import DataError
from training.benchmarks.driver.training.settings import TrainingConfig

SEQ, MASKS = 16, 3
TRAIN, EVAL = "2048_shards_uncompressed/part_{}.hdf5", "eval_set_uncompressed/part_eval_10k.hdf5"


def _arrays(count: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    positions = np.sort(generator.permuted(np.tile(np.arange(1, SEQ), (count, 1)), axis=1)[:, :MASKS], axis=1)
    positions[0, 1:] = 0  # one mask only in the first sample
    return {
        "input_ids": generator.integers(4, 64, (count, SEQ), dtype=np.int32),
        "input_mask": np.ones((count, SEQ), dtype=np.int8),
        "segment_ids": generator.integers(0, 2, (count, SEQ), dtype=np.int8),
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": generator.integers(4, 64, (count, MASKS), dtype=np.int32),
        "next_sentence_labels": generator.integers(0, 2, count, dtype=np.int8),
    }


def _write(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for number, count in enumerate((5, 3)):
        _write(tmp_path / TRAIN.format(number), _arrays(count, number))
    _write(tmp_path / EVAL, _arrays(4, 9))
    return tmp_path


def _config(**settings: Any) -> TrainingConfig:
    return config_of("bert", data="files", **settings)


def test_samples_are_read_over_the_shards(data_dir: Path) -> None:
    sets = benchmark_of("bert").open_files(_config(), data_dir)
    assert (len(sets.train), len(sets.evaluation)) == (8, 4)
    batch = sets.train[[6, 0, 4]]
    for key in ("input_ids", "segment_ids", "masked_lm_positions", "next_sentence_labels"):
        expected = [_arrays(3, 1)[key][1], _arrays(5, 0)[key][0], _arrays(5, 0)[key][4]]
        assert batch[key].tolist() == np.stack(expected).tolist()
        assert batch[key].dtype == torch.int64
    assert batch["masked_lm_ids"][1].tolist() == [_arrays(5, 0)["masked_lm_ids"][0, 0], 0, 0], (
        "a position of 0 ends them"
    )
    model = benchmark_of("bert").build_model(_config())
    assert torch.isfinite(model(batch)["loss"])


def test_missing_files_are_named(data_dir: Path) -> None:
    (data_dir / EVAL).unlink()
    with pytest.raises(DataError, match=r"part_eval_10k\.hdf5: no such file"):
        benchmark_of("bert").open_files(_config(), data_dir)
    for shard in data_dir.glob("2048*/part*"):
        shard.unlink()
    with pytest.raises(DataError, match=r"2048_shards_uncompressed/part\*\.hdf5: no such file.*train_files"):
        benchmark_of("bert").open_files(_config(), data_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masked_lm_ids": None}, r"part_1\.hdf5: has no 'masked_lm_ids'; found input_ids"),
        ({"input_ids": np.zeros((3, 8), dtype=np.int32)}, r"\[3, 8\]; expected \[3, 16\] \(max_seq_length = 16\)"),
        ({"masked_lm_positions": np.zeros((3, 4))}, r"expected \[3, 3\] \(max_predictions_per_seq = 3\)"),
        ({"input_mask": np.ones((2, SEQ))}, r"\[2, 16\]; expected \[3, 16\]"),
    ],
)
def test_a_file_of_another_shape_is_named_when_it_is_opened(
    data_dir: Path, change: dict[str, Any], message: str
) -> None:
    arrays = {key: value for key, value in (_arrays(3, 1) | change).items() if value is not None}
    _write(data_dir / TRAIN.format(1), arrays)
    with pytest.raises(DataError, match=message):
        benchmark_of("bert").open_files(_config(), data_dir)


def test_a_file_that_is_no_hdf5_or_empty_is_named(data_dir: Path) -> None:
    (data_dir / TRAIN.format(1)).write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 30)
    with pytest.raises(DataError, match=r"part_1\.hdf5: broken HDF5 file"):
        benchmark_of("bert").open_files(_config(), data_dir)
    _write(data_dir / TRAIN.format(1), {key: value[:0] for key, value in _arrays(3, 1).items()})
    with pytest.raises(DataError, match=r"part_1\.hdf5: has no samples"):
        benchmark_of("bert").open_files(_config(), data_dir)


def test_a_token_beyond_the_vocabulary_is_named_before_it_reaches_the_device(data_dir: Path) -> None:
    arrays = _arrays(3, 1)
    arrays["input_ids"][2, 2] = 64
    _write(data_dir / TRAIN.format(1), arrays)
    sets = benchmark_of("bert").open_files(_config(), data_dir)
    with pytest.raises(DataError, match=r"part_1\.hdf5: 'input_ids' goes from \d+ to 64; expected 0 to 63"):
        _ = sets.train[[7]]
